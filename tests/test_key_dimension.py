"""C1: the reference table, exhaustive small families, ties at powers of two, huge sizes."""

from fractions import Fraction
from itertools import combinations, permutations, product
from math import comb, factorial

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from oracles.mpmath_numbers import is_near

from bounds import ArgumentError, Ball, family_log2, key_dimension_bits, storage_efficiency

FAMILIES = ("permutation", "functional", "digraph")


def _count(items, family, relations):
    """The size of a family by listing its graphs."""
    vertices = range(items)
    if family == "permutation":
        return len({frozenset(enumerate(image)) for image in permutations(vertices)})
    if family == "functional":
        return len({frozenset(enumerate(image)) for image in product(vertices, repeat=items)})
    return len({frozenset(edges) for edges in combinations(product(vertices, vertices), relations)})


def _least(size, unit, spare=0):
    """The least D >= 0 with 2^(unit D + spare) >= size, by counting up."""
    dimension = 0
    while 2 ** (unit * dimension + spare) < size:
        dimension += 1
    return dimension


@pytest.mark.parametrize(
    ("items", "d_model", "log2", "by_bits"),
    [
        (256, 16, "1684.00", {16: 4, 8: 7, 1: 53}),
        (1024, 64, "8769.01", {16: 5, 8: 9, 1: 69}),
        (16384, 512, "205747.2", {16: 13, 8: 26, 1: 201}),
    ],
)
def test_reference_table(items, d_model, log2, by_bits):
    assert family_log2(items).decimal(len(log2) - 1) == log2
    for bits, dimension in by_bits.items():
        bound = key_dimension_bits(items, d_model, bits)
        assert type(bound.value) is int
        assert bound.value == dimension
        assert (bound.kind, bound.status, bound.quantity) == ("lower", "proved", "key dimension")
        assert bound.model.weight_bits == bits


@pytest.mark.parametrize("items", [1, 2, 3, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_small_families_by_listing_their_graphs(items, family):
    edge_counts = range(min(items**2, 5) + 1) if family == "digraph" else (None,)
    for relations in edge_counts:
        size = _count(items, family, relations)
        ball = family_log2(items, family, relations, digits=20)
        with mpmath.workdps(40):
            truth = mpmath.log(size, 2)
        assert is_near(ball, truth, Fraction(1, 10**30))
        assert ball.radius <= ball.midpoint / 10**20
        for d_model, bits, spare in product((1, 2, 5), (1, 3), (0, 1, 4)):
            bound = key_dimension_bits(
                items, d_model, bits, family=family, relations=relations, threshold_bits=spare
            )
            assert bound.value == _least(size, 2 * d_model * bits, spare)
            assert bound.status == ("proved" if bound.value else "vacuous")


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 5), st.integers(0, 80), st.data())
def test_the_least_dimension_by_exact_counting(items, d_model, bits, spare, data):
    family = data.draw(st.sampled_from(FAMILIES))
    relations = data.draw(st.integers(0, items**2)) if family == "digraph" else None
    size = {
        "permutation": factorial(items),
        "functional": items**items,
        "digraph": comb(items**2, relations or 0),
    }[family]
    found = key_dimension_bits(
        items, d_model, bits, family=family, relations=relations, threshold_bits=spare
    ).value
    unit = 2 * d_model * bits
    assert 2 ** (unit * found + spare) >= size
    assert found == 0 or 2 ** (unit * (found - 1) + spare) < size


