r"""A layer of attention heads in plain numpy, short enough to read beside the equations.

Rows are items: a context of $N$ tokens is $X \in \mathbb R^{N\times d_{model}}$, the queries are
$Y \in \mathbb R^{n\times d_{model}}$ (for self-attention $Y = X$). Head $h$ has scores
$S_h = (YW_Q^h + b_Q^h)(XW_K^h + b_K^h)^\top$ and output
$A_h\,(XW_V^h + b_V^h)\,W_O^{h\top}$, where row $i$ of $A_h$ is the softmax of
$\beta\,S_h(i, \cdot)$, or for hard attention the indicator of its first maximum. The layer adds its heads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bounds.arithmetic import exact_integer, exact_rational
from bounds.bound import VERSION
from bounds.errors import ArgumentError

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionLayer:
    r"""$H$ attention heads; head sizes may differ.

    ``w_q[h]``, ``w_k[h]``: (d_model, d_k of head h). ``w_v[h]``: (d_model, d_v of head h) and
    ``w_o[h]``: (d_out, d_v of head h), both empty for a layer that only scores pairs.
    ``b_q[h]``, ``b_k[h]``: (d_k,), ``b_v[h]``: (d_v,), each empty for no biases. ``kind``:
    ``"hard"`` or ``"soft"``; ``logit_scale``: the softmax scale $\beta > 0$ (1 for hard heads,
    which it does not change). ``threshold``: $\tau$ of the recognition readout
    $\max_h S_h(i,j) > \tau$, or ``None``. ``blocks``: which residual coordinates hold what, as
    (name, first, last + 1). ``method``, ``seed``: what made the layer. Arrays are float64,
    finite, and read-only.

    >>> layer = AttentionLayer(w_q=[np.eye(2)], w_k=[np.eye(2)], w_v=[np.eye(2)], w_o=[np.eye(2)])
    >>> layer.attend([[0.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]])
    array([[0., 1.]])
    """

    w_q: tuple[FloatArray, ...]
    w_k: tuple[FloatArray, ...]
    w_v: tuple[FloatArray, ...] = ()
    w_o: tuple[FloatArray, ...] = ()
    b_q: tuple[FloatArray, ...] = ()
    b_k: tuple[FloatArray, ...] = ()
    b_v: tuple[FloatArray, ...] = ()
    kind: Literal["hard", "soft"] = "hard"
    logit_scale: float = 1.0
    threshold: float | None = None
    blocks: tuple[tuple[str, int, int], ...] = ()
    method: str = "given"
    seed: int | None = None
    package_version: str = field(default=VERSION)

    def __init__(
        self,
        *,
        w_q: Sequence[ArrayLike],
        w_k: Sequence[ArrayLike],
        w_v: Sequence[ArrayLike] = (),
        w_o: Sequence[ArrayLike] = (),
        b_q: Sequence[ArrayLike] = (),
        b_k: Sequence[ArrayLike] = (),
        b_v: Sequence[ArrayLike] = (),
        kind: Literal["hard", "soft"] = "hard",
        logit_scale: float = 1.0,
        threshold: float | None = None,
        blocks: Iterable[tuple[str, int, int]] = (),
        method: str = "given",
        seed: int | None = None,
        package_version: str = VERSION,
    ) -> None:
        given = {
            "w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o, "b_q": b_q, "b_k": b_k, "b_v": b_v
        }  # fmt: skip
        arrays = {
            name: tuple(
                _frozen(checked_array(value, f"{name}[{h}]", 1 if name[0] == "b" else 2))
                for h, value in enumerate(values)
            )
            for name, values in given.items()
        }
        _check_shapes(arrays)
        if kind not in ("hard", "soft"):
            raise ArgumentError("kind", kind, "'hard' or 'soft'")
        scale = checked_float(logit_scale, "logit_scale", "finite and positive")
        if scale <= 0:
            raise ArgumentError("logit_scale", logit_scale, "finite and positive")
        tau = (
            None if threshold is None else checked_float(threshold, "threshold", "finite, or None")
        )
        if not isinstance(method, str):
            raise ArgumentError("method", method, "a text")
        for name, value in arrays.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "logit_scale", scale)
        object.__setattr__(self, "threshold", tau)
        object.__setattr__(self, "blocks", tuple((str(n), int(a), int(b)) for n, a, b in blocks))
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "seed", None if seed is None else exact_integer(seed, "seed", 0))
        object.__setattr__(self, "package_version", package_version)

    @property
    def heads(self) -> int:
        """The number $H$ of heads."""
        return len(self.w_q)

    @property
    def d_model(self) -> int:
        """The dimension of a token."""
        return int(self.w_q[0].shape[0])

    @property
    def key_dims(self) -> tuple[int, ...]:
        """The query/key dimension $d_k$ of each head."""
        return tuple(int(matrix.shape[1]) for matrix in self.w_q)

    @property
    def key_dimension(self) -> int:
        r"""The total key dimension $D_K = \sum_h d_k$."""
        return sum(self.key_dims)

    @property
    def parameters(self) -> int:
        """The number of stored weights, biases and threshold."""
        groups = (self.w_q, self.w_k, self.w_v, self.w_o, self.b_q, self.b_k, self.b_v)
        weights = sum(array.size for group in groups for array in group)
        return weights + (self.threshold is not None)

    def projections(
        self, head: int, queries: FloatArray, context: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Queries $YW_Q + b_Q$ (n, d_k) and keys $XW_K + b_K$ (N, d_k) of one head."""
        with np.errstate(over="ignore", invalid="ignore"):  # callers refuse what is not finite
            query = queries @ self.w_q[head]
            key = context @ self.w_k[head]
            if self.b_q:
                query = query + self.b_q[head]
            if self.b_k:
                key = key + self.b_k[head]
        return query, key

    def scores(self, head: int, queries: ArrayLike, context: ArrayLike) -> FloatArray:
        """$S_h(i,j)$, shape (n, N), without the logit scale."""
        tokens, others = self._tokens(queries, "queries"), self._tokens(context, "context")
        query, key = self.projections(head, tokens, others)
        with np.errstate(over="ignore", invalid="ignore"):
            return _finite(query @ key.T, "the scores")

    def attention(
        self, head: int, queries: ArrayLike, context: ArrayLike, mask: ArrayLike | None = None
    ) -> FloatArray:
        """$A_h$, shape (n, N): rows sum to 1, or to 0 where ``mask`` allows no token.

        ``mask``: booleans of shape (n, N), true where a query may attend; ``None`` for everywhere.
        Overflows only where a query or a key does: both are scaled by powers of two before they
        are multiplied.
        """
        tokens, others = self._tokens(queries, "queries"), self._tokens(context, "context")
        allowed = _checked_mask(mask, (len(tokens), len(others)))
        query, key = self.projections(head, tokens, others)
        raw, exponent = scaled_scores(_finite(query, "the queries"), _finite(key, "the keys"))
        scores = np.where(allowed, raw, -np.inf)
        weights = np.zeros(scores.shape)
        rows = np.flatnonzero(allowed.any(axis=1))
        if self.kind == "hard":
            weights[rows, scores[rows].argmax(axis=1)] = 1.0
            return weights
        gaps = scores[rows] - scores[rows].max(axis=1, keepdims=True)
        mantissa, power = np.frexp(self.logit_scale)
        with np.errstate(over="ignore", under="ignore"):
            logits = np.ldexp(gaps * mantissa, exponent[rows] + power)
            shares = np.exp(np.where(gaps == 0, 0.0, logits))
        weights[rows] = shares / shares.sum(axis=1, keepdims=True)
        return weights

    def attend(
        self, queries: ArrayLike, context: ArrayLike, mask: ArrayLike | None = None
    ) -> FloatArray:
        r"""The output $\sum_h A_h(XW_V^h + b_V^h)W_O^{h\top}$, shape (n, d_out).

        ``queries``: (n, d_model); ``context``: (N, d_model), $N \ge 1$. A query whose mask allows
        no token gets zeros. Hard ties go to the smallest index.
        """
        if not self.w_v:
            raise ArgumentError("layer", self.method, "one with values (w_v and w_o) to attend")
        tokens, others = self._tokens(queries, "queries"), self._tokens(context, "context")
        total: FloatArray = np.zeros((len(tokens), self.w_o[0].shape[0]))
        for head in range(self.heads):
            weights = self.attention(head, tokens, others, mask)
            with np.errstate(over="ignore", invalid="ignore"):
                values = others @ self.w_v[head]
                if self.b_v:
                    values = values + self.b_v[head]
                total += weights @ _finite(values, "the values") @ self.w_o[head].T
        return _finite(total, "the output")

    def recognize(self, embeddings: ArrayLike) -> BoolArray:
        r"""Which pairs have $\max_h S_h(i,j) > \tau$: booleans of shape (m, m), in float64.

        ``embeddings``: (m, d_model). For a verdict with a rounding bound use
        :func:`verification.verify`.
        """
        if self.threshold is None:
            raise ArgumentError("layer", self.method, "one with a threshold to recognize pairs")
        tokens = self._tokens(embeddings, "embeddings")
        found = np.zeros((len(tokens), len(tokens)), dtype=bool)
        for head in range(self.heads):
            found |= self.scores(head, tokens, tokens) > self.threshold
        return found

    def _tokens(self, value: ArrayLike, name: str) -> FloatArray:
        array = checked_array(value, name, 2)
        if array.shape[0] == 0 or array.shape[1] != self.d_model:
            raise ArgumentError(name, array.shape, f"of shape (at least 1, {self.d_model})")
        return array


