"""All graphs on a few items, decided exactly, against every bound of the key-query channel.

The numbers are those of docs/brute-force.md.
"""

from collections import Counter
from fractions import Fraction
from functools import reduce
from itertools import combinations, permutations, product
from math import comb
from random import Random

import numpy as np
import pytest
from flint import fmpz_mat
from oracles import realizability as exact
from oracles.arrangements import count_regions, regions
from oracles.few_items import (
    LINE,
    PLANE,
    ROUND,
    SPACE,
    adjacency,
    family_graphs,
    full_graphs,
    is_at_most,
    narrow_graphs,
    recognized,
)
from oracles.realizability_smt import (
    full_head_graphs_by_search,
    full_head_realizes,
    narrow_head_realizes,
)

from bounds import HypothesisError
from bounds.key_dimension_best import key_dimension
from bounds.key_dimension_real import key_dimension_real, least_heads, realized_graphs_log2

SMALL = [2, 3, 4]
LARGE = [pytest.param(m, marks=pytest.mark.nightly) for m in (5, 6)]


def _whitney(forms):
    """The regions of hyperplanes through 0 by Whitney's sum over all subsets, exact ranks."""
    total = 0
    for size in range(len(forms) + 1):
        for chosen in combinations(forms, size):
            rank = fmpz_mat([list(form) for form in chosen]).rank() if chosen else 0
            total += (-1) ** (size - rank)
    return total


@pytest.mark.parametrize(("width", "count"), [(1, 1), (2, 5), (3, 8), (4, 9), (5, 11)])
def test_regions_of_hyperplanes_in_general_position(width, count):
    draw = Random(width)
    forms = [tuple(draw.randint(-99, 99) for _ in range(width)) for _ in range(count)]
    schlaefli = 2 * sum(comb(count - 1, k) for k in range(width))
    cells = regions(forms, width)
    assert len(cells) == count_regions(forms) == schlaefli
    for mask, point in cells.items():
        signs = [sum(a * b for a, b in zip(form, point, strict=True)) for form in forms]
        assert all(signs)
        assert mask == sum(1 << k for k, sign in enumerate(signs) if sign > 0)


