"""Weights of few bits, margins, row argmax and built layers against the exact lists of graphs.

The numbers are those of docs/brute-force.md.
"""

from collections import Counter
from fractions import Fraction
from functools import reduce
from itertools import combinations, product
from math import comb, cos, factorial, isqrt, lcm, pi
from random import Random

import numpy as np
import pytest
from oracles import realizability as exact
from oracles.arrangements import regions
from oracles.few_items import (
    INSIDE,
    OPPOSITE,
    PLANE,
    ROUND,
    UNIT,
    adjacency,
    family_graphs,
    full_graphs,
    is_at_most,
    narrow_graphs,
    recognized,
)
from oracles.realizability_smt import row_argmax_graphs
from scipy.optimize import linprog

from bounds import key_dimension_bits
from bounds.key_dimension_margin import key_dimension_margin, key_dimension_packing
from bounds.key_dimension_real import key_dimension_real, realized_graphs_log2
from constructions import AttentionLayer, RealizationError, relation_layer, relation_target
from constructions.recognition import recognition_report
from verification.verify import verify

SMALL = [2, 3, 4]
LARGE = [pytest.param(m, marks=pytest.mark.nightly) for m in (5, 6)]


@pytest.mark.parametrize(
    ("items", "bits", "sizes"),
    [(m, b, s) for m in (3, 4, 5) for b, s in ((1, (1,)), (2, (1,)), (3, (1,)), (1, (1, 1)),
     (1, (2,)), (1, (1, 1, 1)))] + [(4, 2, (1, 1)), (4, 2, (2,)), (6, 1, (1,)), (6, 1, (1, 1))],
)  # fmt: skip
def test_all_weights_of_few_bits(items, bits, sizes):
    """C1: every weight setting tried, tau = 1; they reach listed graphs, and few enough."""
    alphabet = np.arange(2**bits) * 2 + 1 - 2**bits
    unit = 4 * sum(sizes)
    settings = np.array(list(product(alphabet, repeat=unit)))
    x = np.array(ROUND[:items])
    best = np.full((len(settings), items, items), -(10**9))
    for size in sizes:
        weights, settings = np.split(settings, [4 * size], axis=1)
        query, key = (x @ part.reshape(-1, 2, size) for part in np.split(weights, 2, axis=1))
        best = np.maximum(best, query @ key.transpose(0, 2, 1))
    masks = (best > 1).reshape(-1, items**2) @ (1 << np.arange(items**2))
    graphs = set(masks.tolist())
    assert 1 < len(graphs) <= 2 ** (unit * bits)
    if items < 5:
        lists = {1: narrow_graphs("round", items), 2: full_graphs("round", items)}
        prices = list(lists.items())
        assert all(
            exact.least_cost(g, prices, len(sizes)) <= sum(sizes) for g in list(graphs)[:300]
        )
        if len(sizes) == 1:
            assert graphs <= lists[sizes[0]][1]
    for name, number in (("permutation", None), ("functional", None), ("digraph", 1)):
        family, options = family_graphs(items, name, number)
        reached = len(graphs & set(family))
        bound = key_dimension_bits(items, 2, bits, family=name, relations=options.get("relations"))
        if reached == len(family):
            assert bound.value <= sum(sizes)
        assert reached <= 2 ** (unit * bits)
        assert 2 ** (4 * bits * bound.value) >= len(family)


def test_one_bit_weights_of_one_dimension_on_two_orthonormal_items():
    """Scores q_i k_j of weights 1 and -1 (or 1/sqrt 2, norm 1, margin 1/2): all graphs of two edges."""
    graphs = Counter(
        sum(1 << (2 * i + j) for i, j in product(range(2), repeat=2) if q[i] * k[j] > 0)
        for q, k in product(product((1, -1), repeat=2), repeat=2)
    )
    assert set(graphs.values()) == {2}  # the 16 settings, but for a common sign of q and k
    assert set(family_graphs(2, "digraph", 2)[0]) <= set(graphs)
    options = {"family": "digraph", "relations": 2}
    assert key_dimension_bits(2, 2, 1, **options).value == 1
    assert key_dimension_margin(2, 2, "1/2", 1, **options).value == 1
    assert key_dimension_real(2, 2, **options).value == 1


