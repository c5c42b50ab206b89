"""Balls, exact numbers in and out, rounding in the sound direction, and honest indecision."""

import decimal
import math
import pickle
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy
from flint import arb, ctx, fmpq, fmpz
from hypothesis import example, given
from hypothesis import strategies as st

from bounds.arithmetic import (
    Ball,
    ceiling,
    certain_ceiling,
    certified_ball,
    certify,
    exact_integer,
    exact_rational,
    integer_text,
    log2_text,
    parse_integer,
    precision,
    to_arb,
)
from bounds.errors import ArgumentError, UndecidedError

balls = st.builds(
    Ball,
    st.integers(-(2**80), 2**80),
    st.integers(-1200, 1200),
    st.integers(0, 2**30),
    st.integers(-1300, 1100),
)
small_fractions = st.fractions(-1000, 1000, max_denominator=10**6)


class Opaque:
    def __repr__(self):
        raise RuntimeError("no text for this")


@given(small_fractions, st.integers(20, 300))
def test_ball_contains_its_number_and_is_narrow(value, bits):
    ball = Ball.of(value, bits)
    assert value in ball
    assert ball.radius <= abs(value) / 2 ** (bits - 2)
    assert ball.lower <= value <= ball.upper
    assert ball.midpoint - ball.radius == ball.lower
    assert ball.upper + Fraction(1, 2**2000) not in ball
    assert ball.lower - Fraction(1, 2**2000) not in ball


@given(balls)
def test_exact_text_and_pickle_restore_every_bit(ball):
    for copy in (Ball.parse(ball.exact()), pickle.loads(pickle.dumps(ball))):
        assert copy == ball
        assert hash(copy) == hash(ball)
        assert (copy.mid_man, copy.mid_exp, copy.rad_man, copy.rad_exp) == (
            ball.mid_man, ball.mid_exp, ball.rad_man, ball.rad_exp,
        )  # fmt: skip


@given(balls)
def test_flint_ball_is_the_same_interval(ball):
    back = Ball.from_arb(ball.arb())
    assert back.midpoint == ball.midpoint
    assert ball in back
    assert back.radius <= ball.radius * (1 + Fraction(1, 2**29))


@given(balls)
@example(Ball(1, 1024, 0, 0))
@example(Ball(-1, 1024, 0, 0))
def test_float_ends_are_sound_and_next_to_the_ends(ball):
    low, high = ball.lower_float(), ball.upper_float()
    assert low == -math.inf or Fraction(low) <= ball.lower
    assert high == math.inf or Fraction(high) >= ball.upper
    assert not math.isinf(low) or ball.lower < -Fraction(1.7976931348623157e308)
    assert not math.isinf(high) or ball.upper > Fraction(1.7976931348623157e308)
    above, below = math.nextafter(low, math.inf), math.nextafter(high, -math.inf)
    assert math.isinf(above) or math.isinf(low) or Fraction(above) > ball.lower
    assert math.isinf(below) or math.isinf(high) or Fraction(below) < ball.upper


@given(balls, st.integers(1, 30))
def test_decimals_round_in_the_sound_direction(ball, digits):
    down, up = Fraction(ball.decimal(digits, "down")), Fraction(ball.decimal(digits, "up"))
    near = Fraction(ball.decimal(digits))
    step = Fraction(10) ** (1 - digits)
    assert ball.lower - abs(ball.lower) * step <= down <= ball.lower
    assert ball.upper <= up <= ball.upper + abs(ball.upper) * step
    assert abs(near - ball.midpoint) <= abs(ball.midpoint) * step / 2


def test_decimals_of_a_third():
    third = Ball.of(Fraction(1, 3))
    assert third.decimal(4, "down") == "0.3333"
    assert third.decimal(4, "up") == "0.3334"
    assert Ball.of(Fraction(-1, 3)).decimal(4, "down") == "-0.3334"
    assert Ball.of(0).decimal(5) == "0"
    assert float(third) == 1 / 3
    assert str(Ball.of(Fraction(1, 4))) == "0.25"
    assert "±" in str(third)
    assert str(third).startswith("0.3333333333")


