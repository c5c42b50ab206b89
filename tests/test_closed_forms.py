"""H4: closed forms against exact floors, exact rationals and mpmath."""

from fractions import Fraction
from math import comb

import mpmath
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from bounds import NEAREST_NEIGHBOR, ArgumentError, HypothesisError, head_floor, min_heads
from bounds.closed_forms import (
    ENERGY,
    RATE,
    TAIL_LOWER,
    TAIL_UPPER,
    closed_form_heads,
    growth_rate,
    growth_remainder,
    tail_energy,
    tail_energy_bounds,
)


@pytest.mark.parametrize("d", [3, 4, 5, 8, 9])
@pytest.mark.parametrize("k", [0, 1, 2, 5])
def test_energy_expression_is_the_energy_exactly(d: int, k: int) -> None:
    names = {symbol.name: symbol for symbol in ENERGY.free_symbols}
    value = ENERGY.subs({names["d"]: d, names["k"]: k})
    assert sympy.simplify(value - NEAREST_NEIGHBOR.energy_exact(d, 2 * k + 1)) == 0


@given(st.integers(3, 3000), st.integers(0, 3000))
def test_tail_lies_between_its_bounds(d: int, half: int) -> None:
    degree = 2 * half + 1
    lower, upper = tail_energy_bounds(d, degree)
    tail = tail_energy(d, degree)
    assert lower.value < tail < upper.value
    assert upper.value.upper / lower.value.lower < 1 + Fraction(4, degree)


def test_tail_bounds_hold_far_out() -> None:
    for d in (3, 64, 10**6):
        for degree in (10**6 + 1, 10**12 + 1, 10**40 + 1):
            lower, upper = tail_energy_bounds(d, degree, digits=120)
            assert lower.value < tail_energy(d, degree, digits=120) < upper.value


@pytest.mark.parametrize(("d", "degree"), [(3, 7), (8, 21), (64, 9), (65, 33)])
def test_tail_is_one_minus_the_energies(d: int, degree: int) -> None:
    low = sum(NEAREST_NEIGHBOR.energy_exact(d, ell) for ell in range(1, degree + 1, 2))
    with mpmath.workdps(40):
        expected = mpmath.mpf(1) - mpmath.mpf(sympy.N(low, 40))
    assert abs(float(tail_energy(d, degree)) - float(expected)) < 1e-14


def test_tail_expressions_evaluate_to_the_bounds() -> None:
    lower, upper = tail_energy_bounds(12, 5)
    for expression, bound in ((TAIL_LOWER, lower), (TAIL_UPPER, upper)):
        names = {symbol.name: symbol for symbol in expression.free_symbols}
        value = expression.subs({names["d"]: 12, names["L"]: 5})
        assert abs(float(value) - float(bound.value)) < 1e-14


@given(st.integers(4, 200), st.data())
def test_closed_form_never_exceeds_the_exact_count(d: int, data: st.DataObject) -> None:
    r = data.draw(st.integers(1, d - 3))
    error = Fraction(1, data.draw(st.integers(3, 200)))
    values = data.draw(st.sampled_from(["general", "scalar"]))
    closed = closed_form_heads(d, r, error, values=values)
    exact = min_heads(d, r, error, values=values)
    assert 0 <= closed.value <= exact.value
    if closed.value:
        degree = closed.parameters["degree"]
        floor = head_floor(d, r, max(1, closed.value - 1), values=values)
        assert floor.value > error or closed.value == 1
        # the elementary form of the page: N/D >= ((d+l-3)/(r+l-1))^l / (3 + min(r, l))
        base = Fraction(d + degree - 3, r + degree - 1) ** degree
        assert closed.value >= base / (2 * (3 + min(r, degree)))


def test_closed_form_grows_like_one_over_error_squared() -> None:
    degrees = [
        closed_form_heads(10**6, 8, Fraction(1, n)).parameters["degree"] for n in (100, 200, 400)
    ]
    assert degrees[1] / degrees[0] == pytest.approx(4, rel=0.05)
    assert degrees[2] / degrees[1] == pytest.approx(4, rel=0.05)


def test_closed_form_is_vacuous_at_large_errors() -> None:
    assert closed_form_heads(64, 8, "1/3").status == "vacuous"


@given(st.integers(3, 400), st.data())
def test_growth_remainder_encloses_the_exact_logarithm(d: int, data: st.DataObject) -> None:
    r = data.draw(st.integers(1, d - 1))
    degree = data.draw(st.integers(1, 5 * d))
    low, high = growth_remainder(d, r, degree)
    n = comb(degree + d - 1, degree) - (comb(degree + d - 3, degree - 2) if degree > 1 else 0)
    m = comb(degree + r - 1, degree)
    with mpmath.workdps(60):
        exact = mpmath.log(mpmath.mpf(n) / m, 2)
        rate = growth_rate(Fraction(degree, d), Fraction(r, d), digits=40)
        gap = exact - d * mpmath.mpf(rate.midpoint.numerator) / rate.midpoint.denominator
        assert float(low.lower) - 1e-12 <= gap <= float(high.upper) + 1e-12


def test_rate_expression_and_positivity() -> None:
    names = {symbol.name: symbol for symbol in RATE.free_symbols}
    for alpha in (Fraction(1, 100), Fraction(1), Fraction(9)):
        for rho in (Fraction(1, 100), Fraction(1, 2), Fraction(99, 100)):
            ball = growth_rate(alpha, rho)
            assert ball > 0
            value = RATE.subs(
                {
                    names["alpha"]: sympy.Rational(alpha.numerator, alpha.denominator),
                    names["rho"]: sympy.Rational(rho.numerator, rho.denominator),
                }
            )
            assert abs(float(value) - float(ball)) < 1e-12


def test_refusals() -> None:
    with pytest.raises(HypothesisError, match="d >= 3"):
        tail_energy(2, 1)
    with pytest.raises(HypothesisError, match="odd"):
        tail_energy_bounds(5, 2)
    with pytest.raises(HypothesisError, match="r <= d - 3"):
        closed_form_heads(5, 3, "1/10")
    with pytest.raises(ArgumentError, match="rho"):
        growth_rate(1, 1)