def _margin(graph, items):
    """A certified margin of a graph for one full head with |W_Q|, |W_K| <= 1, UNIT items.

    |W_Q|_F |W_K|_F >= the nuclear norm of M = W_Q W_K^T, and some factors attain it. For 2 x 2
    matrices it is the larger of |(a + d, c - b)| and |(a - d, b + c)|. A linear program in floats
    proposes M; rationals measure it.
    """
    x = np.array(UNIT[:items]) / 65
    rows = np.einsum("ia,jb->ijab", x, x).reshape(items**2, 4)
    side = np.where(adjacency(graph, items).ravel(), -1.0, 1.0)
    discs = []
    for u, v in (([1, 0, 0, 1], [0, -1, 1, 0]), ([1, 0, 0, -1], [0, 1, 1, 0])):
        discs += [
            np.cos(t) * np.array(u) + np.sin(t) * np.array(v) for t in np.arange(32) * pi / 16
        ]
    upper = np.vstack([
        np.hstack([side[:, None] * rows, -side[:, None], np.ones((items**2, 1))]),
        np.hstack([discs, np.zeros((64, 2))]),
    ])  # fmt: skip
    limits = np.concatenate([np.zeros(items**2), np.full(64, cos(pi / 32))])
    best = linprog([0, 0, 0, 0, 0, -1], A_ub=upper, b_ub=limits, bounds=(None, None))
    a, b, c, d = (Fraction(round(value * 10**6), 10**6) for value in best.x[:4])
    square = max((a + d) ** 2 + (c - b) ** 2, (a - d) ** 2 + (b + c) ** 2)
    norm = Fraction(isqrt(square.numerator * 10**24 // square.denominator) + 1, 10**12)
    scores = {True: [], False: []}
    for k, (y, z) in enumerate(product(UNIT[:items], repeat=2)):
        score = a * y[0] * z[0] + b * y[0] * z[1] + c * y[1] * z[0] + d * y[1] * z[1]
        scores[bool(graph >> k & 1)].append(score / 4225)
    return (min(scores[True]) - max(scores[False])) / 2 / norm


@pytest.mark.parametrize("items", [3, pytest.param(4, marks=pytest.mark.nightly)])
def test_margins_of_one_full_head_are_not_excluded(items):
    graphs = exact.all_graphs(exact.full_head_graphs(UNIT[:items]))
    margins, everything = {}, (1 << items**2) - 1
    for graph in graphs - {0, everything}:
        margins[graph] = margins.get(everything - graph) or _margin(graph, items)  # M or -M
    found = {graph: margin for graph, margin in margins.items() if margin > Fraction(1, 10**4)}
    assert len(found) > 0.9 * len(margins)
    for graph, margin in found.items():
        edges = exact.pairs_of(graph, items)
        square = adjacency(graph, items).tolist()
        columns = max(len(set(map(tuple, square))), len(set(zip(*square, strict=True))))
        assert columns <= (1 + 1 / margin) ** 2
        bound = key_dimension_packing(items, margin, 1, family="relabelings", edges=edges)
        assert bound.parameters["columns"] == columns
        assert bound.value <= 2
    for size in range(1, items**2):
        ordered = sorted((m for g, m in found.items() if g.bit_count() == size), reverse=True)
        for number, margin in enumerate(ordered, start=1):
            assert number <= (1 + 2 / margin) ** 8
        if len(ordered) == comb(items**2, size):
            bound = key_dimension_margin(items, 2, ordered[-1], 1, family="digraph", relations=size)
            assert bound.value <= 2


@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("ternary", [True, False])
def test_the_packing_bound_is_attained(heads, ternary):
    """(1 + R^2 / gamma)^{D_K} distinct neighbourhoods: keys {-1, 0, 1}^h, gamma = 1/2, or {-1, 1}^h, 1."""
    if ternary:
        keys = list(product((-1, 0, 1), repeat=heads))
        queries = [tuple(s * (k == c) for c in range(heads)) for k in range(heads) for s in (1, -1)]
        tau, margin = Fraction(1, 2), Fraction(1, 2)
    else:
        keys = queries = list(product((-1, 1), repeat=heads))
        tau, margin = Fraction(0), Fraction(1)
    best = [[max(q * k for q, k in zip(a, b, strict=True)) for b in keys] for a in queries]
    assert all(abs(score - tau) >= margin for row in best for score in row)
    edges = [(i, j) for i, row in enumerate(best) for j, score in enumerate(row) if score > tau]
    items = len(keys)
    columns = {tuple(score > tau for score in column) for column in zip(*best, strict=True)}
    assert len(columns) == items == (1 + 1 / margin) ** heads
    options = {"family": "relabelings", "edges": edges}
    assert key_dimension_packing(items, margin, 1, **options).value == heads
    more = margin * Fraction(1001, 1000)
    if ternary:
        assert key_dimension_packing(items, more, 1, **options).value == heads + 1


ARGMAX = {2: (4, 2), 3: (25, 6), 4: (105, 8), 5: (381, 10), 6: (1123, 12)}


@pytest.mark.parametrize("items", SMALL + LARGE)
def test_row_argmax_graphs_of_one_full_head(items):
    graphs = set(row_argmax_graphs(ROUND[:items]))
    bijections = {s for s in graphs if len(set(s)) == items}
    assert (len(graphs), len(bijections)) == ARGMAX[items]
    assert set(row_argmax_graphs(ROUND[:items], permutations=True)) == bijections
    bound = realized_graphs_log2(items, 2, 2, heads=1, readout="row-argmax")
    assert is_at_most(len(graphs), bound)
    if len(bijections) == factorial(items):
        assert key_dimension_real(items, 2, readout="row-argmax", heads=1).value <= 2


@pytest.mark.parametrize("x", [ROUND[:3], INSIDE[:4], OPPOSITE[:3]])
def test_row_argmax_graphs_by_the_regions_of_score_differences(x):
    items = len(x)
    pairs = list(combinations(range(items), 2))
    forms = [tuple(a * (b - c) for a, (b, c) in product(y, zip(x[s], x[t], strict=True)))
             for y in x for s, t in pairs]  # fmt: skip
    strict = set()
    for mask in regions(forms, 4):
        rows = [mask >> len(pairs) * i for i in range(items)]
        wins = [Counter(s if row >> k & 1 else t for k, (s, t) in enumerate(pairs)) for row in rows]
        strict.add(tuple(max(range(items), key=count.__getitem__) for count in wins))
    graphs = set(row_argmax_graphs(x))
    assert strict <= graphs
    ties = {tuple(int(np.argmax(row)) for row in np.array(x) @ np.reshape(form, (2, 2)) @ np.array(x).T)
            for form in product((-2, -1, 0, 1, 2), repeat=4)}  # fmt: skip
    assert ties <= graphs


def _weights(items, sign, graph):
    """Integers of 20 bits (M, tau), proposed by a linear program, with which a head realises ``graph``."""
    forms = np.array(exact.score_forms(items), dtype=float)
    side = np.where(adjacency(graph, len(items)).ravel(), -1.0, 1.0)
    size = forms.shape[1]
    upper = np.hstack([side[:, None] * forms, np.ones((len(forms), 1))])
    level = [*[0] * (size - 1), -sign, 1]
    best = linprog([*[0] * size, -1], A_ub=[*upper, level], b_ub=np.zeros(len(upper) + 1),
                   bounds=[*[(-1, 1)] * size, (None, None)])  # fmt: skip
    *form, tau = (round(value * 2**20) for value in best.x[:-1])
    assert tau * sign > 0
    assert recognized(items, form, tau) == graph
    return *form, tau


def _layer(items, sign, graphs):
    """A full head for each graph, in integers, brought to one threshold."""
    witnesses = [_weights(items, sign, graph) for graph in graphs]
    common = sign * lcm(*(tau for *_, tau in witnesses))
    scaled = [[value * (common // tau) for value in form] for *form, tau in witnesses]
    assert max(abs(common), *(abs(value) for form in scaled for value in form)) < 2**53
    d = len(items[0])
    return AttentionLayer(
        w_q=[np.array(form, dtype=float).reshape(d, d) for form in scaled],
        w_k=[np.eye(d)] * len(scaled),
        threshold=float(common),
    )


@pytest.mark.parametrize("name", PLANE)
@pytest.mark.parametrize("heads", [1, 2])
def test_the_judge_agrees_on_graphs_and_refutes_their_neighbours(name, heads):
    items = 4
    x = np.array(PLANE[name][:items], dtype=float)
    draw = Random(heads)
    for _ in range(12):
        sign = draw.choice((1, -1))
        parts = draw.choices(sorted(full_graphs(name, items)[sign]), k=heads)
        graph = reduce(int.__or__, parts)
        layer = _layer(PLANE[name][:items], sign, parts)
        flipped = graph ^ (1 << draw.randrange(items**2))
        for mask in {graph, flipped} - {0}:
            target = relation_target(x, exact.pairs_of(mask, items))
            certificate, report = verify(layer, target), recognition_report(layer, target)
            assert certificate.verdict == ("verified" if mask == graph else "refuted")
            assert report.undecided == 0
            assert (report.wrong is None) == (mask == graph)
            if mask == flipped:
                assert report.wrong == divmod((graph ^ flipped).bit_length() - 1, items)
                assert report.missing == (flipped > graph)


@pytest.mark.parametrize(
    ("key_dim", "heads", "within", "without", "least"),
    [(2, 1, 3, 1, 3), *(pytest.param(*row, marks=pytest.mark.nightly)
     for row in ((2, 1, 12, 3, 6), (1, 1, 12, 3, 3), (1, 2, 12, 3, 9)))],
)  # fmt: skip
def test_fitted_layers_realise_only_graphs_that_can_be(key_dim, heads, within, without, least):
    lists = {1: narrow_graphs("round", 4), 2: full_graphs("round", 4)}
    graphs = exact.all_graphs(reduce(exact.unions, [lists[key_dim]] * heads))
    draw = Random(0)
    inside = draw.sample(sorted(graphs - {0}), within)
    outside = draw.sample(sorted(set(range(1 << 16)) - graphs), without)
    built = set()
    for graph in inside + outside:
        pairs = exact.pairs_of(graph, 4)
        try:
            layer = relation_layer(ROUND[:4], pairs, key_dim=key_dim, heads=heads)
        except RealizationError:
            continue
        assert layer.key_dimension == key_dim * heads
        built.add(graph)
    assert built <= set(inside)
    assert len(built) >= least  # the fit misses some graphs that can be
