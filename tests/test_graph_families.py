"""Sizes of graph families: listing all graphs, published tables, mpmath at large sizes."""

import random
from collections import Counter
from fractions import Fraction
from itertools import pairwise, permutations, product
from math import comb, factorial

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.mpmath_numbers import is_near

from bounds import ArgumentError, Ball, family_log2, key_dimension_bits, storage_efficiency
from bounds.automorphisms import automorphism_count
from bounds.graph_families import FAMILY_SIZE, distinct_neighborhoods, graph_family


def _matrices(items):
    """All graphs, as tuples of rows."""
    return product(product((0, 1), repeat=items), repeat=items)


def _listed(items):
    """The sizes of all families, by listing all graphs once."""
    sizes = Counter()
    for rows in _matrices(items):
        out = [sum(row) for row in rows]
        into = [sum(column) for column in zip(*rows, strict=True)]
        sizes["digraph", sum(out)] += 1
        if len(set(out)) == 1:
            sizes["out-regular", out[0]] += 1
            if set(into) == set(out):
                sizes["regular", out[0]] += 1
        for degree in range(max(out), items + 1):
            sizes["out-degree", degree] += 1
    return sizes


def _relabeled(items, edges):
    """The graphs that relabelling gives, and how many relabellings give the graph itself."""
    images = [frozenset((s[i], s[j]) for i, j in edges) for s in permutations(range(items))]
    return len(set(images)), images.count(frozenset(edges))


def _random_graph(items, density, seed):
    draw = random.Random(seed)
    return [(i, j) for i in range(items) for j in range(items) if draw.random() < density]


@pytest.mark.parametrize("items", [1, 2, 3, 4])
def test_every_family_by_listing_all_graphs(items):
    for (name, number), size in _listed(items).items():
        option = {"relations": number} if name == "digraph" else {"degree": number}
        family = graph_family(items, name, **option)
        assert family.exact
        assert family.size() == size
        assert family.is_single == (size == 1)
        ball = family_log2(items, name, digits=20, **option)
        with mpmath.workdps(40):
            assert is_near(ball, mpmath.log(size, 2), Fraction(1, 10**30))
        whole = family.log2_integer()
        assert whole is None or 2**whole == size
        for unit, spare in product((2, 6, 10), (0, 3)):
            found = key_dimension_bits(
                items, unit // 2, 1, family=name, threshold_bits=spare, **option
            ).value
            assert 2 ** (unit * found + spare) >= size
            assert found == 0 or 2 ** (unit * (found - 1) + spare) < size


@pytest.mark.parametrize(
    ("items", "degree", "size"),  # OEIS A008300
    [(5, 2, 2040), (6, 2, 67950), (6, 3, 297200), (7, 3, 68938800), (8, 4, 116963796250),
     (10, 5, 6736218287430460752), (9, 8, factorial(9))],
)  # fmt: skip
def test_regular_graphs_of_the_published_table(items, degree, size):
    assert graph_family(items, "regular", degree=degree).size() == size
    assert graph_family(items, "regular", degree=items - degree).size() == size


def test_the_floor_of_regular_graphs_is_below_their_number_and_near():
    for items in range(2, 13):
        for degree in range(1, items):
            size = graph_family(items, "regular", degree=degree).size()
            floor = comb(items, degree) ** (2 * items - 1) * Fraction(
                degree**degree * (items - degree) ** (items - degree), items**items
            ) ** (items - 1)
            assert floor <= size <= Fraction(5, 2) * floor


@pytest.mark.parametrize(("items", "degree"), [(1024, 10), (2000, 1000), (10**6, 3), (10**9, 5)])
def test_large_regular_families_have_the_floor(items, degree):
    family = graph_family(items, "regular", degree=degree)
    assert not family.exact
    ball = family_log2(items, family, digits=20)
    with mpmath.workdps(60):
        n, k = mpmath.mpf(items), mpmath.mpf(degree)
        choose = mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)
        spread = k * mpmath.log(k) + (n - k) * mpmath.log(n - k) - n * mpmath.log(n)
        truth = ((2 * n - 1) * choose + (n - 1) * spread) / mpmath.log(2)
    assert is_near(ball, truth, Fraction(1, 10**25))
    assert ball < family_log2(items, "digraph", items * degree)
    assert storage_efficiency(items, 4, 8, 8, family=family).kind == "lower"
    if items == 1024:
        assert abs(Fraction(family.size().bit_length()) - ball.midpoint) <= 1


def test_regular_families_grow_smoothly_where_the_floor_takes_over():
    exact = [float(family_log2(m, "regular", degree=3)) for m in range(62, 68)]
    flags = [graph_family(m, "regular", degree=3).exact for m in range(62, 68)]
    assert flags[0]
    assert not flags[-1]
    steps = [after - before for before, after in pairwise(exact)]
    assert max(steps) - min(steps) < 6


@given(st.integers(1, 40), st.data())
def test_out_degrees_by_exact_counting(items, data):
    degree = data.draw(st.integers(0, items))
    for name, size in (
        ("out-regular", comb(items, degree) ** items),
        ("out-degree", sum(comb(items, k) for k in range(degree + 1)) ** items),
    ):
        family = graph_family(items, name, degree=degree)
        assert family.size() == size
        assert is_near(family_log2(items, family), mpmath.log(size, 2), Fraction(1, 10**10))


