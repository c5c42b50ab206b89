"""H2: the reference tables, exact-rational and mpmath oracles, monotony, ties, broken input."""

import decimal
from fractions import Fraction
from time import perf_counter

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from oracles import mpmath_floor
from oracles.mpmath_numbers import fraction_of, is_near
from oracles.rational_floor import RationalFloor

from bounds import (
    NEAREST_NEIGHBOR,
    ArgumentError,
    Ball,
    Bound,
    HypothesisError,
    StepProfile,
    harmonic_dimension,
    head_dimension,
    head_floor,
    min_heads,
)
from bounds.arithmetic import precision
from bounds.spectrum import spectrum

VALUES = ("scalar", "general")
SMALL = [(d, r) for d in range(4, 13) for r in range(1, d - 2)]
sizes = st.integers(4, 40).flatmap(lambda d: st.tuples(st.just(d), st.integers(1, d - 3)))


def _floor(d, r, heads, values="general", digits=25, profile=NEAREST_NEIGHBOR):
    return head_floor(d, r, heads, values=values, digits=digits, profile=profile).value


@pytest.mark.parametrize(
    ("d", "r", "heads", "scalar", "general"),
    [
        (8, 1, 16, "0.1521068761", "0.1247823653"),
        (16, 4, 1000, "0.07407618495", "0.05914903921"),
        (64, 8, 10**6, "0.08399916496", "0.07555470526"),
    ],
)
def test_reference_floors(d, r, heads, scalar, general):
    assert _floor(d, r, heads, "scalar").decimal(10) == scalar
    assert _floor(d, r, heads, "general").decimal(10) == general
    for values, digits in (("scalar", scalar), ("general", general)):
        bound = head_floor(d, r, heads, values=values)
        assert (bound.kind, bound.status, bound.quantity) == ("lower", "proved", "error")
        assert bound.model.values == values
        assert bound.model.rank == r
        assert Fraction(bound.value_text()) <= bound.value.lower
        assert bound.value_text()[:10] == digits[:10]


@pytest.mark.parametrize(
    ("d", "r", "error", "scalar", "general"),
    [
        (16, 4, "1/10", 130, 27),
        (64, 8, "1/10", 12955, 2355),
        (64, 16, "1/20", 775586125, 68480786),
        (
            4096,
            64,
            "1/20",
            21177372101825230687209231006591363785259847,
            1045247992536750679513398989616271251540831,
        ),
    ],
)
def test_reference_head_counts(d, r, error, scalar, general):
    for values, heads in (("scalar", scalar), ("general", general)):
        bound = min_heads(d, r, error, values=values)
        assert type(bound.value) is int
        assert bound.value == heads
        assert (bound.kind, bound.status, bound.quantity) == ("lower", "proved", "heads")
        assert bound.parameters["error"] == Fraction(error)


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("d", range(4, 13))
def test_head_counts_against_exact_rationals(d, values):
    for r in range(1, d - 2):
        oracle = RationalFloor(d, r, values)
        for error in ("2/5", "1/4", "1/10", "0.05", "1/30"):
            heads = min_heads(d, r, error, values=values).value
            assert heads >= 1
            assert oracle.at_most(heads, Fraction(error))
            assert heads == 1 or not oracle.at_most(heads - 1, Fraction(error))


def test_the_rational_oracle_can_say_no():
    oracle = RationalFloor(12, 4, "general")
    heads = min_heads(12, 4, "1/20").value
    assert heads > 3
    assert oracle.at_most(heads, Fraction(1, 20))
    assert not oracle.at_most(heads - 1, Fraction(1, 20))
    low, high = oracle.bounds(heads, 512)
    assert 0 < high - low < Fraction(1, 10**12)


@pytest.mark.parametrize(("d", "r"), SMALL)
def test_floors_against_exact_rationals(d, r):
    for values in VALUES:
        oracle = RationalFloor(d, r, values)
        for heads in (1, 2, 7, 40):
            ball = _floor(d, r, heads, values)
            low, high = oracle.bounds(heads, 256)
            assert low <= ball.upper
            assert ball.lower <= high
            assert high - low < Fraction(heads, 1000)
            assert ball.radius <= ball.midpoint / 10**25
            assert ball.lower > 0


@pytest.mark.parametrize(
    ("d", "r", "heads"),
    [
        (4, 1, 1),
        (4, 1, 50),
        (5, 2, 3),
        (7, 4, 5),
        (9, 2, 40),
        (13, 3, 500),
        (30, 13, 3),
        (33, 8, 1),
    ],
)
@pytest.mark.parametrize("values", VALUES)
def test_floors_against_mpmath_to_twenty_digits(d, r, heads, values):
    with mpmath.workdps(32):
        truth = mpmath_floor.sign_floor(d, r, heads, values)
    ball = _floor(d, r, heads, values)
    assert is_near(ball, truth, Fraction(1, 10**20))
    assert ball.radius <= ball.midpoint / 10**25


