r"""Superposed embeddings: a block of relations in each head, held by dual vectors and random codes.

Head of a block $e = 1..n$ of relations $(s_e, t_e)$, no two with the same source or target:
$W_Q = \sum_e u_ec_e^\top$, $W_K = \sum_e v_ec_e^\top$ with $\langle x_{s_e},u_f\rangle =
\langle x_{t_e},v_f\rangle = \delta_{ef}$ and sign codes $c_e \in \{\pm1\}^{d_k}/\sqrt{d_k}$. Pair
(a, b) scores $\alpha^\top G\beta$, $\alpha_e = \langle x_a,u_e\rangle$, $\beta_e = \langle
x_b,v_e\rangle$, $G_{ef} = \langle c_e,c_f\rangle$: mean $\alpha\cdot\beta$, exactly 1 for the
block's relations. The proofs are in docs/C4-superposition.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bounds.arithmetic import exact_integer, exact_rational
from bounds.errors import ArgumentError
from constructions.attention import AttentionLayer, FloatArray
from constructions.edge_coloring import matchings
from constructions.errors import RealizationError
from constructions.relations import RelationTarget, relation_target

IntArray = NDArray[np.int64]

GAP = 1 / 64
"""Sizes are computed for non-relations that score at most 1 - GAP; relations score 1."""

_ENTRIES = 1 << 22
_BINS = np.geomspace(1e-6, 1.0, 4097)  # of the exponents' rates, rounded down to these
_RIDGE = 1e-3
_SIXTEENTHS = (16, 12, 10, 8, 6, 5, 4, 3, 2, 1)  # of the rank, tried as block sizes


@dataclass(frozen=True, eq=False)
class Block:
    r"""The relations of one head, and the dual vectors of their sources and targets.

    ``rows``: (n,) row numbers of the target's edges; ``sources`` $u_e$, ``targets`` $v_e$:
    (d_model, n), one column a relation.
    """

    rows: IntArray
    sources: FloatArray
    targets: FloatArray

    def weights(self, codes: FloatArray) -> tuple[FloatArray, FloatArray]:
        r"""$W_Q = \sum_eu_ec_e^\top$ and $W_K = \sum_ev_ec_e^\top$; ``codes``: (n, d_k)."""
        return self.sources @ codes, self.targets @ codes


def superposed_layer(
    embeddings: ArrayLike,
    edges: ArrayLike,
    *,
    delta: object = Fraction(1, 100),
    key_dim: int | None = None,
    block: int | None = None,
    seed: int = 0,
) -> AttentionLayer:
    r"""A layer that recognises exactly ``edges``: one head a block of a matching, random codes.

    ``delta``: probability with which the drawn codes may fail when ``key_dim`` is absent; $d_k$ of
    each head is then the explicit size of :func:`explicit_key_dim`, or the number of the head's
    relations where that is smaller: codes are then orthonormal and nothing is random. With
    ``key_dim`` that size is drawn. ``block``: at most so many relations a head; absent: the size
    that promises the least total $D_K$, and for a given ``key_dim`` the largest one whose draw is
    right. Heads: $\max(\Delta, \lceil m'/\mathtt{block}\rceil)$, the fewest for such blocks
    ($\Delta$: the most relations of one source or one target). What was drawn is verified on all
    pairs, exactly.

    Raises ``RealizationError`` when the means do not separate, or when the draw is wrong.
    Source: [attention-bounds, C4]; setting of [Adler2025].

    >>> layer = superposed_layer(np.eye(4), [[0, 1], [1, 2], [2, 3], [3, 0]], seed=1)
    >>> layer.recognize(np.eye(4)).astype(int).tolist()
    [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
    """
    target = relation_target(embeddings, edges)
    share = exact_rational(delta, "delta")
    if not 0 < share < 1:
        raise ArgumentError("delta", delta, "between 0 and 1, exclusive")
    seed = exact_integer(seed, "seed", 0)
    if key_dim is not None:
        key_dim = exact_integer(key_dim, "key_dim", 1)
    rank = int(np.linalg.matrix_rank(target.embeddings))
    if block is not None:
        sizes = [exact_integer(block, "block", 1, rank)]
    else:
        sizes = sorted({max(1, rank * part // 16) for part in _SIXTEENTHS}, reverse=True)
    if key_dim is None:
        blocks, dims = _cheapest(target, sizes, float(share))
        return _drawn(target, blocks, dims, seed)
    failure = None
    for size in sizes:
        try:
            blocks = relation_blocks(target, size)
            return _drawn(target, blocks, [key_dim] * len(blocks), seed)
        except RealizationError as error:
            failure = error
    assert failure is not None
    raise failure


def sketched_layer(
    embeddings: ArrayLike, edges: ArrayLike, *, key_dim: int | None = None, seed: int = 0
) -> AttentionLayer:
    r"""One head for all relations: $W_QW_K^\top = \sum_e u_ev_e^\top$, or a random sketch of it.

    $u_e = Mx_{s_e}^\top$, $v_e = Mx_{t_e}^\top$ with $M$ the regularised inverse of the Gram matrix
    $X^\top X/m$. ``key_dim`` absent: the full-rank head, $d_k = d_{model}$, no randomness; else
    $d_k$ columns of random sign codes. Verified on all pairs, or ``RealizationError``.
    Source: [attention-bounds, C4].

    >>> sketched_layer(np.eye(3), [[0, 1], [0, 2]]).key_dimension
    3
    """
    target = relation_target(embeddings, edges)
    seed = exact_integer(seed, "seed", 0)
    metric = embedding_metric(target.embeddings)
    source, goal = (target.embeddings[target.edges[:, side]] @ metric for side in (0, 1))
    if key_dim is None:
        w_q, w_k = source.T @ goal, np.eye(target.embeddings.shape[1])
        method = "full-rank head"
    else:
        key_dim = exact_integer(key_dim, "key_dim", 1)
        codes = sign_matrix(np.random.default_rng(seed), len(source), key_dim)
        w_q, w_k = source.T @ codes, goal.T @ codes
        method = "sketched head"
    scaled = scaled_head(target, np.arange(target.relations), w_q, w_k)
    if scaled is None:
        raise RealizationError(
            f"a single {method} of d_k = {w_q.shape[1]} scores some non-relation above a relation; "
            "use more heads (superposed_layer) or a larger d_model"
        )
    layer = AttentionLayer(
        w_q=[scaled],
        w_k=[w_k],
        threshold=1.0,
        method=method,
        seed=None if key_dim is None else seed,
    )
    return _verified(layer, target)


def relation_blocks(target: RelationTarget, size: int) -> list[Block]:
    """The graph's relations in the fewest matchings of at most ``size``, with their dual vectors."""
    metric = embedding_metric(target.embeddings)
    return [dual_block(target, rows, metric) for rows in matchings(target.edges, size)]


def dual_block(
    target: RelationTarget, rows: IntArray, metric: FloatArray, ridge: float = 0.0
) -> Block:
    r"""The block of some relations: $U = MX_S^\top(X_SMX_S^\top + \lambda I)^{-1}$, targets too.

    With ``ridge`` 0, $X_SU = I$: dual to the sources, and of all such $U$ the one with the least
    $\sum_a\langle x_a,u_e\rangle^2$ over all items (plus the metric's ridge), whatever the
    embeddings' covariance. Else $\lambda$ is ``ridge`` times the mean of the Gram diagonal, so that
    more relations than d_model fit, and columns are scaled to $\langle x_{s_e},u_e\rangle = 1$.
    """
    duals = []
    for side in (0, 1):
        chosen = target.embeddings[target.edges[rows, side]]
        gram = chosen @ metric @ chosen.T
        gram = gram + ridge * float(np.mean(np.diag(gram))) * np.eye(len(rows))
        if not np.linalg.cond(gram) <= 1e10:  # nan for a zero matrix
            raise RealizationError(
                f"the {'sources' if side == 0 else 'targets'} of a block of {len(rows)} relations "
                "are linearly dependent or nearly so: use a smaller block"
            )
        dual = np.linalg.solve(gram, chosen @ metric).T
        duals.append(dual / np.einsum("ed,de->e", chosen, dual) if ridge else dual)
    return Block(rows, duals[0], duals[1])


def explicit_key_dim(target: RelationTarget, block: Block, delta: float) -> int:
    r"""The $d_k$ with which random codes of one head fail with probability at most ``delta``.

    A non-relation with mean $\mu = \alpha\cdot\beta$ reaches 1 - GAP with probability at most
    $\exp(-d_kt^2/(4(F^2+bt)))$, $t = 1 - \mathrm{GAP} - \mu$,
    $F^2 = \frac12(|\alpha|^2|\beta|^2+\mu^2)-\sum_e\alpha_e^2\beta_e^2$ and
    $b = \min\{F, \frac12(|\alpha||\beta|+\sum_e|\alpha_e\beta_e|)\}$; relations score exactly 1. The
    least $d_k$ for which these add up to at most ``delta``, with each exponent rounded down to one
    of 4096 steps. Raises ``RealizationError`` when some mean is not below 1 - GAP.
    Source: [attention-bounds, C4].
    """
    counts = np.zeros(len(_BINS))
    for start, stop in _rows(target):
        rate = _rates(target, block, start, stop)
        rate = np.minimum(rate[~target.rows(start, stop)], 1.0)
        if rate.size and float(rate.min()) < _BINS[0]:
            raise RealizationError(
                f"with blocks of {len(block.rows)} relations the mean score of a pair outside the "
                "graph is no less than that of a relation: use a smaller block"
            )
        found = np.searchsorted(_BINS, rate * (1 - 1e-9), side="right") - 1
        counts += np.bincount(np.maximum(found, 0), minlength=len(_BINS))

    def failure(k: int) -> float:
        return float(counts @ np.exp(-k * _BINS))

    high = 1
    while failure(high) > delta:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if failure(middle) > delta else (low, middle)
    return high


def block_codes(rng: np.random.Generator, rows: int, key_dim: int) -> FloatArray:
    """Random sign codes, or orthonormal ones (the unit vectors) where ``key_dim`` has room."""
    return np.eye(rows) if key_dim >= rows else sign_matrix(rng, rows, key_dim)


def sign_matrix(rng: np.random.Generator, rows: int, key_dim: int) -> FloatArray:
    r"""``rows`` random sign codes, entries $\pm1/\sqrt{d_k}$."""
    signs = 2.0 * rng.integers(0, 2, size=(rows, key_dim)) - 1.0
    return np.asarray(signs / sqrt(key_dim), dtype=np.float64)


def scaled_head(
    target: RelationTarget, rows: IntArray, w_q: FloatArray, w_k: FloatArray
) -> FloatArray | None:
    """$W_Q$ scaled so that 1 lies midway between some relations and non-relations; None if it cannot."""
    relations, highest = relation_scores(target, w_q, w_k)
    lowest = float(relations[rows].min())
    middle = (lowest + max(highest, 0.0)) / 2
    if not (lowest > highest and middle > 0):
        return None
    return np.asarray(w_q / middle)


def relation_scores(
    target: RelationTarget, w_q: FloatArray, w_k: FloatArray
) -> tuple[FloatArray, float]:
    """The scores of the relations in one head and the largest of a non-relation, in float64."""
    query, key = target.embeddings @ w_q, target.embeddings @ w_k
    relations = np.einsum("ek,ek->e", query[target.edges[:, 0]], key[target.edges[:, 1]])
    highest = -np.inf
    for start, stop in _rows(target):
        scores = query[start:stop] @ key.T
        scores[target.rows(start, stop)] = -np.inf
        highest = max(highest, float(scores.max()))
    return relations, highest


def _cheapest(
    target: RelationTarget, sizes: list[int], delta: float
) -> tuple[list[Block], list[int]]:
    """The blocks and key dimensions of the size that promises the least total key dimension."""
    promising: list[tuple[int, int, list[Block]]] = []
    failure = RealizationError("no block size was tried")
    for size in sizes:
        try:
            blocks = relation_blocks(target, size)
            widest = max(blocks, key=lambda block: len(block.rows))
            first = min(explicit_key_dim(target, widest, delta / len(blocks)), len(widest.rows))
            promising.append((first * len(blocks), first, blocks))
        except RealizationError as error:
            failure = error
    for _, first, blocks in sorted(promising, key=lambda entry: entry[:2]):
        try:
            share = delta / len(blocks)
            if first >= max(
                len(block.rows) for block in blocks
            ):  # orthonormal codes in every head: no draw can fail
                return blocks, [len(block.rows) for block in blocks]
            return blocks, [
                min(explicit_key_dim(target, block, share), len(block.rows)) for block in blocks
            ]
        except RealizationError as error:
            failure = error
    raise failure


def _drawn(
    target: RelationTarget, blocks: list[Block], dims: list[int], seed: int
) -> AttentionLayer:
    rng = np.random.default_rng(seed)
    w_q, w_k = [], []
    for block, key_dim in zip(blocks, dims, strict=True):
        query, key = block.weights(block_codes(rng, len(block.rows), key_dim))
        scaled = scaled_head(target, block.rows, query, key)
        if scaled is None:
            raise RealizationError(
                f"the drawn codes of {key_dim} dimensions for {len(block.rows)} relations score a "
                "pair outside the graph above a relation: use a larger key_dim, a smaller block or "
                "another seed"
            )
        w_q.append(scaled)
        w_k.append(key)
    layer = AttentionLayer(w_q=w_q, w_k=w_k, threshold=1.0, method="superposition", seed=seed)
    return _verified(layer, target)


def _verified(layer: AttentionLayer, target: RelationTarget) -> AttentionLayer:
    from constructions.recognition import recognition_report

    report = recognition_report(layer, target)
    if report.wrong is not None or report.undecided:
        found = f"the pair {report.wrong}" if report.wrong else f"{report.undecided} pairs"
        raise RealizationError(f"{found} of the {layer.method} layer not right, judged exactly")
    return layer


def embedding_metric(embeddings: FloatArray) -> FloatArray:
    r"""$M = (X^\top X/m + \rho I)^{-1}$, $\rho$ a thousandth of the mean eigenvalue."""
    d = embeddings.shape[1]
    gram = embeddings.T @ embeddings / len(embeddings)
    ridge = _RIDGE * float(np.trace(gram)) / d or 1.0  # 1: all items are zero
    return np.linalg.inv(gram + ridge * np.eye(d))


def _rates(target: RelationTarget, block: Block, start: int, stop: int) -> FloatArray:
    r"""$t^2/(4(F^2+bt))$ of the pairs of some rows, 0 where $t \le 0$; shape (stop - start, m)."""
    alpha = target.embeddings[start:stop] @ block.sources
    beta = target.embeddings @ block.targets
    mean = alpha @ beta.T
    norms = np.sqrt((alpha**2).sum(axis=1)[:, None] * (beta**2).sum(axis=1))
    spread = np.maximum((norms**2 + mean**2) / 2 - alpha**2 @ (beta**2).T, 0.0)
    width = np.minimum(np.sqrt(spread), (norms + np.abs(alpha) @ np.abs(beta).T) / 2)
    gap = np.maximum(1.0 - GAP - mean, 0.0)
    rounding = 1e-15 * (len(block.rows) + 8) * norms**2
    # where nothing is random, F = 0, the rate is as large as one likes
    return np.asarray(gap**2 / (4 * (spread + rounding + width * gap) + 1e-12))


def _rows(target: RelationTarget) -> Iterator[tuple[int, int]]:
    step = max(1, _ENTRIES // target.items)
    for start in range(0, target.items, step):
        yield start, min(target.items, start + step)