@pytest.mark.parametrize(
    ("items", "degree"), [(1000, 7), (1000, 499), (1000, 501), (1000, 999), (10**6, 3)]
)
def test_large_out_degrees(items, degree):
    ball = family_log2(items, "out-degree", degree=degree, digits=20)
    total = sum(comb(items, k) for k in range(degree + 1))
    with mpmath.workdps(350):
        truth = items * mpmath.log(total, 2)
    assert is_near(ball, truth, Fraction(1, 10**20))
    assert ball.radius <= ball.midpoint / 10**20


@pytest.mark.parametrize("items", [1, 2, 3])
def test_relabelings_of_every_small_graph(items):
    for rows in _matrices(items):
        edges = [(i, j) for i, j in product(range(items), repeat=2) if rows[i][j]]
        graphs, own = _relabeled(items, edges)
        family = graph_family(items, "relabelings", edges=edges)
        assert family.automorphisms * factorial(family.isolated) == own
        assert (family.size(), family.exact) == (graphs, True)
        assert family.is_single == (graphs == 1)


@pytest.mark.parametrize("items", [4, 5, 6])
def test_relabelings_of_random_graphs(items):
    for seed in range(60 if items < 6 else 12):
        edges = _random_graph(items, (seed % 9 + 1) / 10, seed)
        graphs, own = _relabeled(items, edges)
        assert automorphism_count(items, edges) == (own, True)
        assert graph_family(items, "relabelings", edges=edges).size() == graphs
        for steps in (0, 20, 200):
            bound, exact = automorphism_count(items, edges, steps=steps)
            assert bound >= own
            assert not exact or bound == own


def test_thousands_of_separate_relations():
    edges = [(2 * i, 2 * i + 1) for i in range(1500)]
    family = graph_family(4000, "relabelings", edges=edges)
    assert (family.automorphisms, family.isolated) == (factorial(1500), 1000)
    assert family.columns == 1501
    with mpmath.workdps(30):
        truth = mpmath.log(
            mpmath.factorial(4000) / (mpmath.factorial(1500) * mpmath.factorial(1000)), 2
        )
    assert is_near(family_log2(4000, family), truth, Fraction(1, 10**8))


def test_few_relations_among_a_million_items():
    family = graph_family(10**6, "relabelings", edges=[(2 * i, 2 * i + 1) for i in range(50)])
    truth = Fraction(1)
    for factor in range(10**6 - 99, 10**6 + 1):
        truth *= factor
    assert family.size() == truth / factorial(50)
    with mpmath.workdps(30):
        assert is_near(family_log2(10**6, family), mpmath.log(family.size(), 2), Fraction(1, 10**8))
    assert not family.is_single


@pytest.mark.parametrize("items", [1, 2, 3])
def test_some_graph_has_the_distinct_neighborhoods_that_a_family_says(items):
    most = Counter()
    for rows in _matrices(items):
        distinct = len(set(zip(*rows, strict=True)))
        out = [sum(row) for row in rows]
        keys = [("digraph", sum(out))]
        if len(set(out)) == 1:
            keys.append(("out-regular", out[0]))
            if {sum(column) for column in zip(*rows, strict=True)} == set(out):
                keys.append(("regular", out[0]))
        keys += [("out-degree", degree) for degree in range(max(out), items + 1)]
        for key in keys:
            most[key] = max(most[key], distinct)
    for (name, number), distinct in most.items():
        option = {"relations": number} if name == "digraph" else {"degree": number}
        assert 1 <= graph_family(items, name, **option).columns <= distinct


def test_equal_neighborhoods_are_one_in_whatever_order_they_come():
    sources = random.Random(0).sample(range(10**6), 300)
    pairs = {(i, j) for i in sources for j in range(20)}
    assert distinct_neighborhoods(10**6, pairs) == 2
    assert distinct_neighborhoods(10**6, {(j, i) for i, j in pairs}) == 2
    assert distinct_neighborhoods(20, {(i % 20, j) for i, j in pairs if i % 20 < 7}) == 1
    for items in range(1, 4):
        for rows in _matrices(items):
            edges = {(i, j) for i, j in product(range(items), repeat=2) if rows[i][j]}
            assert distinct_neighborhoods(items, edges) == len(set(zip(*rows, strict=True)))


def test_arguments_that_do_not_belong_are_refused():
    for family, options, name in (
        ("regular", {}, "degree"), ("regular", {"degree": 9}, "degree"),
        ("regular", {"degree": 2, "relations": 16}, "relations"),
        ("permutation", {"degree": 2}, "degree"), ("digraph", {"relations": 3, "degree": 1}, "degree"),
        ("relabelings", {}, "edges"), ("relabelings", {"edges": [(0, 8)]}, "edges"),
        ("relabelings", {"edges": [(0, 1, 2)]}, "edges"), ("relabelings", {"edges": [3]}, "edges"),
        ("relabelings", {"edges": [(0, 1.0)]}, "edges"), ("functional", {"edges": []}, "edges"),
        ("planar", {}, "family"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=f"{name} = "):
            graph_family(8, family, **options)
    family = graph_family(8, "regular", degree=2)
    assert graph_family(8, family) is family
    with pytest.raises(ArgumentError, match="items = "):
        graph_family(9, family)
    with pytest.raises(ArgumentError, match="degree = "):
        graph_family(8, family, degree=2)
    assert family_log2(8, "regular", degree=8) == Ball.of(0)
    assert set(FAMILY_SIZE) == {
        "permutation", "functional", "digraph", "regular", "out-regular", "out-degree", "relabelings"
    }  # fmt: skip


def test_edges_that_are_no_pairs() -> None:
    with pytest.raises(ArgumentError, match="edges = 7"):
        graph_family(5, "relabelings", edges=7)  # type: ignore[arg-type]