@pytest.mark.parametrize("items", [2, 3, pytest.param(4, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", ["round", "inside", "zero", "repeated", "opposite"])
def test_the_count_of_regions_is_whitneys(name, items):
    forms = exact.score_forms(PLANE[name][:items])
    assert count_regions(forms) == _whitney(list(dict.fromkeys(forms)))


@pytest.mark.parametrize("items", SMALL + LARGE)
@pytest.mark.parametrize("name", PLANE)
def test_the_list_of_a_full_head_is_sound_and_complete(name, items):
    """Each graph has weights; there are as many as regions, counted without points: no other."""
    witnesses = exact.full_head_witnesses(PLANE[name][:items])
    for (sign, graph), (*form, tau) in witnesses.items():
        assert tau * sign > 0
        assert recognized(PLANE[name][:items], form, tau) == graph
    forms = exact.score_forms(PLANE[name][:items])
    graphs = full_graphs(name, items)
    assert len(witnesses) == count_regions([*forms, (0, 0, 0, 0, 1)])
    assert len(exact.all_graphs(graphs)) == count_regions(forms)
    everything = (1 << items**2) - 1
    assert graphs[-1] == {everything - graph for graph in graphs[1]}  # -M, -tau


ROUND_COUNTS = {2: (16, 16), 3: (230, 280), 4: (1416, 3100), 5: (5760, 20920), 6: (17918, 99002)}


def _at_one_threshold(items):
    """Regions of m^2 affine hyperplanes in the space of M, d_model = 2."""
    return sum(comb(items**2, k) for k in range(5))


@pytest.mark.parametrize("items", SMALL + LARGE)
def test_graphs_of_one_head_stay_below_the_counts(items):
    for name in PLANE:
        if np.linalg.matrix_rank(PLANE[name][:items]) < 2:
            continue
        narrow, full = narrow_graphs(name, items), full_graphs(name, items)
        for sign in (1, -1):
            assert narrow[sign] <= full[sign]
        sizes = len(exact.all_graphs(narrow)), len(exact.all_graphs(full))
        if name == "round":
            assert sizes == ROUND_COUNTS[items]
        for key_dim, size in zip((1, 2), sizes, strict=True):
            assert is_at_most(size, realized_graphs_log2(items, 2, key_dim, heads=1))
    assert len(full_graphs("round", items)[1]) <= _at_one_threshold(items)
    # C2's count is near for one full head: 16, 326, 3882, 25902, 119072
    bound = 2 * sum(comb(items**2 - 1, k) for k in range(5))
    assert bound < ROUND_COUNTS[items][1] * Fraction(127, 100)


@pytest.mark.parametrize("items", SMALL + LARGE)
def test_items_in_general_position_have_the_most_graphs(items):
    draw = Random(items)
    for _ in range(2):
        x = [tuple(draw.randint(-1000, 1000) for _ in range(2)) for _ in range(items)]
        assert count_regions(exact.score_forms(x)) == ROUND_COUNTS[items][1]
    for x in PLANE.values():
        assert count_regions(exact.score_forms(x[:items])) <= ROUND_COUNTS[items][1]


@pytest.mark.parametrize("items", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("x", [LINE, [(2,), (2,), (0,), (-2,), (3,), (1,)]])
def test_one_dimension(x, items):
    """d_model = d_k = 1: every graph is a threshold of the products, from above or below."""
    products = np.outer(x[:items], x[:items])
    values = np.unique(products)
    graphs = {1: set(), -1: set()}
    for cut, side, scale in product(values, (-1, 1), (1, -1)):
        tau = scale * (2 * int(cut) + side)
        graph = (2 * scale * products > tau).ravel()
        graphs[1 if tau > 0 else -1].add(sum(1 << k for k in np.flatnonzero(graph).tolist()))
    everything = frozenset(graphs[1] | graphs[-1])
    listed = exact.full_head_graphs(x[:items])
    assert exact.all_graphs(listed) == everything
    assert len(everything) == 2 * len(values) or 0 in values
    for sign in (1, -1):  # no weight at all recognises nothing, or everything
        assert listed[sign] == graphs[sign] | {0 if sign > 0 else (1 << items**2) - 1}
    assert is_at_most(len(everything), realized_graphs_log2(items, 1, 1, heads=1))


@pytest.mark.parametrize(
    ("items", "count"), [(2, 16), (3, 512), pytest.param(4, 48172, marks=pytest.mark.nightly)]
)
def test_three_dimensions(items, count):
    graphs = exact.full_head_graphs(SPACE[:items])
    assert len(exact.all_graphs(graphs)) == count_regions(exact.score_forms(SPACE[:items]))
    assert len(exact.all_graphs(graphs)) == count
    assert is_at_most(count, realized_graphs_log2(items, 3, 3, heads=1))
    if items == 4:
        most = Counter(
            exact.least_cost(exact.mask_of(enumerate(s), 4), [(1, graphs)])
            for s in product(range(4), repeat=4)
        )
        assert most == {1: 252, 2: 4}
        assert least_heads(4, 3, family="functional").value <= 2


@pytest.mark.nightly
def test_three_dimensions_by_count():
    draw = Random(1)
    x = [tuple(draw.randint(-100, 100) for _ in range(3)) for _ in range(5)]
    count = count_regions(exact.score_forms(x))
    assert count == 3823880
    assert is_at_most(count, realized_graphs_log2(5, 3, 3, heads=1))


@pytest.mark.parametrize("tau", [1, -1, 0])
def test_every_graph_on_three_items_by_linear_programs(tau):
    for name in ("round", "opposite"):
        x = PLANE[name][:3]
        found = full_head_graphs_by_search(x, tau)
        listed = full_graphs(name, 3)[tau or 1]  # a threshold of 0 can be raised
        assert found <= listed if tau == 0 else found == listed
    for graph in range(tau + 1, 512, 16):
        assert full_head_realizes(x, graph, tau) == (graph in found)


@pytest.mark.nightly
@pytest.mark.parametrize("tau", [1, -1])
def test_every_graph_on_four_items_by_linear_programs(tau):
    assert full_head_graphs_by_search(ROUND[:4], tau) == full_graphs("round", 4)[tau]


@pytest.mark.parametrize(
    ("name", "step"),
    [("round", 16), ("zero", 32), *(pytest.param(name, 1, marks=pytest.mark.nightly) for name in PLANE)],
)  # fmt: skip
def test_graphs_of_one_narrow_head_on_three_items_by_nonlinear_arithmetic(name, step):
    x = PLANE[name][:3]
    if name in ("zero", "repeated"):
        x = [PLANE[name][k] for k in (0, 2, 3)]
    listed = exact.one_dimensional_graphs(x)
    for graph in range(0, 512, step):
        for tau in (1, -1):
            assert narrow_head_realizes(x, graph, tau, 1) == (graph in listed[tau])


@pytest.mark.nightly
@pytest.mark.parametrize("items", [4, 5, 6])
def test_graphs_of_one_narrow_head_by_nonlinear_arithmetic(items):
    draw, listed = Random(items), narrow_graphs("round", items)
    for sign in (1, -1):
        inside = draw.sample(sorted(listed[sign]), 30)
        near = [graph ^ (1 << draw.randrange(items**2)) for graph in inside]
        for graph in inside + near:
            assert narrow_head_realizes(ROUND[:items], graph, sign, 1) == (graph in listed[sign])


@pytest.mark.parametrize("items", SMALL + LARGE)
def test_random_weights_reach_listed_graphs_and_most_of_them(items):
    rng = np.random.default_rng(items)
    x, seen = np.array(ROUND[:items]), {1: set(), -1: set()}
    for _ in range(20 * 4 ** (items - 2)):
        query, key = x @ rng.integers(-400, 401, (2, 2, 500))
        scores = query[:, None] * key[None]
        tau = np.abs(rng.choice(scores.reshape(-1, 500))) + rng.integers(1, 50, 500)
        for sign, graphs in seen.items():
            masks = (scores > sign * tau).reshape(-1, 500).T @ (1 << np.arange(items**2))
            graphs.update(masks.tolist())
    listed = narrow_graphs("round", items)
    for sign, graphs in seen.items():
        assert graphs <= listed[sign]
        assert len(graphs) > 0.7 * len(listed[sign])


def test_narrow_heads_on_three_independent_items():
    """d_model = 3, orthonormal items: any 3 x 3 scores of rank d_k; graphs up to symmetry."""

    def forms_of(graph):
        square = adjacency(graph, 3)
        for matrix, p, q in product((square, square.T), *[list(permutations(range(3)))] * 2):
            yield int(matrix[np.ix_(p, q)].ravel() @ (1 << np.arange(9)))

    orbits = Counter(min(forms_of(graph)) for graph in range(512))
    assert len(orbits) == 26
    identity = np.eye(3, dtype=int).tolist()
    for key_dim, count in ((1, 428), (2, 512)):
        realized = sum(
            size
            for graph, size in orbits.items()
            if any(narrow_head_realizes(identity, graph, tau, key_dim) for tau in (1, -1))
        )
        assert realized == count
        assert is_at_most(count, realized_graphs_log2(3, 3, key_dim, heads=1))


UNION_COUNTS = {  # heads of these sizes together, round items
    3: {(1, 1): 510, (1, 2): 510, (2, 2): 510, (1, 1, 1): 512},
    4: {(1, 1): 25523, (1, 2): 43104, (2, 2): 48156, (1, 1, 1): 57026},
}


@pytest.mark.parametrize("items", [3, 4])
def test_graphs_of_several_heads_stay_below_the_counts(items):
    heads = {1: narrow_graphs("round", items), 2: full_graphs("round", items)}
    for sizes, count in UNION_COUNTS[items].items():
        graphs = exact.all_graphs(reduce(exact.unions, [heads[size] for size in sizes]))
        assert len(graphs) == count
        bound = realized_graphs_log2(items, 2, sum(sizes), heads=len(sizes))
        assert is_at_most(count, bound)
        assert count <= 2 * comb(_at_one_threshold(items) + len(sizes) - 1, len(sizes))
        if items == 3:
            prices = [(1, heads[1]), (2, heads[2])]
            cheap = {g for g in range(512) if (exact.least_cost(g, prices) or 99) <= sum(sizes)}
            assert graphs <= cheap


# items, family, its number: least heads of any size and least D_K that realise EVERY graph,
# least D_K with at most one head and with at most two (None: out of reach); round items
LEAST = [
    (2, "permutation", None, 1, 1, 1, 1), (2, "functional", None, 1, 1, 1, 1),
    (3, "permutation", None, 1, 2, 2, 2), (3, "functional", None, 3, 3, None, None),
    (3, "regular", 2, 1, 2, 2, 2), (3, "digraph", 3, 3, 3, None, None),
    (4, "permutation", None, 3, 3, None, None), (4, "functional", None, 4, 4, None, None),
    (4, "regular", 2, 4, 5, None, None), (4, "digraph", 2, 2, 2, None, 2),
    (4, "digraph", 4, 4, 4, None, None),
]  # fmt: skip
LEAST_NIGHTLY = [
    (5, "permutation", None, 4, 5, None, None),
    (5, "functional", None, 5, 5, None, None), (6, "functional", None, 6, 6, None, None),
    (5, "regular", 2, 6, 8, None, None),
    (5, "digraph", 5, 5, 5, None, None), (6, "permutation", None, 5, 6, None, None),
    (6, "digraph", 3, 3, 3, None, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("items", "name", "number", "heads", "key_dim", "with_one", "with_two"),
    [*LEAST, *(pytest.param(*row, marks=pytest.mark.nightly) for row in LEAST_NIGHTLY)],
)
def test_bounds_of_a_family_are_below_what_its_graphs_need(
    items, name, number, heads, key_dim, with_one, with_two
):
    graphs, options = family_graphs(items, name, number)
    narrow, full = narrow_graphs("round", items), full_graphs("round", items)
    needed = [exact.least_cost(graph, [(1, full)]) for graph in graphs]
    assert max(needed) == heads >= least_heads(items, 2, family=name, **options).value
    sizes = [(1, narrow), (2, full)]
    for limit, least in ((None, key_dim), (1, with_one), (2, with_two)):
        costs = [exact.least_cost(graph, sizes, limit) for graph in graphs]
        assert (None if None in costs else max(costs)) == least
        try:
            bound = key_dimension_real(items, 2, family=name, heads=limit, **options)
        except HypothesisError:  # no key dimension is enough for so few heads
            assert least is None
            continue
        assert least is None or bound.value <= least
        assert key_dimension(items, 2, name, heads=limit, **options).value == bound.value


@pytest.mark.parametrize("name", ["inside", "opposite", "repeated", "zero"])
def test_some_embeddings_are_out_of_reach_of_any_number_of_heads(name):
    """A relation that no head recognises alone, or beside others of the graph, is out of reach."""
    full = full_graphs(name, 4)
    needed = [exact.least_cost(graph, [(1, full)]) for graph in family_graphs(4, "permutation")[0]]
    singles = {k for k in range(16) if any(1 << k in full[sign] for sign in (1, -1))}
    reachable = [
        graph for graph in family_graphs(4, "functional")[0]
        if exact.least_cost(graph, [(1, full)]) is not None
    ]  # fmt: skip
    assert None in needed
    assert len(singles) < 16
    for graph in reachable:
        assert exact.least_cost(graph, [(1, full), (1, full)]) <= 4


def test_the_least_cost_is_that_of_listed_unions():
    narrow, full = narrow_graphs("round", 3), full_graphs("round", 3)
    reach = {1: exact.all_graphs(narrow)}
    pairs = exact.unions(narrow, narrow)
    reach[2] = reach[1] | exact.all_graphs(pairs) | exact.all_graphs(full)
    triples = exact.all_graphs(exact.unions(pairs, narrow))
    reach[3] = reach[2] | triples | exact.all_graphs(exact.unions(narrow, full))
    for graph in range(512):
        cost = exact.least_cost(graph, [(1, narrow), (2, full)])
        assert cost == next(price for price, graphs in reach.items() if graph in graphs)
