r"""Edge colouring of a bipartite graph: a relation graph split into as few matchings as possible.

Sources on the left, targets on the right. A graph of largest degree $\Delta$ needs $\Delta$ colours
and any $k \ge \Delta$ suffice (Kőnig). It is padded to a $k$-regular multigraph; a regular graph of
even degree splits into two of half the degree along Euler circuits, and one of odd degree gives up a
perfect matching first. All graphs of one level are treated at once. Classes are then made equal in
pairs, along alternating paths.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, maximum_bipartite_matching

from bounds.arithmetic import exact_integer
from bounds.errors import ArgumentError

IntArray = NDArray[np.int64]


def edge_coloring(edges: ArrayLike) -> IntArray:
    r"""A colour in $[0, \Delta)$ for each relation, such that each colour is a matching.

    ``edges``: (m', 2) integers (source, target), at least one; $\Delta$ is the largest number of
    relations that share a source or share a target. No two relations of one colour share a source
    or a target; a relation given twice gets two colours. Deterministic, time $O(m'\log\Delta)$ and
    at most $\log_2\Delta$ matchings, of graphs that halve each time.
    Source: [attention-bounds, C4].

    >>> edge_coloring([[0, 1], [0, 2], [1, 1]]).tolist() in ([0, 1, 1], [1, 0, 0])
    True
    """
    left, right, degree = _sides(edges)
    if degree == 1:
        return np.zeros(len(left), dtype=np.int64)
    padded_left, padded_right, size = _regular(left, right, degree)
    return _colors(padded_left, padded_right, size, degree)[: len(left)]


def equitable_coloring(edges: ArrayLike, colors: int) -> IntArray:
    r"""A colour in $[0, k)$ for each relation: matchings of $\lfloor m'/k\rfloor$ or one more.

    ``edges`` as for :func:`edge_coloring`; ``colors`` k: at least $\Delta$, and every such k will
    do. A round pairs the largest class with the smallest, the second largest with the second
    smallest, ..., and makes each pair equal up to 1; if sizes range over $R \ge 3$ at first, at most
    $2 + \lfloor\log_2(R-2)\rfloor$ rounds of time $O(m' + k)$ are needed.
    Source: [attention-bounds, C4], after [McDiarmid1972] and [DeWerra1971].

    >>> np.bincount(equitable_coloring([[0, 0], [0, 1], [1, 1], [2, 1], [3, 2]], 3)).tolist()
    [2, 2, 1]
    """
    left, right, degree = _sides(edges)
    colors = exact_integer(colors, "colors", 1)
    if colors < degree:
        raise ArgumentError("colors", colors, f"at least {degree}, the largest degree")
    return _equitable(left, right, degree, colors)


def matchings(edges: ArrayLike, limit: int | None = None) -> list[IntArray]:
    r"""Row numbers of ``edges`` in the fewest matchings of at most ``limit`` relations each.

    Exactly $\max(\Delta, \lceil m'/\mathtt{limit}\rceil)$ of them, $\Delta$ without a limit, of
    sizes that differ by at most 1. Source: [attention-bounds, C4].
    """
    left, right, degree = _sides(edges)
    colors = degree
    if limit is not None:
        colors = max(degree, -(-len(left) // exact_integer(limit, "limit", 1)))
    found = _equitable(left, right, degree, colors)
    ends = np.cumsum(np.bincount(found, minlength=colors))
    return np.split(np.argsort(found, kind="stable"), ends[:-1])


def _sides(edges: ArrayLike) -> tuple[IntArray, IntArray, int]:
    """Sources and targets, numbered from 0 without gaps, and the largest degree."""
    pairs = np.asarray(edges)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or len(pairs) == 0 or pairs.dtype.kind not in "iu":
        raise ArgumentError("edges", (pairs.dtype, pairs.shape), "integers of shape (m' >= 1, 2)")
    left, right = (
        np.unique(pairs[:, side], return_inverse=True)[1].ravel().astype(np.int64)
        for side in (0, 1)
    )
    return left, right, int(max(np.bincount(left).max(), np.bincount(right).max()))


def _equitable(left: IntArray, right: IntArray, degree: int, colors: int) -> IntArray:
    """:func:`equitable_coloring` of numbered sides; the larger classes come first."""
    count = len(left)
    if colors >= count:  # a colour of its own for each
        return np.arange(count)
    if degree == 1:  # one matching, and so is every part of it
        whole, more = divmod(count, colors)
        return np.repeat(np.arange(colors), whole + (np.arange(colors) < more))
    left, right, size = _regular(left, right, colors)
    found = _colors(left, right, size, colors)[:count]
    sizes = np.bincount(found, minlength=colors)
    while sizes.max() - sizes.min() > 1:
        found = _equalized(left[:count], right[:count], size, found, sizes)
        sizes = np.bincount(found, minlength=colors)
    number = np.empty(colors, dtype=np.int64)
    number[np.argsort(-sizes, kind="stable")] = np.arange(colors)
    return number[found]


def _equalized(
    left: IntArray, right: IntArray, size: int, colors: IntArray, sizes: IntArray
) -> IntArray:
    """The colours after one round: classes paired largest with smallest, each pair made equal.

    In a pair every vertex has at most one relation of each class, so the components are
    alternating paths and circuits. Those with one relation more of the larger class are exchanged,
    as many as there are relations to move: there are at least as many as the sizes differ.
    """
    order = np.argsort(sizes, kind="stable")
    half = len(sizes) // 2
    small, large = order[:half], order[::-1][:half]
    moves = (sizes[large] - sizes[small]) // 2
    small, large, moves = small[moves > 0], large[moves > 0], moves[moves > 0]
    count = len(moves)
    pair = np.full(len(sizes), -1, dtype=np.int64)
    pair[large] = pair[small] = np.arange(count)
    rows = np.flatnonzero(pair[colors] >= 0)
    rows = rows[_order(pair[colors[rows]])]  # the relations of a pair side by side
    of = pair[colors[rows]]
    larger = colors[rows] == large[of]
    upper, lower = np.flatnonzero(larger), np.flatnonzero(~larger)
    links = np.empty((len(lower), 2), dtype=np.int32)
    for side, vertex in enumerate((left, right)):
        place = of * size + vertex[rows]
        at = np.full(count * size, -1, dtype=np.int32)
        at[place[upper]] = upper
        met = at[place[lower]]
        links[:, side] = np.where(met >= 0, met, lower)
    starts = np.concatenate([[0], 2 * np.cumsum(~larger)]).astype(np.int32)
    graph = csr_array(
        (np.ones(links.size, dtype=np.int8), links.ravel(), starts), (len(rows), len(rows))
    )
    components, label = connected_components(graph, directed=True, connection="weak")
    excess = np.bincount(label[upper], minlength=components) - np.bincount(
        label[lower], minlength=components
    )
    home = np.empty(components, dtype=np.int64)
    home[label] = of
    paths = np.flatnonzero(excess == 1)
    paths = paths[_order(home[paths])]
    number = np.bincount(home[paths], minlength=count)
    rank = np.arange(len(paths)) - np.repeat(np.cumsum(number) - number, number)
    exchanged = np.zeros(components, dtype=bool)
    exchanged[paths[rank < moves[home[paths]]]] = True
    turned = exchanged[label]
    result = colors.copy()
    result[rows[turned]] = np.where(larger, small[of], large[of])[turned]
    return result


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