def test_comparisons_decide_or_raise():
    third, wide = Ball.of(Fraction(1, 3)), Ball(1, -1, 1, -2)  # wide = [1/4, 3/4]
    assert third < 1
    assert not third > 1
    assert third > Fraction(33, 100)
    assert third >= 0
    assert third <= Fraction(1, 2)
    assert third < 1
    assert Fraction(1, 2) >= third
    assert wide <= Fraction(3, 4)
    assert wide >= Fraction(1, 4)
    assert not wide < Fraction(1, 4)
    assert not wide > Fraction(3, 4)
    for other in (third, Fraction(1, 2), wide):
        with pytest.raises(UndecidedError):
            _ = wide < other
        with pytest.raises(UndecidedError):
            _ = wide >= other
    with pytest.raises(UndecidedError):
        _ = third > Fraction(1, 3)
    with pytest.raises(UndecidedError):
        _ = wide < Fraction(3, 4)
    assert third in wide
    assert wide not in third
    assert Fraction(3, 4) in wide
    assert Fraction(76, 100) not in wide
    assert Ball.of(2) <= Ball.of(2)
    assert not Ball.of(2) < Ball.of(2)


@given(small_fractions, small_fractions)
def test_exact_balls_compare_like_numbers(left, right):
    one = Ball(left.numerator, 0, 0, 0)
    two = Ball(right.numerator, 0, 0, 0)
    assert one.is_exact
    assert (one < two) == (left.numerator < right.numerator)
    assert (one <= two) == (left.numerator <= right.numerator)
    assert (one > two) == (left.numerator > right.numerator)
    assert (one >= two) == (left.numerator >= right.numerator)


def test_balls_are_frozen_and_finite():
    ball = Ball.of(1)
    with pytest.raises((AttributeError, TypeError)):
        ball.mid_man = 2
    for value in (arb("nan"), arb("inf"), arb(1) / 0):
        with pytest.raises(UndecidedError):
            Ball.from_arb(value)


@pytest.mark.parametrize(
    "text", ["", "1/2", "0x1*2^0", "0x1*2^0 +/- -0x1*2^0", "0xg*2^0 +/- 0x0*2^0", "1*2^0 +/- 0*2^0"]
)
def test_parse_refuses_other_text(text):
    with pytest.raises(ArgumentError, match="ball = "):
        Ball.parse(text)


@pytest.mark.parametrize("value", [0.5, np.int64(3), "1/2", None])
def test_ball_of_something_else_is_an_argument_error_or_right(value):
    try:
        ball = Ball.of(value)
    except ArgumentError:
        return
    assert exact_rational(value, "value") in ball


@pytest.mark.parametrize(
    ("expression", "oracle"),
    [
        (sympy.pi, lambda: +mpmath.pi),
        (sympy.E, lambda: +mpmath.e),
        (sympy.sqrt(2) / 2, lambda: 1 / mpmath.sqrt(2)),
        (sympy.exp(-1), lambda: mpmath.exp(-1)),
        (sympy.log(3) - 1, lambda: mpmath.log(3) - 1),
        (sympy.sin(1), lambda: mpmath.sin(1)),
        (sympy.cos(1) ** 3, lambda: mpmath.cos(1) ** 3),
        (sympy.asin(sympy.Rational(1, 3)), lambda: mpmath.asin(mpmath.mpf(1) / 3)),
        (sympy.acos(sympy.Rational(-1, 3)), lambda: mpmath.acos(-mpmath.mpf(1) / 3)),
        (sympy.Rational(2) ** sympy.Rational(1, 3), lambda: mpmath.cbrt(2)),
        (sympy.pi ** sympy.Rational(-3, 2), lambda: mpmath.pi ** mpmath.mpf("-1.5")),
    ],
)
def test_sympy_numbers_become_balls(expression, oracle):
    ball = Ball.of(expression, 200)
    with mpmath.workprec(260):
        mantissa = int(mpmath.nint(oracle() * mpmath.mpf(2) ** 240))
    near = Fraction(mantissa, 2**240)
    assert ball.lower - Fraction(1, 2**238) <= near <= ball.upper + Fraction(1, 2**238)
    assert ball.radius < near / 2**180


