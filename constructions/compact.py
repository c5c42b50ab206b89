"""Compact relation layers: fitted weights, judged on all pairs (result C5).

Every head is fitted (squared hinge, L-BFGS) to the relations it has to hold, against all pairs
that are no relation; relations held by other heads are free.  Heads are filled greedily: a head
takes the missing relations that are nearest to its threshold, and a fit is kept only if the head
then holds no fewer relations than before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from bounds.errors import ArgumentError
from constructions.attention import BoolArray, FloatArray
from constructions.errors import RealizationError

IntArray = NDArray[np.int64]
Progress = Callable[[int, int], None]

_MARGIN = 0.01  # fitted: relations score >= 1 + _MARGIN, non-relations <= 1 - _MARGIN
_HELD = 1.0025  # accepted: a relation scores at least this multiple of every non-relation
_BUMP = 0.1  # size of the codes of relations offered to a head
_WORK = 2e9  # work after which no further head is dissolved: pairs scored, and
_CALL = 50_000  # this much for each evaluation of the loss
_RESTART = 4e8  # work after which a fit that is stuck does not start again
_BLOCK = 1 << 16  # pairs scored at once


@dataclass(frozen=True)
class CompactFit:
    """Heads whose recognised pairs are exactly the given relations.

    Pair (i, j) is recognised when max_k <x_i w_q[k] + b_q[k], x_j w_k[k] + b_k[k]> > threshold.
    w_q[k], w_k[k]: (d_model, d_k); b_q[k], b_k[k]: (d_k,), or None without biases.
    margin: least distance of a pair's largest score from the threshold, found in float64.
    """

    w_q: list[FloatArray]
    w_k: list[FloatArray]
    b_q: list[FloatArray] | None
    b_k: list[FloatArray] | None
    threshold: float
    margin: float

    @property
    def total_key_dim(self) -> int:
        """D_K, the sum of the key dimensions."""
        return sum(w.shape[1] for w in self.w_q)


@dataclass
class _Graph:
    """Embeddings as fitted (m x n), relations sorted by source, and a work buffer."""

    x: FloatArray
    source: IntArray
    target: IntArray
    x32: NDArray[np.float32] = field(init=False)
    buffer: NDArray[np.float32] = field(init=False)
    scored: int = 0

    def __post_init__(self) -> None:
        self.x32 = self.x.astype(np.float32)
        m = len(self.x)
        self.buffer = np.empty((min(m, max(16, _BLOCK // m)), m), dtype=np.float32)

    def blocks(self) -> list[tuple[int, int, int, int]]:
        """Row blocks (first row, end row, first relation, end relation)."""
        m, step = len(self.x), len(self.buffer)
        cuts = [(a, min(m, a + step)) for a in range(0, m, step)]
        ends = np.searchsorted(self.source, np.array(cuts)).tolist()
        return [(a, b, int(e[0]), int(e[1])) for (a, b), e in zip(cuts, ends, strict=True)]

    def loss(self, theta: FloatArray, block: IntArray) -> tuple[float, FloatArray]:
        """Squared hinge of one head over all pairs, in units of _MARGIN^2, and its gradient."""
        q, k = theta.astype(np.float32).reshape(2, self.x.shape[1], -1)
        a, b = self.x32 @ q, self.x32 @ k
        i, j = self.source[block], self.target[block]
        v = np.maximum(0, np.float32(1 + _MARGIN) - np.einsum("ek,ek->e", a[i], b[j]))
        total = float(v @ v)
        self.scored += len(a) ** 2 + _CALL
        grad_a, grad_b = np.empty_like(a), np.zeros_like(b)
        for lo, hi, first, end in self.blocks():
            s = self.buffer[: hi - lo]
            np.matmul(a[lo:hi], b.T, out=s)
            s -= np.float32(1 - _MARGIN)
            s[self.source[first:end] - lo, self.target[first:end]] = 0
            np.maximum(s, 0, out=s)
            total += float(np.vdot(s, s))
            grad_a[lo:hi] = s @ b
            grad_b += s.T @ a[lo:hi]
        np.add.at(grad_a, i, -v[:, None] * b[j])
        np.add.at(grad_b, j, -v[:, None] * a[i])
        gradient = np.stack([self.x32.T @ grad_a, self.x32.T @ grad_b]).astype(np.float64)
        return total / _MARGIN**2, gradient.ravel() * (2 / _MARGIN**2)

    def ratios(self, theta: FloatArray) -> tuple[FloatArray, float]:
        """Scores of the relations over the largest score of a non-relation, and that score."""
        q, k = theta.reshape(2, self.x.shape[1], -1)
        a, b = self.x @ q, self.x @ k
        scores = np.empty(len(self.source))
        worst = -np.inf
        for lo, hi, first, end in self.blocks():
            s = a[lo:hi] @ b.T
            rows, columns = self.source[first:end] - lo, self.target[first:end]
            scores[first:end] = s[rows, columns]
            s[rows, columns] = -np.inf
            worst = max(worst, float(s.max()))
        base = max(worst, 1e-2 * float(np.abs(scores).max()), 1e-12)
        return scores / base, base

    def fit(self, theta: FloatArray, block: IntArray) -> tuple[FloatArray, FloatArray]:
        """Fit a head to a block from the weights theta: new weights, ratios of all relations."""
        solve: Any = minimize  # scipy's stubs reject this valid call
        found = solve(
            self.loss,
            theta,
            args=(block,),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 200, "maxfun": 400, "maxcor": 20, "ftol": 1e-9, "gtol": 1e-6},
        )
        fitted = np.asarray(found.x, dtype=np.float64)
        return fitted, self.ratios(fitted)[0]


class _Packing:
    """Heads being filled: their weights, and the ratio of every relation in every head."""

    def __init__(self, graph: _Graph, key_dim: int, rng: np.random.Generator) -> None:
        self.graph, self.key_dim, self.rng = graph, key_dim, rng
        count = len(graph.source)
        self.theta: list[FloatArray] = []
        self.ratio: FloatArray = np.empty((0, count))
        self.refused: FloatArray = np.empty((0, count))
        self.batch: list[int] = []

    def missing(self) -> IntArray:
        """Relations that no head holds."""
        return np.flatnonzero(~(self.ratio > _HELD).any(axis=0))

    def add_head(self, block: IntArray) -> None:
        """Add a head fitted to a block from random sign codes."""
        g = self.graph
        theta, ratio = g.fit(self._codes(block, 1.2), block)
        self.theta.append(theta)
        self.ratio = np.vstack([self.ratio, ratio])
        self.refused = np.vstack([self.refused, np.zeros_like(ratio)])
        self.batch.append(max(1, len(block) // 4))

    def _codes(self, block: IntArray, size: float) -> FloatArray:
        """W_Q = sum x_s c_e^T, W_K = sum x_t c_e^T, random sign codes c_e (result C4c)."""
        g, k = self.graph, self.key_dim
        codes = self.rng.choice([-size, size], size=(len(block), k)) / sqrt(k)
        return np.stack([g.x[g.source[block]].T @ codes, g.x[g.target[block]].T @ codes]).ravel()

    def remove_head(self, index: int) -> None:
        """Remove a head."""
        del self.theta[index], self.batch[index]
        self.ratio = np.delete(self.ratio, index, axis=0)
        self.refused = np.delete(self.refused, index, axis=0)

    def needed(self, index: int) -> BoolArray:
        """Relations that only this head holds."""
        held = self.ratio > _HELD
        return np.asarray(held[index] & (held.sum(axis=0) == 1))

    def insert(self, missing: IntArray) -> None:
        """Offer a batch of missing relations to one head; keep the fit if it holds no fewer."""
        rng, heads = self.rng, len(self.theta)
        first = int(rng.choice(missing))
        wish = self.ratio[:, first] - self.refused[:, first] + 0.15 * rng.normal(size=heads)
        k = int(wish.argmax())
        near = self.ratio[k, missing] - self.refused[k, missing]
        near += 0.15 * rng.normal(size=len(missing))
        near[missing == first] = np.inf
        offer = missing[np.argsort(-near)[: self.batch[k]]]
        need = self.needed(k)
        # The codes leave the saddle where queries and keys of an item are both zero.
        theta, ratio = self.graph.fit(
            self.theta[k] + self._codes(offer, _BUMP), np.concatenate([np.flatnonzero(need), offer])
        )
        held = ratio > _HELD
        elsewhere = (np.delete(self.ratio, k, axis=0) > _HELD).any(axis=0)
        kept = int((held & ~elsewhere).sum())
        if kept >= need.sum():
            self.theta[k], self.ratio[k] = theta, ratio
        if kept < need.sum() + len(offer):
            self.batch[k] = max(1, self.batch[k] // 2)
        self.refused[k, offer] = np.where(held[offer], 0.0, self.refused[k, offer] + 0.3)

    def fill(self, patience: int, progress: Progress | None, work: float = np.inf) -> bool:
        """Insert until all is held, `patience` steps bring no gain, or `work` is done."""
        best, idle = len(self.missing()), 0
        while best and idle < patience and self.graph.scored < work:
            self.insert(self.missing())
            left = len(self.missing())
            best, idle = (left, 0) if left < best else (best, idle + 1)
            if progress is not None:
                progress(len(self.graph.source) - left, len(self.graph.source))
        return best == 0

    def start(self, heads: int) -> None:
        """Add heads, each fitted to half of its share of the missing relations."""
        todo = self.rng.permutation(self.missing())
        share = max(1, len(todo) // (2 * heads))
        for index in range(heads):
            part = todo[index * share : (index + 1) * share]
            self.add_head(part if len(part) else todo[:1])

    def shrink(self, patience: int, progress: Progress | None) -> None:
        """Dissolve heads into the others as long as every relation stays held."""
        while len(self.theta) > 1 and self.graph.scored < _WORK:
            saved = (list(self.theta), self.ratio.copy(), self.refused.copy(), list(self.batch))
            loads = [int(self.needed(k).sum()) for k in range(len(self.theta))]
            self.remove_head(int(np.argmin(loads)))
            self.refused[:] = 0
            if not self.fill(patience, progress, _WORK):
                self.theta, self.ratio, self.refused, self.batch = saved
                return


def _estimate(graph: _Graph, relations: int) -> float:
    """Total key dimension that a random graph needs, from our measurements (no theorem)."""
    m, n = graph.x.shape
    # 1.35 ln(m) weights per relation, n weights per query or key dimension.
    return float(1.35 * log(max(m, 3)) * relations / (2 * n))


def _grow(
    graph: _Graph, key_dim: int, heads: int | None, seed: int, progress: Progress | None
) -> _Packing:
    """Fill `heads` heads; for None, add heads until all relations are held, then remove some."""
    rng = np.random.default_rng(seed)
    packing = _Packing(graph, key_dim, rng)
    total = len(graph.source)
    if heads is not None:
        packing.start(heads)
        # a small fit that is stuck starts again: another beginning often gets through
        while not packing.fill(8 * heads + 60, progress) and graph.scored < _RESTART:
            packing = _Packing(graph, key_dim, rng)
            packing.start(heads)
        return packing
    spread = min(len(np.unique(graph.source)), len(np.unique(graph.target)))
    limit = max(1, total // key_dim)
    packing.start(min(limit, max(1, round(_estimate(graph, min(total, 3 * spread)) / key_dim))))
    while not packing.fill(2 * len(packing.theta) + 10, progress):
        left = packing.missing()
        extra = max(1, round(_estimate(graph, len(left)) / (2 * key_dim)))
        extra = min(extra, limit - len(packing.theta))
        before = len(left)
        if extra < 1:
            return packing
        packing.start(extra)
        if len(packing.missing()) >= before:
            return packing
    packing.shrink(2 * len(packing.theta) + 10, progress)
    return packing


def _reject_duplicates(x: FloatArray, edges: IntArray) -> None:
    """Equal embeddings with different neighbours cannot be told apart by any layer."""
    _, first, group = np.unique(x, axis=0, return_index=True, return_inverse=True)
    group = group.ravel()
    if len(first) == len(x):
        return
    size = np.bincount(group)
    pairs, count = np.unique(group[edges], axis=0, return_counts=True)
    bad = np.flatnonzero(count != size[pairs[:, 0]] * size[pairs[:, 1]])
    if len(bad):
        s, t = (int(v) for v in first[pairs[bad[0]]])
        raise RealizationError(
            f"embeddings has equal rows with different relations (equal to rows {s} and {t}): "
            "no layer can realise them; make the rows distinct or the relations agree"
        )


def fit_compact(
    embeddings: FloatArray,
    edges: IntArray,
    *,
    key_dim: int | None = None,
    heads: int | None = None,
    bias: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> CompactFit:
    """Fit heads whose recognised pairs, among all m^2, are exactly the edges (result C5).

    embeddings: (m, d_model), rows x_i; edges: (n, 2), rows (source, target).
    With key_dim and heads both given, that shape is fitted or the call fails.  With key_dim alone
    (or neither) heads are added until all relations are held, and then dissolved where the others
    can take their relations; with neither, key_dim is doubled up to twice when that fails; with
    heads alone, key_dim grows.  Growth stops where D_K would exceed
    the number of relations.  progress(held, relations) is called after every fit.  The result
    depends on seed alone (for one numerical library) and no pair of it is wrong in float64.

    Raises ArgumentError for wrong arguments and RealizationError when no layer is found (which
    proves nothing about its existence, except for equal rows with different relations).
    """
    x0 = np.asarray(embeddings, dtype=np.float64)
    if x0.ndim != 2 or 0 in x0.shape or not np.isfinite(x0).all() or not x0.any():
        raise ArgumentError("embeddings", x0, "a finite (m, d_model) array that is not zero")
    pairs = np.unique(np.asarray(edges, dtype=np.int64).reshape(-1, 2), axis=0)
    if len(pairs) == 0 or pairs.min() < 0 or pairs.max() >= len(x0):
        raise ArgumentError("edges", edges, f"nonempty pairs of items in 0..{len(x0) - 1}")
    for name, value in (("key_dim", key_dim), ("heads", heads)):
        if value is not None and value < 1:
            raise ArgumentError(name, value, "at least 1, or None")
    _reject_duplicates(x0, pairs)
    nonzero = np.any(x0 != 0, axis=1)
    zero = np.flatnonzero(~(nonzero[pairs[:, 0]] & nonzero[pairs[:, 1]]))
    if len(zero) and not bias:
        raise RealizationError(
            f"relation {tuple(pairs[zero[0]].tolist())} has an item with embedding 0, whose scores "
            "are 0 without biases; use bias=True"
        )
    largest = float(np.abs(x0).max())  # divided out first, so that no square overflows or vanishes
    scale = largest * float(np.sqrt(np.mean(np.sum((x0 / largest) ** 2, axis=1))))
    if not 1e-300 < scale < 1e300:
        raise ArgumentError("embeddings", largest, "of a size between 1e-300 and 1e300")
    basis = np.linalg.qr(x0.T)[0] if x0.shape[1] > len(x0) else np.eye(x0.shape[1])
    x = x0 @ basis / scale
    if bias:
        x = np.hstack([x, np.ones((len(x), 1))])
    graph = _Graph(x, pairs[:, 0].copy(), pairs[:, 1].copy())
    if heads is not None and key_dim is None:
        k = max(1, ceil(_estimate(graph, len(pairs)) / (2 * heads)))
        packing = _grow(graph, k, heads, seed, progress)
        while len(packing.missing()) and (k + 1) * heads <= max(len(pairs), heads):
            k = min(k + max(1, k // 4), max(len(pairs) // heads, 1))
            packing = _grow(graph, k, heads, seed, progress)
    else:
        k = key_dim if key_dim is not None else _default_key_dim(graph)
        packing = _grow(graph, k, heads, seed, progress)
        widest = min(graph.x.shape[1], len(pairs)) if key_dim is None else 0
        for _ in range(2):  # heads too narrow to be filled further
            if packing.missing().size and 2 * k <= widest:
                k *= 2
                packing = _grow(graph, k, heads, seed, progress)
    left = len(packing.missing())
    if left:
        raise RealizationError(
            f"{len(pairs) - left} of {len(pairs)} relations held by {len(packing.theta)} heads of "
            f"key_dim={packing.key_dim}; try a larger key_dim or heads, bias=True or another seed"
        )
    return _finish(packing, x0, pairs, basis / scale, bias)


def _default_key_dim(graph: _Graph) -> int:
    """Key dimension of a head: about sqrt(d_model), less where all relations need less."""
    spread = min(len(np.unique(graph.source)), len(np.unique(graph.target)))
    return max(1, min(round(sqrt(graph.x.shape[1])), ceil(_estimate(graph, 3 * spread))))


def _finish(
    packing: _Packing, x0: FloatArray, pairs: IntArray, back: FloatArray, bias: bool
) -> CompactFit:
    """Scale every head to threshold 1, undo the normalisation, check all pairs in float64."""
    w_q, w_k, b_q, b_k = [], [], [], []
    n = back.shape[1]
    for theta in packing.theta:
        ratio, base = packing.graph.ratios(theta)
        held = ratio[ratio > _HELD]
        # Non-relations score <= base, held relations >= base * min: 1 goes to the middle.
        level = base * (1 + float(held.min())) / 2 if len(held) else 2 * base
        q, k = theta.reshape(2, packing.graph.x.shape[1], -1) / sqrt(level)
        w_q.append(back @ q[:n])
        w_k.append(back @ k[:n])
        b_q.append(q[n:].sum(axis=0))
        b_k.append(k[n:].sum(axis=0))
    m, margin = len(x0), np.inf
    for i in range(m):
        best = np.full(m, -np.inf)
        for q, k, bq, bk in zip(w_q, w_k, b_q, b_k, strict=True):
            best = np.maximum(best, (x0 @ k + bk) @ (x0[i] @ q + bq))
        wanted = np.zeros(m, dtype=bool)
        wanted[pairs[pairs[:, 0] == i, 1]] = True
        margin = min(margin, float(np.where(wanted, best - 1, 1 - best).min()))
    if not margin > 1e-6:
        raise RealizationError(f"the fitted scores come within {margin} of the threshold")
    return CompactFit(w_q, w_k, b_q if bias else None, b_k if bias else None, 1.0, margin)
