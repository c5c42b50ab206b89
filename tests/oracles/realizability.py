"""Which graphs attention heads realise, exactly: integers alone, and no code of the package.

Items have integer embeddings, the rows of ``items``. A graph on m items is a bit mask: bit
i m + j is the pair (i, j). A head with a threshold realises the pairs with score > tau.

*Full heads* (d_k >= d_model) have scores linear in M = W_Q W_K^T: their graphs are the regions of
the hyperplanes <M, x_i (x) x_j> = tau in the space of (M, tau). *Heads of one dimension* on items
of rank 2 are swept: with queries q_i = x_i . (1, a) the cells of the lines q_i <x_j, v> = tau are
listed for one a between any two neighbouring values at which their combinatorial type can change.

A realised graph is realised strictly, and with tau != 0: raise tau a little. So tau is 1 or -1
after scaling, and the heads of a layer, which share tau, share its sign: graphs come in two lists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import reduce
from itertools import combinations, product
from math import isqrt

import numpy as np

from oracles.arrangements import Vector, primitive, regions

Items = Sequence[Sequence[int]]
Graphs = dict[int, frozenset[int]]
"""The realised graphs by the sign of tau, 1 or -1."""


def score_forms(items: Items) -> list[Vector]:
    """The m^2 forms <M, x_i (x) x_j> - tau, tau the last unknown."""
    return [(*(a * b for a, b in product(x, y)), -1) for x, y in product(items, repeat=2)]


def full_head_witnesses(items: Items) -> dict[tuple[int, int], Vector]:
    """Every graph that one full head realises, with weights: (tau's sign, graph) -> (M, tau).

    Graphs that are missing are proved out of reach.
    """
    forms = score_forms(items)
    threshold = (*(0,) * (len(forms[0]) - 1), 1)
    found = {}
    for mask, point in regions([*forms, threshold], len(threshold)).items():
        graph = mask & ~(1 << len(forms))
        found[1 if mask >> len(forms) else -1, graph] = point
    return found


def full_head_graphs(items: Items) -> Graphs:
    """The graphs of one full head, by the sign of tau."""
    return _by_sign(full_head_witnesses(items))


def one_dimensional_graphs(items: Items) -> Graphs:
    """The graphs of one head with d_k = 1 on items of rank 2 in the plane, by the sign of tau."""
    if len(items[0]) != 2 or all(x[0] * y[1] == x[1] * y[0] for x, y in product(items, repeat=2)):
        raise ValueError("items of the plane, not all on a line through 0")
    tensors = np.array([[x[0] * y[0], x[0] * y[1], x[1] * y[0], x[1] * y[1]]
                        for x, y in product(items, repeat=2)])  # fmt: skip
    lines, where = np.unique(tensors, axis=0, return_inverse=True)
    pairs = np.array([1 << k for k in range(len(tensors))])
    members = np.bincount(where.ravel(), weights=pairs).astype(np.int64)  # exact: below 2^53
    zero = ~lines.any(axis=1)
    always = int(members[zero].sum())  # pairs whose score is zero
    lines, members = lines[~zero], members[~zero]
    found: dict[int, list[np.ndarray]] = {1: [], -1: []}
    for a in _between(_critical_quadratics(lines)):
        for sign, graphs in found.items():
            graphs.append(_cells_of_lines(_at(lines, a), members, sign))
            if len(graphs) > 500:
                found[sign] = [np.unique(np.concatenate(graphs))]
    return {
        sign: frozenset((np.unique(np.concatenate(graphs)) | (always if sign < 0 else 0)).tolist())
        for sign, graphs in found.items()
    }


def _at(forms: np.ndarray, a: Fraction) -> np.ndarray:
    """The normals q_i x_j of the lines, for queries x_i . (1, a) times the denominator of a."""
    one, slope = a.denominator, a.numerator
    return one * forms[:, :2] + slope * forms[:, 2:]


def _critical_quadratics(forms: np.ndarray) -> set[Vector]:
    """Quadratics in a, one of which vanishes where the type of the arrangement changes.

    They are the 3 x 3 minors of the rows (n, -1) and (0, 0, 1), n = forms at (1, a).
    """
    size = len(forms)
    one, two = np.triu_indices(size, 1)
    p, q = forms[one], forms[two]  # det(p, q) = (p0 + a p2)(q1 + a q3) - (p1 + a p3)(q0 + a q2)
    minors = np.zeros((size, size, 3), dtype=np.int64)
    minors[one, two, 0] = p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]
    minors[one, two, 1] = (
        p[:, 0] * q[:, 3] + p[:, 2] * q[:, 1] - p[:, 1] * q[:, 2] - p[:, 3] * q[:, 0]
    )
    minors[one, two, 2] = p[:, 2] * q[:, 3] - p[:, 3] * q[:, 2]
    r, s, t = np.array(list(combinations(range(size), 3)), dtype=np.int64).reshape(-1, 3).T
    triples = minors[r, s] - minors[r, t] + minors[s, t]
    every = np.unique(np.concatenate([minors[one, two], triples]), axis=0)
    return {primitive(tuple(row)) for row in every.tolist() if any(row)}


def _between(quadratics: Iterable[Vector]) -> Iterator[Fraction]:
    """A rational below, between and above all distinct real roots of the quadratics.

    Two distinct roots, with H the largest coefficient, are at least 1/(72 H^7) apart. Of one
    quadratic: its discriminant is an integer. Else r of f and t of g with f(t) != 0: a rational t
    has |f(t)| >= 1/H^2; otherwise f(t) times its conjugate times H^2 is at least 1. And
    |f(t)| <= |t - r| max |f'| with |r|, |t| <= 1 + H.
    """
    rows = list(quadratics)
    height = max((abs(value) for row in rows for value in row), default=1)
    depth = 7 * height.bit_length() + 12
    floors = sorted({root for row in rows for root in _root_floors(row, depth)})
    apart = [root for k, root in enumerate(floors) if k == 0 or root - floors[k - 1] > 3]
    ends = [
        root for k, root in enumerate(floors) if k + 1 == len(floors) or floors[k + 1] - root > 3
    ]
    unit = Fraction(1, 1 << depth)
    if not floors:
        yield Fraction(0)
        return
    yield Fraction((apart[0] >> depth) - 1)
    for high, low in zip(apart[1:], ends[:-1], strict=True):
        yield _simplest((low + 2) * unit, (high - 1) * unit)
    yield Fraction((ends[-1] >> depth) + 2)


def _root_floors(row: Vector, depth: int) -> Iterator[int]:
    """2^depth root, at most 1.5 too small or 0.5 too large, for real roots of c + b a + e a^2."""
    c, b, e = row
    if e == 0:
        if b:
            yield (-c << depth) // b
        return
    square = b * b - 4 * e * c
    if square >= 0:
        root = isqrt(square << 2 * depth)
        yield ((-b << depth) + root) // (2 * e)
        yield ((-b << depth) - root) // (2 * e)


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """The fraction of least denominator in [low, high]."""
    whole = -(-low.numerator // low.denominator)
    if whole <= high:
        return Fraction(whole)
    floor = low.numerator // low.denominator
    return floor + 1 / _simplest(1 / (high - floor), 1 / (low - floor))


def _cells_of_lines(normals: np.ndarray, members: np.ndarray, level: int) -> np.ndarray:
    """The cells of the lines n . v = level in the plane: the sum of ``members`` with n . v > level.

    Every cell has a vertex and there an edge: at each vertex, from each of its lines, both ways
    along the line and to both sides of it; signs in lexicographic order of these three steps.
    """
    if int(np.abs(normals).max()) >= 1 << 30:  # the scores at a vertex are at most 6 n^2
        normals = normals.astype(object)
    one, two = (~np.eye(len(normals), dtype=bool)).nonzero()
    p, q = normals[one], normals[two]
    det = p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]
    keep = det != 0
    p, q, det = p[keep], q[keep], det[keep]
    vertex = np.stack([q[:, 1] - p[:, 1], p[:, 0] - q[:, 0]], axis=1) * level  # times det
    at = (vertex @ normals.T - level * det[:, None]) * np.where(det > 0, 1, -1)[:, None]
    along = np.stack([-p[:, 1], p[:, 0]], axis=1) @ normals.T
    aside = p @ normals.T
    above, on, level_with = at > 0, at == 0, along == 0
    sums = [
        (above | (on & ((way * along > 0) | (level_with & (side * aside > 0))))) @ members
        for way, side in product((1, -1), repeat=2)
    ]
    return np.unique(np.concatenate(sums))


def subgraphs(graphs: Collection[int], edges: int) -> list[int]:
    """The largest subgraphs of ``edges`` among ``graphs``: none is part of another."""
    if 1 << edges.bit_count() <= len(graphs):
        inside = [graph for graph in _submasks(edges) if graph in graphs]
    else:
        inside = [graph for graph in graphs if graph & ~edges == 0]
    largest: list[int] = []
    for graph in sorted(inside, key=int.bit_count, reverse=True):
        if all(graph & ~other for other in largest):
            largest.append(graph)
    return largest


def _submasks(mask: int) -> Iterator[int]:
    part = mask
    while part:
        yield part
        part = (part - 1) & mask
    yield 0


def least_cost(
    edges: int, priced: Sequence[tuple[int, Graphs]], most_heads: int | None = None
) -> int | None:
    """The least total price of heads that share tau's sign and whose union is ``edges``.

    ``priced``: (price, graphs) for each kind of head; ``most_heads``: at most so many of them.
    ``None``: no such heads. The empty graph too takes one head.
    """
    costs = []
    for sign in (1, -1):
        kinds = [(price, subgraphs(graphs[sign], edges)) for price, graphs in priced]
        every = [graph for _, inside in kinds for graph in inside]
        if not every or reduce(int.__or__, every) != edges:
            continue
        enough = edges.bit_count() or 1
        last = max(price for price, _ in kinds) * min(enough, most_heads or enough)
        unions_of: list[dict[int, int]] = [{0: 0}]  # by price: union -> least number of heads
        for cost in range(1, last + 1):
            unions_of.append({})
            for price, inside in kinds:
                for done, heads in unions_of[cost - price].items() if price <= cost else ():
                    for graph in inside:
                        known = unions_of[cost].get(done | graph, heads + 1)
                        unions_of[cost][done | graph] = min(known, heads + 1)
            heads_used = unions_of[cost].get(edges)
            if heads_used is not None and heads_used <= (most_heads or heads_used):
                costs.append(cost)
                break
    return min(costs, default=None)


def unions(graphs: Graphs, others: Graphs) -> Graphs:
    """The graphs of a head of the first kind beside one of the second, by the sign of tau."""
    found = {}
    for sign in (1, -1):
        second = np.array(list(others[sign]), dtype=np.int64)
        longest = max(map(int.bit_length, graphs[sign] | others[sign]))
        reached = np.zeros(1 << longest, dtype=bool)
        for graph in graphs[sign]:
            reached[second | graph] = True
        found[sign] = frozenset(np.flatnonzero(reached).tolist())
    return found


def all_graphs(graphs: Graphs) -> frozenset[int]:
    """The realised graphs, whatever tau."""
    return graphs[1] | graphs[-1]


def mask_of(pairs: Iterable[tuple[int, int]], items: int) -> int:
    """The bit mask of a set of pairs."""
    return sum(1 << (i * items + j) for i, j in pairs)


def pairs_of(mask: int, items: int) -> list[tuple[int, int]]:
    """The pairs of a bit mask, in order."""
    return [divmod(k, items) for k in range(items * items) if mask >> k & 1]


def _by_sign(found: Iterable[tuple[int, int]]) -> Graphs:
    graphs: dict[int, set[int]] = {1: set(), -1: set()}
    for sign, graph in found:
        graphs[sign].add(graph)
    return {sign: frozenset(group) for sign, group in graphs.items()}