def test_sympy_expressions_without_a_ball_are_refused():
    for expression in (sympy.Symbol("x"), sympy.zeta(3), sympy.tan(1), sympy.I):
        with pytest.raises(ArgumentError):
            to_arb(expression)


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (3, Fraction(3)),
        (Fraction(2, 7), Fraction(2, 7)),
        (0.05, Fraction(3602879701896397, 72057594037927936)),
        ("0.05", Fraction(1, 20)),
        ("1/20", Fraction(1, 20)),
        (" -3 / 4 ", Fraction(-3, 4)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("1e-3", Fraction(1, 1000)),
        ("2.5E+2", Fraction(250)),
        ("1_000", Fraction(1000)),
        ("0.1/0.3", Fraction(1, 3)),
        (decimal.Decimal("0.05"), Fraction(1, 20)),
        (decimal.Decimal("1e-400"), Fraction(1, 10**400)),
        (decimal.Decimal("1e400"), Fraction(10**400)),
        (np.float32(0.1), Fraction(13421773, 134217728)),
        (np.float64(0.5), Fraction(1, 2)),
        (np.float16(0.1), Fraction(float(np.float16(0.1)))),
        (np.int64(-7), Fraction(-7)),
        (np.uint64(2**64 - 1), Fraction(2**64 - 1)),
        (fmpz(5), Fraction(5)),
        (fmpq(5, 7), Fraction(5, 7)),
        (sympy.Rational(5, 7), Fraction(5, 7)),
        (sympy.Integer(5), Fraction(5)),
    ],
)
def test_exact_rational_is_what_the_number_says(value, exact):
    found = exact_rational(value, "x")
    assert type(found) is Fraction
    assert found == exact


def test_exact_rational_of_extended_precision_is_exact_or_refused():
    value = np.longdouble("0.1")
    try:
        found = exact_rational(value, "x")
    except ArgumentError:
        return
    assert found == Fraction(*value.as_integer_ratio())


@pytest.mark.parametrize(
    "bad",
    [
        True, False, np.True_, None, "", " ", "abc", "1/0", "0/0", "1/2/3", "/", "1/", "/2", "inf",
        "nan", "--1", "1e", "0x10", "1.2.3", "1e99999999", "٣", "½", float("nan"), float("inf"),
        -math.inf, np.float64("nan"), decimal.Decimal("nan"), decimal.Decimal("sNaN"),
        decimal.Decimal("-inf"), 1j, [1], b"1", sympy.pi, sympy.oo, sympy.nan, object(), Opaque(),
        Ball(1, 0, 0, 0),
    ],
)  # fmt: skip
def test_exact_rational_refuses_what_is_no_rational(bad):
    with pytest.raises(ArgumentError, match=r"^x = .* is not allowed"):
        exact_rational(bad, "x")


@given(st.fractions())
def test_exact_rational_reads_its_own_fractions(value):
    assert exact_rational(f"{value.numerator}/{value.denominator}", "x") == value
    assert exact_rational(str(value), "x") == value


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**300), max_value=10**300))
def test_exact_rational_reads_decimals(value):
    assert exact_rational(str(value), "x") == exact_rational(value, "x") == Fraction(value)