def checked_array(value: ArrayLike, name: str, dimensions: int | None) -> FloatArray:
    """``value`` as a finite float64 array with so many axes (any for ``None``), or an ``ArgumentError``.

    Integers up to $2^{53}$ and floats of any precision up to double are taken exactly; complex,
    object and text arrays, nan and inf are refused.
    """
    try:
        array = np.asarray(value)
    except ValueError as failure:
        raise ArgumentError(name, value, f"a rectangular array ({failure})") from None
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise ArgumentError(name, array.dtype, "of a real dtype of at most 64 bits")
    if dimensions is not None and array.ndim != dimensions:
        raise ArgumentError(name, array.shape, f"an array with {dimensions} axes")
    if array.dtype.kind in "iu" and array.size:
        largest = max(int(array.max()), -int(array.min()))
        if largest > 2**53:
            raise ArgumentError(name, largest, "integers of size at most 2**53")
    result = np.asarray(array, dtype=np.float64)
    if not np.isfinite(result).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(result))[0])
        raise ArgumentError(f"{name}{list(where)}", float(result[where]), "finite")
    return result


def checked_float(value: object, name: str, allowed: str = "a number within float64") -> float:
    """A rational number as the nearest float64."""
    try:
        return float(exact_rational(value, name))
    except (ArgumentError, OverflowError):
        raise ArgumentError(name, value, allowed) from None