@pytest.mark.parametrize("power", [0, 1, 2, 5, 8, 12, 20, 30])
def test_functional_graphs_on_a_power_of_two_items_are_exact_ties(power):
    items = 2**power
    total = items * power  # log2 of m^m
    for d_model, bits in ((1, 1), (3, 1), (16, 8)):
        unit = 2 * d_model * bits
        found = key_dimension_bits(items, d_model, bits, family="functional").value
        assert found == -(-total // unit)
        for spare in (1, total, total + 1):
            tie = key_dimension_bits(
                items, d_model, bits, family="functional", threshold_bits=spare
            ).value
            assert tie == max(0, -(-(total - spare) // unit))
    assert Fraction(total) in family_log2(items, "functional")
    if power:
        efficiency = storage_efficiency(items, 1, total // 2 or 1, 1, family="functional").value
        assert Fraction(total, 2 * (total // 2 or 1)) in efficiency


@pytest.mark.parametrize(("items", "relations"), [(4, 1), (8, 1), (8, 63), (2, 3), (1, 0), (1, 1)])
def test_digraph_ties_at_powers_of_two(items, relations):
    size = comb(items**2, relations)
    assert size & (size - 1) == 0
    found = key_dimension_bits(items, 1, 1, family="digraph", relations=relations).value
    assert found == _least(size, 2)


def test_a_family_of_one_graph_costs_nothing():
    for items in (1, 5, 1000, 10**9):
        for relations in (0, items**2):
            bound = key_dimension_bits(items, 4, 8, family="digraph", relations=relations)
            assert (bound.value, bound.status) == (0, "vacuous")
            assert family_log2(items, "digraph", relations) == Ball.of(0)
            full = storage_efficiency(items, 4, 8, 8, family="digraph", relations=relations)
            assert full.value == Ball.of(0)
    for family in ("permutation", "functional"):
        assert key_dimension_bits(1, 4, 8, family=family).value == 0
        assert family_log2(1, family) == Ball.of(0)
        assert key_dimension_bits(2, 1, 1, family=family).value == 1


@pytest.mark.parametrize("items", [10**5, 10**7, 10**9, 10**12 + 39])
def test_huge_families(items):
    with mpmath.workdps(60):
        logs = {
            "permutation": mpmath.loggamma(items + 1) / mpmath.log(2),
            "functional": items * mpmath.log(items, 2),
        }
    for family, truth in logs.items():
        ball = family_log2(items, family, digits=30)
        assert is_near(ball, truth, Fraction(1, 10**45))
        assert ball.radius <= ball.midpoint / 10**30
        for d_model, bits in ((1, 1), (512, 16)):
            found = key_dimension_bits(items, d_model, bits, family=family).value
            unit = 2 * d_model * bits
            assert found - 1 < ball.lower / unit <= ball.upper / unit <= found


@pytest.mark.parametrize("items", [300, 10**6])
def test_huge_digraphs_and_their_complements(items):
    pairs = items**2
    for relations in (1, 1000, pairs // 3):
        found = family_log2(items, "digraph", relations, digits=20)
        mirror = family_log2(items, "digraph", pairs - relations, digits=20)
        assert found.lower <= mirror.upper
        assert mirror.lower <= found.upper
        with mpmath.workdps(80):
            truth = mpmath.loggamma(pairs + 1) - mpmath.loggamma(relations + 1)
            truth = (truth - mpmath.loggamma(pairs - relations + 1)) / mpmath.log(2)
        assert is_near(found, truth, Fraction(1, 10**40))
        for ask in (relations, pairs - relations):
            bound = key_dimension_bits(items, 3, 5, family="digraph", relations=ask)
            assert (bound.value - 1) * 30 < found.lower <= found.upper <= bound.value * 30


@given(st.integers(2, 400), st.integers(1, 64), st.integers(1, 16), st.sampled_from(FAMILIES[:2]))
def test_storage_efficiency_is_at_most_one_exactly_at_the_bound(items, d_model, bits, family):
    least = key_dimension_bits(items, d_model, bits, family=family).value
    at_bound = storage_efficiency(items, d_model, least, bits, family=family).value
    assert at_bound.lower <= 1
    assert at_bound > 0
    if least > 1:
        assert storage_efficiency(items, d_model, least - 1, bits, family=family).value > 1


def test_storage_efficiency_is_the_ratio():
    bound = storage_efficiency(256, 16, 80, 16, digits=20)
    with mpmath.workdps(40):
        truth = mpmath.log(mpmath.factorial(256), 2) / (2 * 16 * 80 * 16)
    assert is_near(bound.value, truth, Fraction(1, 10**30))
    assert bound.value.radius <= bound.value.midpoint / 10**20
    assert (bound.kind, bound.status) == ("exact", "certified")
    assert bound.value_text() == mpmath.nstr(truth, 10)


def test_more_bits_or_dimensions_never_need_more():
    for bits in range(1, 20):
        here = key_dimension_bits(100, 8, bits).value
        assert key_dimension_bits(100, 8, bits + 1).value <= here
        assert key_dimension_bits(100, 9, bits).value <= here
        assert key_dimension_bits(101, 8, bits).value >= here
        assert key_dimension_bits(100, 8, bits, family="functional").value >= here


def test_numpy_and_sympy_sizes_do_not_wrap():
    cases = (np.int8, np.int32, np.uint8, sympy.Integer)
    for cast in cases:
        assert key_dimension_bits(cast(100), cast(16), cast(8)).value == 3
    assert key_dimension_bits(np.int32(70_000), 1, 1, family="digraph", relations=3).value > 40


@pytest.mark.parametrize("bad", [0, -5, 2.0, "8", True, None, float("nan"), 8j, object()])
def test_bad_sizes_name_the_argument(bad):
    with pytest.raises(ArgumentError, match="items = "):
        key_dimension_bits(bad, 4, 8)
    with pytest.raises(ArgumentError, match="items = "):
        family_log2(bad)
    with pytest.raises(ArgumentError, match="d_model = "):
        key_dimension_bits(8, bad, 8)
    with pytest.raises(ArgumentError, match="bits = "):
        key_dimension_bits(8, 4, bad)
    with pytest.raises(ArgumentError, match="key_dim = "):
        storage_efficiency(8, 4, bad, 8)
    with pytest.raises(ArgumentError, match="digits = "):
        family_log2(8, digits=bad)
    if bad != 0 or isinstance(bad, bool):
        with pytest.raises(ArgumentError, match="threshold_bits = "):
            key_dimension_bits(8, 4, 8, threshold_bits=bad)


@pytest.mark.parametrize("family", ["graph", "Permutation", None, 3, ["permutation"]])
def test_unknown_families_are_refused(family):
    with pytest.raises(ArgumentError, match="family = "):
        key_dimension_bits(8, 4, 8, family=family)


@pytest.mark.parametrize("relations", [None, -1, 65, 1.0, "3", True])
def test_digraphs_need_a_possible_number_of_relations(relations):
    with pytest.raises(ArgumentError, match="relations = "):
        family_log2(8, "digraph", relations)


def test_relations_of_the_other_families_are_their_items_or_absent():
    assert family_log2(8, "permutation", 8) == family_log2(8)
    for family in ("permutation", "functional"):
        for relations in (7, 0, -1, 8.0):
            with pytest.raises(ArgumentError, match="relations = "):
                family_log2(8, family, relations)


@pytest.mark.parametrize("digits", [1500, 5000])
def test_families_on_thousands_of_digits_of_items(digits):
    items = 10**digits
    bound = key_dimension_bits(items, 1, 1, family="functional")
    with mpmath.workdps(digits + 40):
        truth = int(mpmath.ceil(items * mpmath.log(items, 2) / 2))
    assert bound.value == truth
    assert len(str(bound)) < 1000 + 3 * digits