@pytest.mark.parametrize(("d", "r"), [(6, 1), (9, 4), (24, 7), (25, 2)])
def test_captured_energy_is_a_hypergeometric_value(d, r):
    with precision(160):
        ball = Ball.from_arb(spectrum(d, r, "scalar", NEAREST_NEIGHBOR, 160).captured_tail(0))
    with mpmath.workdps(45):
        truth = mpmath_floor.captured_by_hypergeometric(d, r)
    assert is_near(ball, truth, Fraction(1, 10**35))
    assert ball.radius < ball.midpoint / 2**140


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize(("d", "r"), [(4, 1), (8, 1), (9, 6), (20, 11), (64, 16)])
def test_tails_of_the_spectrum_telescope(d, r, values):
    """T_i - T_{i+1} is one energy and B_i - B_{i+1} one captured energy, at every index."""
    with precision(200):
        terms = spectrum(d, r, values, NEAREST_NEIGHBOR, 200)
        for index in (0, 1, 2, 5, 16 * d - 1, 16 * d, 16 * d + 1, 5000):
            energy = Ball.from_arb(terms.energy_tail(index) - terms.energy_tail(index + 1))
            captured = Ball.from_arb(terms.captured_tail(index) - terms.captured_tail(index + 1))
            exact = NEAREST_NEIGHBOR.energy(d, 2 * index + 1, digits=30)
            degree = 2 * index + 1
            share = Fraction(
                head_dimension(d, r, degree, values=values), harmonic_dimension(d, degree)
            )
            assert abs(energy.midpoint - exact.midpoint) < exact.midpoint / 10**25
            assert abs(captured.midpoint - exact.midpoint * share) < exact.midpoint * share / 10**25
            assert share in Ball.from_arb(terms.share(index))


@given(sizes, st.integers(1, 10**6))
def test_floor_falls_with_heads_and_rank_and_general_values(size, heads):
    d, r = size
    here = _floor(d, r, heads, "general", 20)
    assert _floor(d, r, 2 * heads, "general", 20) < here
    assert here < _floor(d, r, heads, "scalar", 20)
    assert 0 < here < Fraction(1, 2)
    if r + 1 <= d - 3:
        for values in VALUES:
            assert _floor(d, r + 1, heads, values, 20) < _floor(d, r, heads, values, 20)


@given(sizes, st.fractions(Fraction(1, 50), Fraction(49, 100), max_denominator=1000), st.booleans())
def test_min_heads_is_the_inverse_of_the_floor(size, error, scalar):
    d, r = size
    values = "scalar" if scalar else "general"
    heads = min_heads(d, r, error, values=values).value
    digits = 12 + len(str(heads)) + d
    assert _floor(d, r, heads, values, digits) < error
    if heads > 1:
        assert _floor(d, r, heads - 1, values, digits) > error
    larger = min_heads(d, r, error + Fraction(1, 200), values=values).value
    assert larger <= heads
    if r + 1 <= d - 3:
        assert min_heads(d, r + 1, error, values=values).value <= heads
    assert min_heads(d, r, error, values="general").value <= heads


@pytest.mark.parametrize("d", [5, 8, 11])
def test_errors_on_either_side_of_a_breakpoint(d):
    # scalar values, r = 1: D = 1, so degree l leaves the sum at H = N(d, l) exactly
    for degree in (1, 3, 5):
        heads = harmonic_dimension(d, degree)
        ball = _floor(d, 1, heads, "scalar", 40)
        above, below = ball.upper, ball.lower - Fraction(1, 10**60)
        assert min_heads(d, 1, above, values="scalar").value == heads
        assert min_heads(d, 1, below, values="scalar").value == heads + 1


@pytest.mark.parametrize("error", ["1/2", 0.5, Fraction(1, 2), "0.500000001", 1, "7/3", 10**400])
def test_half_the_energy_needs_no_heads(error):
    for values in VALUES:
        bound = min_heads(9, 2, error, values=values)
        assert bound.value == 0
        assert bound.status == "vacuous"
        assert "{value}" not in str(bound)


def test_just_below_half_the_energy_needs_a_head():
    for error in ("0.4999999999999", Fraction(1, 2) - Fraction(1, 10**200)):
        bound = min_heads(9, 2, error)
        assert bound.value == 1
        assert bound.status == "proved"


