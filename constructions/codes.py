r"""Key codes, one a target item: one head for a functional graph on independent embeddings (C4b).

With $u_i$ dual to the embeddings, $\langle x_i,u_j\rangle = \delta_{ij}$ ($u_i = x_i$ when they are
orthonormal), $W_Q = \sum_{(i,j)\in E} u_ic_j^\top$ and $W_K = \sum_j u_jc_j^\top$ score
$S(i,j') = \langle c_{f(i)},c_{j'}\rangle$. Codes with inner products below their squared length are
all it takes; how far below is the margin. Codes with algebraic guarantees are in
:mod:`constructions.algebraic_codes`. The proofs are in docs/C4-codes.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import ArrayLike, NDArray

from bounds.arithmetic import certain_ceiling, certify, exact_integer, exact_rational, to_arb
from bounds.errors import ArgumentError
from constructions.attention import AttentionLayer, FloatArray
from constructions.errors import RealizationError
from constructions.relations import relation_target

SignArray = NDArray[np.int8]

MOST_CODES = 1 << 28
"""Codes that are made at once: they are written out, and compared pair by pair."""

_LONGEST_SCAN = 4096
_EXACT_LENGTH = 1 << 53  # inner products of shorter sign codes are exact in float64,
_EXACT_LENGTH_SINGLE = 1 << 24  # and of codes up to this length in float32


@dataclass(frozen=True, eq=False)
class SignCodes:
    r"""m codes in $\{\pm1\}^{k}$ with their exact coherence.

    ``signs``: (m, k) int8, read-only. ``coherence``: $\max_{i\ne j}\langle c_i,c_j\rangle/k$ (what a
    functional graph needs below 1); ``absolute_coherence``: the largest $|\langle c_i,c_j\rangle|/k$.
    Both are computed from the integers. ``guaranteed``: the upper bound on the coherence that holds
    for every code of its kind, or ``None``; ``family``: where the codes come from.
    """

    signs: SignArray
    coherence: Fraction
    absolute_coherence: Fraction
    guaranteed: Fraction | None
    family: str

    @property
    def items(self) -> int:
        """The number m of codes."""
        return len(self.signs)

    @property
    def length(self) -> int:
        """The key dimension k."""
        return int(self.signs.shape[1])

    @property
    def margin(self) -> Fraction:
        """1 - coherence: by how much the right key beats every other, for codes of norm 1."""
        return 1 - self.coherence

    @property
    def matrix(self) -> FloatArray:
        r"""The codes as they are used, entries $\pm1$ (inner products are integers, norm $\sqrt k$)."""
        return self.signs.astype(np.float64)


def certified_codes(
    signs: ArrayLike, *, guaranteed: Fraction | None = None, family: str = "given"
) -> SignCodes:
    """Codes from any array of signs, shape (m, k), m >= 2; coherence from exact inner products."""
    array = np.asarray(signs)
    if array.ndim != 2 or array.shape[0] < 2 or array.shape[1] == 0:
        raise ArgumentError("signs", array.shape, "of shape (at least 2, at least 1)")
    if array.dtype.kind not in "iuf" or not (np.abs(array.astype(np.float64)) == 1).all():
        raise ArgumentError("signs", array.dtype, "an array of entries 1 and -1")
    frozen = array.astype(np.int8)
    frozen.setflags(write=False)
    k = frozen.shape[1]
    assert k < _EXACT_LENGTH
    floats: NDArray[Any] = frozen.astype(np.float32 if k <= _EXACT_LENGTH_SINGLE else np.float64)
    highest, lowest = -k, k
    step = max(1, (1 << 22) // len(floats))
    for start in range(0, len(floats) - 1, step):
        # integers of size at most k: no rounding; pairs with earlier rows are done
        inner = floats[start : start + step] @ floats[start:].T
        rows = np.arange(len(inner))
        inner[rows, rows] = np.nan
        highest = max(highest, int(np.nanmax(inner)))
        lowest = min(lowest, int(np.nanmin(inner)))
    return SignCodes(
        frozen, Fraction(highest, k), Fraction(max(highest, -lowest), k), guaranteed, family
    )


def sign_code_length(items: int, coherence: object, delta: object) -> int:
    r"""The least k for which m random sign codes keep coherence $\le t$ except with probability δ.

    $\binom m2\Pr(\langle c,c'\rangle > tk) \le \delta$, with the exact binomial tail of k fair signs.
    At most :func:`sign_code_length_bound`, and equal to it where that is above 4096 (the tails of
    every smaller k would have to be summed). ``coherence`` t: in (0, 1); ``delta``: in (0, 1).
    Source: [attention-bounds, C4].

    >>> sign_code_length(1024, "1/2", "1/100"), sign_code_length_bound(1024, "1/2", "1/100")
    (112, 143)
    """
    pairs, t, delta_ = _code_arguments(items, coherence, delta)
    limit = sign_code_length_bound(items, coherence, delta)
    if limit > _LONGEST_SCAN:
        return limit
    for k in range(1, limit):
        if _tail(k, t) * pairs <= delta_ * 2**k:
            return k
    return limit


def sign_code_length_bound(items: int, coherence: object, delta: object) -> int:
    r"""$\lceil 2\ln(\binom m2/\delta)/t^2\rceil$: a k that suffices, by Hoeffding's inequality.

    Source: [attention-bounds, C4].
    """
    pairs, t, delta_ = _code_arguments(items, coherence, delta)

    def attempt(_: int) -> int | None:
        size: arb = 2 * to_arb(pairs / delta_).log() / to_arb(t * t)
        return certain_ceiling(size)

    if t == 0:
        raise ArgumentError("coherence", coherence, "above 0: random codes are not orthogonal")
    return max(1, certify(attempt, "the code length"))


def random_sign_codes(items: int, length: int, seed: int = 0) -> SignCodes:
    """m uniform random sign codes of length k; their coherence is certified after the draw."""
    items, length = exact_integer(items, "items", 2, MOST_CODES), exact_integer(length, "length", 1)
    rng = np.random.default_rng(exact_integer(seed, "seed", 0))
    signs = 2 * rng.integers(0, 2, size=(items, length), dtype=np.int8) - 1
    return certified_codes(signs, family="random signs")


def counting_codes(items: int) -> SignCodes:
    r"""The binary digits of 0..m-1: $k = \lceil\log_2m\rceil$, the shortest, coherence $1 - 2/k$.

    Source: [attention-bounds, C4].

    >>> counting_codes(1000).length, counting_codes(1000).margin
    (10, Fraction(1, 5))
    """
    items = exact_integer(items, "items", 2, MOST_CODES)
    k = (items - 1).bit_length()
    bits = (np.arange(items)[:, None] >> np.arange(k)) & 1
    return certified_codes(1 - 2 * bits, guaranteed=1 - Fraction(2, k), family="counting")


def circle_codes(items: int) -> FloatArray:
    r"""m points of the unit circle: $d_k = 2$, margin $1 - \cos(2\pi/m)$; shape (m, 2), float64.

    Source: [attention-bounds, C4].
    """
    items = exact_integer(items, "items", 2, MOST_CODES)
    angles = 2 * np.pi * np.arange(items) / items
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def coded_layer(
    embeddings: ArrayLike, edges: ArrayLike, codes: SignCodes | ArrayLike
) -> AttentionLayer:
    r"""One head of $d_k = k$ from linearly independent embeddings and one code an item.

    ``codes``: (m, k), rows of one norm. Any functional graph is realised when the codes' coherence is
    below 1, any graph of out-degree at most D when $(2D-1)$ times the absolute coherence is.
    Verified on all pairs, or ``RealizationError``. Source: [attention-bounds, C4].

    >>> layer = coded_layer(np.eye(5), [[0, 3], [1, 3], [2, 0]], counting_codes(5))
    >>> layer.key_dimension, np.argwhere(layer.recognize(np.eye(5))).tolist()
    (3, [[0, 3], [1, 3], [2, 0]])
    """
    from constructions.recognition import recognition_report

    target = relation_target(embeddings, edges)
    matrix = codes.matrix if isinstance(codes, SignCodes) else np.asarray(codes, dtype=np.float64)
    if matrix.ndim != 2 or len(matrix) != target.items:
        raise ArgumentError("codes", matrix.shape, f"of shape ({target.items}, k)")
    x = target.embeddings
    if target.items > x.shape[1] or np.linalg.matrix_rank(x) < target.items:
        raise RealizationError(
            f"{target.items} embeddings of dimension {x.shape[1]} are linearly dependent: one code "
            "an item needs independent ones (superposed_layer does not)"
        )
    orthonormal = np.array_equal(x @ x.T, np.eye(len(x)))
    dual = x.T if orthonormal else np.linalg.pinv(x)  # columns u_i, <x_i, u_j> = 1 if i = j else 0
    wanted: FloatArray = np.zeros_like(matrix)
    # row i: the sum of the codes of i's neighbours, so that x_i W_Q is that sum
    np.add.at(wanted, target.edges[:, 0], matrix[target.edges[:, 1]])
    scores = wanted @ matrix.T
    related = target.rows(0, target.items)
    lowest = float(scores[related].min())
    highest = float(scores[~related].max()) if not related.all() else lowest - 2.0
    threshold = (lowest + highest) / 2
    layer = AttentionLayer(
        w_q=[dual @ wanted], w_k=[dual @ matrix], threshold=threshold, method="key codes"
    )
    report = recognition_report(layer, target)
    if report.wrong is not None or report.undecided:
        raise RealizationError(
            f"codes of length {matrix.shape[1]} do not separate the graph (pair {report.wrong}): "
            "use codes of smaller coherence"
        )
    return layer


def _tail(k: int, t: Fraction) -> int:
    """How many of the 2^k sign vectors have a sum above t k."""
    ones = (k + (t * k).__floor__()) // 2 + 1  # 2 ones - k > t k
    total, term = 0, 1
    for count in range(k, ones - 1, -1):
        total += term
        term = term * count // (k - count + 1)
    return total


def _code_arguments(
    items: object, coherence: object, delta: object
) -> tuple[int, Fraction, Fraction]:
    m = exact_integer(items, "items", 2)
    share = exact_rational(delta, "delta")
    if not 0 < share < 1:
        raise ArgumentError("delta", delta, "between 0 and 1, exclusive")
    return comb(m, 2), fraction_below_one(coherence, "coherence"), share


def fraction_below_one(value: object, name: str) -> Fraction:
    """A coherence to be reached, in [0, 1), exactly."""
    t = exact_rational(value, name)
    if not 0 <= t < 1:
        raise ArgumentError(name, value, "at least 0 and below 1")
    return t
