r"""Edge colouring of a bipartite graph: a relation graph split into as few matchings as possible.

Sources on the left, targets on the right. A graph of largest degree $\Delta$ needs $\Delta$ colours
and $\Delta$ suffice (Kőnig). It is padded to a $\Delta$-regular multigraph; a regular graph of even
degree splits into two of half the degree along Euler circuits, and one of odd degree gives up a
perfect matching first. All graphs of one level are treated at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, maximum_bipartite_matching

from bounds.errors import ArgumentError

IntArray = NDArray[np.int64]


def edge_coloring(edges: ArrayLike) -> IntArray:
    r"""A colour in $[0, \Delta)$ for each relation, such that each colour is a matching.

    ``edges``: (m', 2) integers (source, target), at least one; $\Delta$ is the largest number of
    relations that share a source or share a target. No two relations of one colour share a source
    or a target. Deterministic, time $O(m'\log\Delta)$ and at most $\log_2\Delta$ matchings, of
    graphs that halve each time. Source: [attention-bounds, C4].

    >>> edge_coloring([[0, 1], [0, 2], [1, 1]]).tolist() in ([0, 1, 1], [1, 0, 0])
    True
    """
    pairs = np.asarray(edges)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or len(pairs) == 0 or pairs.dtype.kind not in "iu":
        raise ArgumentError("edges", (pairs.dtype, pairs.shape), "integers of shape (m' >= 1, 2)")
    left = np.unique(pairs[:, 0], return_inverse=True)[1].ravel().astype(np.int64)
    right = np.unique(pairs[:, 1], return_inverse=True)[1].ravel().astype(np.int64)
    degree = int(max(np.bincount(left).max(), np.bincount(right).max()))
    if degree == 1:
        return np.zeros(len(pairs), dtype=np.int64)
    left, right, size = _regular(left, right, degree)
    return _colors(left, right, size, degree)[: len(pairs)]


def matchings(edges: ArrayLike, limit: int | None = None) -> list[IntArray]:
    r"""Row numbers of ``edges`` by colour, each matching cut into parts of at most ``limit``.

    At most $\Delta + \lfloor m'/\mathtt{limit}\rfloor$ parts, of sizes that differ by at most 1
    within a colour.
    """
    if limit is not None and limit < 1:
        raise ArgumentError("limit", limit, "at least 1, or None")
    colors = edge_coloring(edges)
    order = np.argsort(colors, kind="stable")
    starts = np.flatnonzero(np.diff(colors[order], prepend=-1))
    parts: list[IntArray] = []
    for group in np.split(order, starts[1:]):
        pieces = 1 if limit is None else -(-len(group) // limit)
        parts.extend(np.array_split(group, pieces))
    return parts


def _regular(left: IntArray, right: IntArray, degree: int) -> tuple[IntArray, IntArray, int]:
    """The graph with vertices merged while their degrees sum to at most ``degree``, then padded.

    At most one of two consecutive groups has half the degree or less, so the padded graph has at
    most 2 m' + degree edges. The given edges come first; matchings of it are matchings of them.
    """
    left, right = _merged(left, degree)[left], _merged(right, degree)[right]
    size = 1 + int(max(left.max(), right.max()))
    missing = [
        np.repeat(np.arange(size), degree - np.bincount(side, minlength=size))
        for side in (left, right)
    ]
    return np.concatenate([left, missing[0]]), np.concatenate([right, missing[1]]), size


def _merged(side: IntArray, degree: int) -> IntArray:
    """The group of each vertex: consecutive vertices while their degrees sum to at most ``degree``."""
    groups, group, filled = [], 0, 0
    for count in np.bincount(side).tolist():
        if filled + count > degree:
            group, filled = group + 1, 0
        filled += count
        groups.append(group)
    return np.array(groups, dtype=np.int64)


def _colors(left: IntArray, right: IntArray, size: int, degree: int) -> IntArray:
    r"""Colours below ``degree`` of a regular bipartite multigraph, ``size`` vertices on each side.

    Odd degree: a perfect matching has the last colour. The rest splits into two graphs of degree
    d/2. The first is coloured in the same way; $2^r - d/2$ of its colours are given up, and their
    edges join the second, which then has degree $2^r \ge d/2$ and splits down to matchings.
    """
    if degree == 1:
        return np.zeros(len(left), dtype=np.int64)
    colors = np.full(len(left), degree - 1, dtype=np.int64)
    rest = np.arange(len(left))
    if degree % 2:
        rest = np.delete(rest, _perfect_matching(left, right, size))
    bit = _halves(left[rest], right[rest])
    first, second, half = rest[bit == 0], rest[bit == 1], degree // 2
    colors[first] = _colors(left[first], right[first], size, half)
    rounds = (half - 1).bit_length()
    kept = 2 * half - (1 << rounds)
    joined = np.concatenate([second, first[colors[first] >= kept]])
    part = np.zeros(len(joined), dtype=np.int64)
    for _ in range(rounds):
        part = 2 * part + _halves(part * size + left[joined], part * size + right[joined])
        order = _order(part)  # the edges of a part side by side: its circuits stay in the cache
        joined, part = joined[order], part[order]
    colors[joined] = kept + part
    return colors


def _halves(u: IntArray, v: IntArray) -> IntArray:
    r"""0 or 1 for each edge, so that half of the edges at every vertex are 1; degrees are even.

    Edges are paired at each left vertex (L) and at each right vertex (R). Along a circuit
    $e, L(e), RL(e), \dots$ the permutation $RL$ has two orbits, exchanged by L and by R: the bit
    tells them apart.
    """
    at_left, at_right = _paired(u), _paired(v)
    step = at_right[at_left]
    count = len(step)
    indices, starts = step.astype(np.int32), np.arange(count + 1, dtype=np.int32)
    graph = csr_array((np.ones(count, dtype=np.int8), indices, starts), (count, count))
    orbit = connected_components(graph, directed=True, connection="weak")[1]
    return (orbit > orbit[at_left]).astype(np.int64)


def _paired(vertex: IntArray) -> IntArray:
    """An involution without fixed points that pairs edges at the same vertex; degrees are even."""
    order = _order(vertex)
    partner = np.empty(len(vertex), dtype=np.int64)
    partner[order[0::2]], partner[order[1::2]] = order[1::2], order[0::2]
    return partner


def _order(keys: IntArray) -> IntArray:
    """The stable argsort of small nonnegative integers, by counting."""
    count = len(keys)
    ends = np.array([0, count], dtype=np.int32)
    places = np.arange(count, dtype=np.int32)
    row = csr_array((places, keys.astype(np.int32), ends), (1, int(keys.max()) + 1))
    return np.asarray(row.tocsc().data, dtype=np.int64)


def _perfect_matching(u: IntArray, v: IntArray, size: int) -> IntArray:
    """Edges that match every vertex of a regular bipartite multigraph (Hall: they exist)."""
    # parallel edges once: scipy's matching is not made for them
    keys, first = np.unique(u * size + v, return_index=True)
    starts = np.searchsorted(keys, np.arange(size + 1) * size).astype(np.int32)
    targets = (keys % size).astype(np.int32)
    graph = csr_array((np.ones(len(keys), dtype=np.int8), targets, starts), (size, size))
    mate = maximum_bipartite_matching(graph, perm_type="column").astype(np.int64)
    assert (mate >= 0).all()
    chosen: IntArray = first[np.searchsorted(keys, np.arange(size) * size + mate)]
    return chosen