@pytest.mark.parametrize("d", [4, 5, 8, 64, 300])
def test_the_largest_rank_is_allowed_and_the_next_is_not(d):
    assert 0 < _floor(d, d - 3, 1) < _floor(d, d - 3, 1, "scalar")
    assert min_heads(d, d - 3, "1/10").value >= 1
    for r in (d - 2, d - 1, d, d + 5):
        for ask in (lambda r: head_floor(d, r, 1), lambda r: min_heads(d, r, "1/10")):
            with pytest.raises(HypothesisError, match="r <= d - 3") as caught:
                ask(r)
            assert f"r = {r}" in str(caught.value)


@pytest.mark.parametrize(("d", "r"), [(3, 1), (2, 1), (3, 3)])
def test_small_dimensions_are_outside_the_hypotheses(d, r):
    with pytest.raises(HypothesisError):
        head_floor(d, r, 1)
    with pytest.raises(HypothesisError):
        min_heads(d, r, "1/10")


@pytest.mark.parametrize("bad", [0, -1, 1.0, "4", True, None, float("nan"), 4j, object(), [4]])
def test_bad_integers_name_the_argument(bad):
    with pytest.raises(ArgumentError, match="heads = "):
        head_floor(9, 2, bad)
    with pytest.raises(ArgumentError, match="r = "):
        head_floor(9, bad, 1)
    with pytest.raises(ArgumentError, match="d = "):
        min_heads(bad, 2, "1/10")
    with pytest.raises(ArgumentError, match="digits = "):
        head_floor(9, 2, 1, digits=bad)


@pytest.mark.parametrize(
    "bad",
    [
        0, -1, "-1/10", 0.0, -0.0, "0", float("nan"), float("inf"), -float("inf"), 1j, True, None,
        "abc", "1/0", "", object(), np.float64("nan"), np.bool_(True), sympy.pi / 30, sympy.oo, [0.1],
        decimal.Decimal("nan"), b"1/10",
    ],
)  # fmt: skip
def test_bad_errors_name_the_argument(bad):
    with pytest.raises(ArgumentError, match="error = "):
        min_heads(9, 2, bad)


@pytest.mark.parametrize("bad", ["vector", "Scalar", None, 1, ["general"]])
def test_bad_values_name_the_argument(bad):
    with pytest.raises(ArgumentError, match="values = "):
        head_floor(9, 2, 1, values=bad)
    with pytest.raises(ArgumentError, match="values = "):
        min_heads(9, 2, "1/10", values=bad)


@pytest.mark.parametrize("bad", ["nearest", None, 1, [0]])
def test_bad_profiles_name_the_argument(bad):
    with pytest.raises(ArgumentError, match="profile = "):
        head_floor(9, 2, 1, profile=bad)
    with pytest.raises(ArgumentError, match="profile = "):
        min_heads(9, 2, "1/10", profile=bad)


def test_a_float_is_taken_at_its_exact_value_and_text_as_it_says():
    text, number = min_heads(4096, 64, "0.05"), min_heads(4096, 64, 0.05)
    assert text.parameters["error"] == Fraction(1, 20)
    assert number.parameters["error"] == Fraction(0.05) > Fraction(1, 20)
    assert text.value > number.value
    assert text.value == min_heads(4096, 64, Fraction(1, 20)).value
    assert text.value == min_heads(4096, 64, decimal.Decimal("0.05")).value
    assert number.value == min_heads(4096, 64, np.float64(0.05)).value
    assert number.value == min_heads(4096, 64, Fraction(0.05)).value
    assert abs(text.value - number.value) < text.value // 10**13


def test_numpy_sizes_are_accepted():
    assert min_heads(np.int64(16), np.int32(4), "1/10").value == 27
    assert head_floor(np.int16(16), np.uint8(4), np.int64(1000)).value == _floor(
        16, 4, 1000, digits=15
    )


@pytest.mark.parametrize("values", VALUES)
def test_an_error_of_a_thousand_digits(values):
    long = "0.1" + "0" * 998 + "1"
    bound = min_heads(16, 4, long, values=values)
    assert bound.value == (27 if values == "general" else 130)
    assert bound.parameters["error"] == Fraction(1, 10) + Fraction(1, 10**1000)
    assert len(str(bound)) < 300
    assert Bound.from_json(bound.to_json()) == bound


@pytest.mark.parametrize("r", [1, 2, 5])
def test_very_small_errors(r):
    # T(L) ~ L^(-1/2) and N/D ~ L^(d-1-r) or so: H of many digits, and the tie broken exactly
    for error in (Fraction(1, 10**6), Fraction(1, 10**20)):
        for values in VALUES:
            heads = min_heads(8, r, error, values=values).value
            assert heads > 10**6
            digits = 3 * len(str(heads)) + 30
            assert _floor(8, r, heads, values, digits) < error
            assert _floor(8, r, heads - 1, values, digits) > error