def _frozen(array: FloatArray) -> FloatArray:
    copy = np.array(array, dtype=np.float64, order="C")
    copy.setflags(write=False)
    return copy


def _finite(array: FloatArray, what: str) -> FloatArray:
    if not np.isfinite(array).all():
        raise OverflowError(f"{what} of the layer overflow float64: scale the tokens down")
    return array


def scaled_scores(query: FloatArray, key: FloatArray) -> tuple[FloatArray, NDArray[np.int32]]:
    r"""Scores without overflow: $s_{ij}$ and $e_i$ with $\langle q_i, k_j\rangle = s_{ij}2^{e_i}$.

    ``query``: (n, d_k), scaled to size 1 row by row; ``key``: (N, d_k), scaled to size $2^{960}$ by
    one power of two for all, so that little underflows. Returns (n, N) and (n, 1).
    """
    _, query_exponent = np.frexp(np.abs(query).max(axis=1, keepdims=True))
    _, key_exponent = np.frexp(np.abs(key).max(keepdims=True))
    key_exponent = key_exponent - 960
    with np.errstate(under="ignore"):
        scores: FloatArray = np.ldexp(query, -query_exponent) @ np.ldexp(key, -key_exponent).T
    return scores, query_exponent + key_exponent


def _checked_mask(mask: ArrayLike | None, shape: tuple[int, int]) -> BoolArray:
    if mask is None:
        return np.ones(shape, dtype=bool)
    allowed = np.asarray(mask)
    if allowed.dtype != bool or allowed.shape != shape:
        raise ArgumentError("mask", (allowed.dtype, allowed.shape), f"booleans of shape {shape}")
    return allowed


def _check_shapes(arrays: dict[str, tuple[FloatArray, ...]]) -> None:
    heads = len(arrays["w_q"])
    if heads == 0:
        raise ArgumentError("w_q", (), "at least one head")
    for name, values in arrays.items():
        needed = name in ("w_q", "w_k") or (name in ("w_v", "w_o") and bool(arrays["w_v"]))
        if values and name in ("w_o", "b_v") and not arrays["w_v"]:
            raise ArgumentError(name, f"{len(values)} arrays", "absent for a layer without w_v")
        if len(values) != heads and (needed or values):
            raise ArgumentError(
                name, f"{len(values)} arrays", f"one array for each of {heads} heads"
            )
    d_model = arrays["w_q"][0].shape[0]
    d_out = arrays["w_o"][0].shape[0] if arrays["w_o"] else 0
    for head in range(heads):
        d_k = arrays["w_q"][head].shape[1]
        expected = {"w_q": (d_model, d_k), "w_k": (d_model, d_k), "b_q": (d_k,), "b_k": (d_k,)}
        if arrays["w_v"]:
            d_v = arrays["w_v"][head].shape[1]
            expected |= {"w_v": (d_model, d_v), "w_o": (d_out, d_v), "b_v": (d_v,)}
        for name, shape in expected.items():
            if arrays[name] and arrays[name][head].shape != shape:
                raise ArgumentError(
                    f"{name}[{head}]", arrays[name][head].shape, f"of shape {shape}"
                )
        for name in expected:
            if arrays[name] and 0 in arrays[name][head].shape:
                raise ArgumentError(
                    f"{name}[{head}]", arrays[name][head].shape, "of a shape without zeros"
                )
