r"""Part C: relation graphs on embedded items, and layers whose heads recognise them.

A layer recognises the pair $(i, j)$ when $\max_h S_h(i,j) > \tau$. The least that any layer pays is
:func:`bounds.key_dimension_bits`; the pages are docs/C1-key-dimension.md and
docs/C5-compact-layers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bounds.arithmetic import exact_integer
from bounds.errors import ArgumentError
from constructions.attention import AttentionLayer, BoolArray, FloatArray, checked_array
from constructions.compact import fit_compact
from constructions.errors import RealizationError

IntArray = NDArray[np.int64]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class RelationTarget:
    """A directed graph on embedded items: what a relation layer has to recognise.

    ``embeddings``: (m, d_model) float64, one row an item. ``edges``: (m', 2) int64, distinct
    pairs (source, target) in lexicographic order. ``names``: one text an item, or ``None``.
    Whatever is given is checked, copied and sorted; the arrays are read-only.
    """

    embeddings: FloatArray
    edges: IntArray
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        tokens = checked_array(self.embeddings, "embeddings", 2).copy()
        if 0 in tokens.shape:
            raise ArgumentError(
                "embeddings", tokens.shape, "of shape (m, d_model), both at least 1"
            )
        tokens.setflags(write=False)
        object.__setattr__(self, "embeddings", tokens)
        object.__setattr__(self, "edges", checked_edges(self.edges, len(tokens)))
        if self.names is not None:
            names = tuple(self.names)
            if isinstance(self.names, str) or not all(isinstance(name, str) for name in names):
                raise ArgumentError("names", self.names, "a sequence of texts")
            if len(names) != len(tokens):
                raise ArgumentError(
                    "names", f"{len(names)} names", f"one for each of {len(tokens)} items"
                )
            object.__setattr__(self, "names", names)

    @property
    def items(self) -> int:
        """The number m of items."""
        return len(self.embeddings)

    @property
    def relations(self) -> int:
        """The number m' of edges."""
        return len(self.edges)

    def rows(self, start: int, stop: int) -> BoolArray:
        """Rows ``start`` to ``stop`` of the adjacency matrix, shape (stop - start, m)."""
        block = np.zeros((stop - start, self.items), dtype=bool)
        low, high = np.searchsorted(self.edges[:, 0], [start, stop])
        block[self.edges[low:high, 0] - start, self.edges[low:high, 1]] = True
        return block

    def name(self, item: int) -> str:
        """The item's name, or its index."""
        return repr(self.names[item]) if self.names is not None else f"item {item}"

    def twins_that_differ(self) -> tuple[int, int] | None:
        """Two items with equal embeddings but different neighbours: no layer can realise those."""
        _, group = np.unique(self.embeddings, axis=0, return_inverse=True)
        order = np.argsort(group.ravel(), kind="stable")
        group = group.ravel()
        sources = _neighbours(self.edges, self.items)
        targets = _neighbours(self.edges[:, ::-1], self.items)
        for one, two in pairwise(order.tolist()):
            if group[one] == group[two] and (
                sources[one] != sources[two] or targets[one] != targets[two]
            ):
                return one, two
        return None


def relation_target(
    embeddings: ArrayLike, edges: ArrayLike, names: Sequence[str] | None = None
) -> RelationTarget:
    """The target of a relation graph from anything array-like.

    ``embeddings``: (m, d_model), real and finite; ``edges``: (m', 2) integers in [0, m), distinct,
    at least one; ``names``: m texts. Errors name the argument and the first offending entry.

    >>> relation_target([[1.0, 0.0], [0.0, 1.0]], [[0, 1], [1, 0]]).relations
    2
    """
    return RelationTarget(embeddings, edges, names)  # type: ignore[arg-type]


def checked_edges(edges: ArrayLike, items: int) -> IntArray:
    """``edges`` as sorted distinct (m', 2) int64 pairs within [0, items), m' >= 1."""
    try:
        pairs = np.asarray(edges)
    except ValueError as failure:
        raise ArgumentError("edges", edges, f"pairs of integers ({failure})") from None
    if pairs.ndim != 2 or pairs.shape[1] != 2 or len(pairs) == 0:
        raise ArgumentError("edges", pairs.shape, "of shape (m', 2) with at least one relation")
    if pairs.dtype.kind not in "iu":
        raise ArgumentError("edges", pairs.dtype, "of an integer dtype")
    outside = np.flatnonzero(((pairs < 0) | (pairs >= items)).any(axis=1))
    if outside.size:
        row = int(outside[0])
        raise ArgumentError(f"edges[{row}]", pairs[row].tolist(), f"two items in [0, {items})")
    pairs = pairs.astype(np.int64)
    keys = pairs[:, 0] * items + pairs[:, 1]  # items^2 of them; embedded items are far below 2^31
    order = np.argsort(keys, kind="stable")
    ordered = pairs[order]
    repeated = np.flatnonzero(np.diff(keys[order]) == 0)
    if repeated.size:
        row = int(order[repeated[0] + 1])
        raise ArgumentError(f"edges[{row}]", pairs[row].tolist(), "given once: it is a duplicate")
    ordered.setflags(write=False)
    return ordered


def relation_layer(
    embeddings: ArrayLike,
    edges: ArrayLike,
    *,
    method: Literal["rank-one", "compact"] = "compact",
    key_dim: int | None = None,
    heads: int | None = None,
    bias: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> AttentionLayer:
    r"""A layer that recognises exactly ``edges`` among all $m^2$ pairs, checked before it is returned.

    ``method="rank-one"`` (C4a): one head of $d_k = 1$ a relation, with biases; works for
    distinct unit embeddings. ``method="compact"`` (C5): each head fitted to a block of relations
    against all pairs, grown until every pair is right; far smaller, without a guarantee.
    ``key_dim``: $d_k$ of each head, ``heads``: how many; with both given exactly that is tried, a
    missing one is chosen and grown. ``bias``: whether compact heads have biases. ``seed`` fixes
    the result. ``progress(done, of)`` is called now and then.

    Raises ``ArgumentError``, and ``RealizationError`` when no such layer was found (naming two
    items with equal embeddings and different relations, where those are the reason): unverified
    weights are never returned.
    Source: [attention-bounds, C4] and [attention-bounds, C5]; setting of [Adler2025].

    >>> layer = relation_layer(np.eye(4), [[0, 1], [1, 2], [2, 3], [3, 0]], key_dim=2, heads=1)
    >>> layer.recognize(np.eye(4)).astype(int)
    array([[0, 1, 0, 0],
           [0, 0, 1, 0],
           [0, 0, 0, 1],
           [1, 0, 0, 0]])
    """
    target = relation_target(embeddings, edges)
    seed = exact_integer(seed, "seed", 0)
    if key_dim is not None:
        key_dim = exact_integer(key_dim, "key_dim", 1)
    if heads is not None:
        heads = exact_integer(heads, "heads", 1)
    twins = target.twins_that_differ()
    if twins is not None:
        one, two = twins
        raise RealizationError(
            f"items {one} and {two} have equal embeddings but different relations: no layer can "
            "tell them apart, so the graph cannot be realised"
        )
    if method == "rank-one":
        if key_dim not in (None, 1) or heads not in (None, target.relations):
            raise ArgumentError(
                "key_dim, heads",
                (key_dim, heads),
                f"(1, {target.relations}) or absent for rank-one",
            )
        return _rank_one_layer(target, seed)
    if method != "compact":
        raise ArgumentError("method", method, "'rank-one' or 'compact'")
    fit = fit_compact(
        target.embeddings,
        target.edges,
        key_dim=key_dim,
        heads=heads,
        bias=bias,
        seed=seed,
        progress=progress,
    )
    layer = AttentionLayer(
        w_q=fit.w_q,
        w_k=fit.w_k,
        b_q=fit.b_q or (),
        b_k=fit.b_k or (),
        threshold=fit.threshold,
        method="compact",
        seed=seed,
    )
    _require_exact(layer, target)
    return layer


def _rank_one_layer(target: RelationTarget, seed: int) -> AttentionLayer:
    r"""C4(a): head e = (s, t) scores $\alpha_i\beta_j$ with $\alpha, \beta \ge 0$.

    $\alpha_i = \langle x_i, x_s\rangle - \min_l\langle x_l, x_s\rangle$, divided by its value at s;
    $\beta$ likewise at t. For distinct unit embeddings both are at most 1 and 1 only at s and t,
    so the score is 1 at (s, t) and less elsewhere, antipodal points included.
    """
    gram = target.embeddings @ target.embeddings.T
    shift = gram.min(axis=0)
    height = np.diag(gram) - shift  # alpha_s before it is divided
    flat = np.flatnonzero(height <= 0)
    used = np.unique(target.edges)
    bad = used[np.isin(used, flat)]
    if bad.size and target.items > 1:
        raise RealizationError(
            f"item {int(bad[0])} does not stand out in its own direction (is it zero, or inside the "
            "hull of the others?): method 'rank-one' needs distinct embeddings of equal norm"
        )
    if target.items == 1:
        shift, height = shift - 1.0, height + 1.0  # alpha = beta = 1 at the only item
    w_q, w_k, b_q, b_k = [], [], [], []
    for s, t in target.edges:
        w_q.append(target.embeddings[s][:, None] / height[s])
        w_k.append(target.embeddings[t][:, None] / height[t])
        b_q.append(np.array([-shift[s] / height[s]]))
        b_k.append(np.array([-shift[t] / height[t]]))
    runner_up = _largest_other(target, gram, shift, height)
    layer = AttentionLayer(
        w_q=w_q, w_k=w_k, b_q=b_q, b_k=b_k,
        threshold=(1.0 + runner_up) / 2, method="rank-one", seed=seed,
    )  # fmt: skip
    _require_exact(layer, target)
    return layer


def _largest_other(
    target: RelationTarget, gram: FloatArray, shift: FloatArray, height: FloatArray
) -> float:
    """The largest score that some head gives to a pair outside the graph."""
    largest = 0.0
    adjacency = target.rows(0, target.items)
    for s, t in target.edges:
        alpha = (gram[:, s] - shift[s]) / height[s]
        beta = (gram[:, t] - shift[t]) / height[t]
        others = np.where(adjacency, -np.inf, np.outer(alpha, beta))
        largest = max(largest, float(others.max()))
    return largest


def _require_exact(layer: AttentionLayer, target: RelationTarget) -> None:
    from constructions.recognition import recognition_report

    report = recognition_report(layer, target)
    if report.wrong is not None:
        i, j = report.wrong
        should = (
            "is a relation but is not recognised"
            if report.missing
            else "is recognised but is no relation"
        )
        raise RealizationError(
            f"the pair ({target.name(i)}, {target.name(j)}) {should} by the {layer.method} layer of total key "
            f"dimension {layer.key_dimension}; try a larger key_dim, more heads, or another method"
        )
    if report.undecided:
        raise RealizationError(
            f"{report.undecided} pairs score so close to the threshold that rounding hides the verdict"
        )


def _neighbours(edges: IntArray, items: int) -> list[frozenset[int]]:
    found: list[set[int]] = [set() for _ in range(items)]
    for source, target in edges.tolist():
        found[source].add(target)
    return [frozenset(group) for group in found]
