"""Certified tails of series with a rational term ratio, against closed forms."""

import itertools
from fractions import Fraction

import mpmath
import pytest
from flint import arb, fmpq
from hypothesis import given
from hypothesis import strategies as st
from oracles.mpmath_numbers import fraction_of, is_near

from bounds.arithmetic import Ball, precision
from bounds.series import RationalRatioSeries, product_of_quarters


def _power_series(power):
    """sum (k+1)^-power: ratio ((k+1)/(k+2))^power."""
    return RationalRatioSeries(
        product_of_quarters([fmpq(1)] * power),
        product_of_quarters([fmpq(2)] * power),
        center=fmpq(3, 2),
        spread=1,
    )


def _tail(series, start, first, bits):
    with precision(bits + 64):
        return Ball.from_arb(series.tail(start, first(), bits))


@pytest.mark.parametrize("power", [2, 3, 4, 7])
@pytest.mark.parametrize("start", [0, 1, 10, 1000, 10**6, 10**12])
def test_tails_of_zeta_series(power, start):
    bits = 150
    ball = _tail(_power_series(power), start, lambda: 1 / arb(start + 1) ** power, bits)
    with mpmath.workdps(200):
        truth = mpmath.zeta(power, start + 1)
    assert is_near(ball, truth, Fraction(1, 10**60))
    assert ball.radius <= ball.midpoint / 2 ** (bits - 9)


@given(st.integers(0, 10**9), st.integers(10, 400))
def test_tail_of_inverse_squares_is_the_trigamma_function(start, bits):
    ball = _tail(_power_series(2), start, lambda: 1 / arb(start + 1) ** 2, bits)
    with mpmath.workprec(bits + 100):
        truth = mpmath.psi(1, start + 1)
    assert is_near(ball, truth, Fraction(1, 2 ** (bits + 60)))
    assert ball.radius <= ball.midpoint / 2 ** (bits - 9)


@given(st.integers(1, 60), st.integers(0, 300))
def test_telescoping_tails_are_exact(gap, start):
    # sum_{k >= K} 1 / ((k+1)(k+2)...(k+g+1)) = 1 / (g (K+1)...(K+g))
    series = RationalRatioSeries(
        product_of_quarters([fmpq(1)]),
        product_of_quarters([fmpq(gap + 2)]),
        center=fmpq(gap // 2 + 1),
        spread=gap // 2 + 2,
    )
    product = 1
    for k in range(1, gap + 1):
        product *= start + k
    ball = _tail(series, start, lambda: 1 / (arb(product) * (start + gap + 1)), 128)
    assert Fraction(1, gap * product) in ball
    assert ball.radius <= ball.midpoint / 2**119


def test_half_integer_series():
    # sum 1/(2k+1)^2 = pi^2/8
    series = RationalRatioSeries(
        product_of_quarters([fmpq(1, 2)] * 2),
        product_of_quarters([fmpq(3, 2)] * 2),
        center=fmpq(1),
        spread=1,
    )
    ball = _tail(series, 0, lambda: arb(1), 300)
    with mpmath.workdps(120):
        assert is_near(ball, mpmath.pi**2 / 8, Fraction(1, 10**110))
    assert ball.radius <= ball.midpoint / 2**291


def test_tail_keeps_the_error_of_its_first_term():
    with precision(128):
        ball = Ball.from_arb(_power_series(2).tail(10, arb(1, 2.0**-20) / 121, 100))
    with mpmath.workdps(50):
        truth = fraction_of(mpmath.psi(1, 11))
    assert truth in ball
    assert truth / 2**21 < ball.radius < truth / 2**18
    assert truth * (1 + Fraction(1, 2**21)) in ball


@given(st.integers(20, 5000), st.integers(0, 12))
def test_tail_factor_encloses_whatever_the_order(start, order):
    with precision(256):
        enclosure = _power_series(3).tail_factor(start, order)
    assert enclosure is not None
    ball = Ball.from_arb(enclosure)
    with mpmath.workdps(70):
        truth = mpmath.zeta(3, start + 1) * (start + 1) ** 3
    assert is_near(ball, truth, Fraction(1, 10**55))
    assert ball.radius < ball.midpoint / 10


def test_higher_orders_are_narrower():
    with precision(256):
        radii = [
            Ball.from_arb(_power_series(2).tail_factor(1000, order)).radius
            for order in (0, 2, 4, 8)
        ]
    assert all(after < before / 1000 for before, after in itertools.pairwise(radii))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 50))
def test_product_of_quarters_is_the_product(quarters, k):
    coefficients = product_of_quarters([fmpq(q, 4) for q in quarters])
    value = sum(c * k**power for power, c in enumerate(coefficients))
    expected = 1
    for q in quarters:
        expected *= 4 * k + q
    assert value == expected