@pytest.mark.parametrize(("d", "r"), [(10**6, 1), (10**6, 10), (10**6, 1000), (10**5, 50_000)])
def test_large_dimensions_are_fast_and_sound(d, r):
    start = perf_counter()
    for values in VALUES:
        heads = min_heads(d, r, "1/10", values=values).value
        assert heads >= 1
        assert _floor(d, r, heads, values, 60) < Fraction(1, 10)
        if heads > 1:
            assert _floor(d, r, heads - 1, values, 60) > Fraction(1, 10)
    assert perf_counter() - start < 20


@pytest.mark.parametrize(("d", "r", "heads"), [(8, 1, 16), (16, 4, 1000), (9, 6, 2), (6, 1, 1)])
@pytest.mark.parametrize("values", VALUES)
def test_the_floor_scales_with_the_square_of_the_jump(d, r, heads, values):
    plain = _floor(d, r, heads, values)
    for jump in (2, "-1/3"):
        scaled = _floor(d, r, heads, values, profile=StepProfile([0], [jump]))
        square = Fraction(jump) ** 2
        assert scaled.lower <= plain.upper * square
        assert plain.lower * square <= scaled.upper
        assert scaled.radius <= scaled.midpoint / 10**25
        error = Fraction(1, 20)
        assert (
            min_heads(d, r, error * square, values=values, profile=StepProfile([0], [jump])).value
            == min_heads(d, r, error, values=values).value
        )
    assert min_heads(d, r, "9/2", values=values, profile=StepProfile([0], [3])).value == 0
    assert min_heads(d, r, "4.4999", values=values, profile=StepProfile([0], [3])).value == 1


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize(
    ("d", "r", "heads", "steps"),
    [
        (8, 1, 16, [("1/3", 1)]),
        (10, 2, 30, [("-1/2", 2), ("0", -1), ("0.3", 1)]),
        (12, 1, 100, [("-1/4", 1), ("1/4", 1)]),
        (16, 4, 1000, [("-1/10", 1), ("1/10", -1)]),
    ],
)
def test_floors_of_step_profiles_against_a_direct_sum(d, r, heads, steps, values):
    profile = StepProfile([place for place, _ in steps], [size for _, size in steps])
    with mpmath.workdps(250):
        numbers = [
            (mpmath.mpf(Fraction(p).numerator) / Fraction(p).denominator, size) for p, size in steps
        ]
        low, high = mpmath_floor.step_floor(d, r, heads, values, numbers, 400)
    ball = _floor(d, r, heads, values, 9, profile)
    assert fraction_of(low) <= ball.upper
    assert ball.lower <= fraction_of(high)
    assert fraction_of(high - low) < ball.midpoint / 10**9
    assert ball.radius <= ball.midpoint / 10**9


def test_a_step_profile_near_the_sign_has_nearly_its_floor():
    sign, near = _floor(10, 2, 30), _floor(10, 2, 30, digits=9, profile=StepProfile(["1e-12"], [1]))
    assert sign.lower < near.upper + Fraction(1, 10**5)
    assert near.lower < sign.upper + Fraction(1, 10**5)
    assert near.midpoint != sign.midpoint


@pytest.mark.parametrize(
    ("d", "r", "place", "error"),
    [(6, 1, "1/3", "1/10"), (7, 1, "1/2", "1/10"), (8, 1, "-0.2", "1/6"), (12, 3, "0.3", "1/10")],
)
def test_min_heads_of_step_profiles_is_the_inverse_of_their_floor(d, r, place, error):
    profile = StepProfile([place], [1])
    heads = min_heads(d, r, error, profile=profile).value
    assert heads >= 2
    assert _floor(d, r, heads, digits=8, profile=profile) < Fraction(error)
    assert _floor(d, r, heads - 1, digits=8, profile=profile) > Fraction(error)


def test_a_step_profile_of_little_energy_needs_no_heads():
    # the variance of sgn(t - 1/2) on S^11 is 0.15
    bound = min_heads(12, 1, "1/10", profile=StepProfile(["1/2"], [1]))
    assert (bound.value, bound.status) == (0, "vacuous")


def test_the_bound_says_what_it_is_about():
    bound = head_floor(16, 4, 1000)
    assert bound.parameters == {
        "d": 16, "r": 4, "heads": 1000, "values": "general", "profile": "1*sgn(t - 0)",
    }  # fmt: skip
    text = str(bound)
    assert "1000 generalized rank-4 heads" in text
    assert "0.05914903921" in text
    assert "H2" in text
    assert "r <= d - 3 (4 <= 13)" in bound.hypotheses
    d, r, heads, ell = sympy.symbols("d r H ell", integer=True, positive=True)
    assert {d, r, heads} <= bound.statement.free_symbols
    assert ell not in bound.statement.free_symbols