def test_exact_rational_of_thousands_of_digits():
    digits = "7" * 10_000
    assert exact_rational("0." + digits, "x") == Fraction(7 * (10**10_000 - 1) // 9, 10**10_000)


@pytest.mark.parametrize("cast", [int, np.int8, np.int64, np.uint16, fmpz, sympy.Integer])
def test_exact_integer_takes_integers(cast):
    found = exact_integer(cast(7), "n", 1)
    assert type(found) is int
    assert found == 7


@pytest.mark.parametrize(
    "bad",
    [
        True, np.True_, 7.0, np.float64(7), Fraction(7), "7", None, float("nan"), 7j, [7],
        np.array([7]), decimal.Decimal(7), sympy.Rational(7, 2), sympy.Float(7), 0, -1, 11, Opaque(),
        pytest.param(10**6000, id="long"), pytest.param(-(10**6000), id="long negative"),
    ],
)  # fmt: skip
def test_exact_integer_refuses_the_rest(bad):
    with pytest.raises(ArgumentError, match=r"n = .*an integer >= 1 and <= 10"):
        exact_integer(bad, "n", 1, 10)


def test_argument_error_text_is_short_for_huge_values():
    with pytest.raises(ArgumentError) as caught:
        exact_integer("9" * 100_000, "n", 1)
    assert len(str(caught.value)) < 300
    assert caught.value.name == "n"
    assert isinstance(caught.value, ValueError)


@given(st.fractions())
def test_ceiling_is_the_least_integer_above(value):
    assert ceiling(value) - 1 < value <= ceiling(value)


def test_certain_ceiling_decides_or_declines():
    with precision(100):
        assert certain_ceiling(arb(5)) == 5
        assert certain_ceiling(arb(16).sqrt()) in (4, None)
        assert certain_ceiling(arb.pi()) == 4
        assert certain_ceiling(-arb.pi()) == -3
        assert certain_ceiling(arb(5, 0.001)) is None
        assert certain_ceiling(arb("nan")) is None
        assert certain_ceiling(arb("inf")) is None
        assert certain_ceiling(arb(10) ** 25 + arb.pi()) == 10**25 + 4


def _log2_floor(value, digits):
    """The largest u with 2^u <= value^(10^digits)."""
    return (value ** (10**digits)).bit_length() - 1


@given(st.integers(1, 10**12))
def test_log2_text_is_rounded_down_exactly(value):
    units = _log2_floor(value, 2)
    assert log2_text(value, 2) == f"{units // 100}.{units % 100:02d}"


@pytest.mark.parametrize("power", [0, 1, 3, 100, 20_000])
def test_log2_text_of_a_power_of_two_is_that_power(power):
    assert log2_text(2**power) == f"{power}.0000"
    assert float(log2_text(2**power + 1)) >= power


def test_log2_text_of_huge_integers():
    assert log2_text(10**6000).startswith("19931.568")  # 6000 log2(10) = 19931.5685...
    assert log2_text(3**100_000, 3) == "158496.250"


@given(st.integers(), st.integers(0, 6000))
def test_integer_text_has_no_length_limit(value, zeros):
    big = value * 10**zeros
    text = integer_text(big)
    assert parse_integer(text) == big
    assert text == (str(value) + "0" * zeros if value else "0")


def test_integers_beyond_the_interpreters_limit():
    big = 10**5000 + 12345
    assert integer_text(big) == "1" + "0" * 4995 + "12345"
    assert parse_integer(integer_text(-big)) == -big
    ball = Ball.of(big, 20_000)
    assert big in ball
    assert Ball.parse(ball.exact()) == ball
    assert ball.decimal(3) == "1.00E+5000"


def test_certify_doubles_the_precision_and_stops_at_its_limit():
    seen = []

    def never(bits):
        seen.append((bits, ctx.prec))

    with pytest.raises(UndecidedError, match="the moon is undecided at 1000 bits"):
        certify(never, "the moon", start=100, limit=1000)
    assert seen == [(100, 100), (200, 200), (400, 400), (800, 800)]
    assert certify(lambda bits: bits if bits >= 300 else None, "it", start=128) == 512
    assert certify(lambda _: 0, "a false answer is an answer") == 0


def test_certify_restores_the_precision_after_an_exception():
    before = ctx.prec

    def broken(_):
        raise KeyError

    with pytest.raises(KeyError):
        certify(broken, "it")
    assert ctx.prec == before


@given(st.integers(1, 80))
def test_certified_ball_reaches_the_digits(digits):
    def cancelling(_):
        # 2 - sqrt(4 + 10^-60) loses sixty digits
        return (arb(4) + arb(10) ** -60).sqrt() - 2

    ball = certified_ball(cancelling, digits, "it")
    assert ball.radius <= ball.midpoint / 10**digits
    assert (ball.lower + 2) ** 2 <= 4 + Fraction(1, 10**60) <= (ball.upper + 2) ** 2
