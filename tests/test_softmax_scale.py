"""H1: the error of one full-rank softmax head and the scale that is enough, against mpmath."""

import itertools
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.mpmath_numbers import is_near

from bounds import ArgumentError, HypothesisError, softmax_error, softmax_scale


def _error_by_quadrature(d, beta):
    """2 E[sigma(-beta sqrt2 |t|)^2] by quadrature in t = sin u, split where the logistic dies."""
    beta = mpmath.mpf(Fraction(beta).numerator) / Fraction(beta).denominator
    half = mpmath.pi / 2
    width = 1 / (1 + beta * mpmath.sqrt(2) + mpmath.sqrt(d))
    cuts = [0, *(width * 2**k for k in range(-2, 40) if width * 2**k < half), half]

    def integrand(u):
        return (
            mpmath.cos(u) ** (d - 2) / (1 + mpmath.exp(beta * mpmath.sqrt(2) * mpmath.sin(u))) ** 2
        )

    mass = mpmath.beta(mpmath.mpf(1) / 2, mpmath.mpf(d - 1) / 2)
    return 4 * mpmath.quad(integrand, cuts) / mass


@pytest.mark.parametrize("d", [3, 4, 7, 16, 33, 64])
@pytest.mark.parametrize("scale", ["1e-9", "1/3", 1, 20, 1000, 10**6])
def test_error_against_quadrature(d, scale):
    with mpmath.workdps(30):
        truth = _error_by_quadrature(d, Fraction(scale))
    bound = softmax_error(d, scale, digits=20)
    assert is_near(bound.value, truth, Fraction(1, 10**17))
    assert bound.value.radius <= bound.value.midpoint / 10**20
    assert (bound.kind, bound.status, bound.quantity) == ("exact", "certified", "error")


@pytest.mark.parametrize("d", [3, 8, 64, 4096])
def test_scale_zero_is_an_error_of_one_half(d):
    value = softmax_error(d, 0, digits=25).value
    assert Fraction(1, 2) in value
    assert value.radius < Fraction(1, 10**25)
    tiny = softmax_error(d, "1e-300", digits=25).value
    assert abs(tiny.midpoint - Fraction(1, 2)) < Fraction(1, 10**24)
    small = softmax_error(d, Fraction(1, 10**8)).value
    assert small < Fraction(1, 2) < small.upper + Fraction(1, 10**7)


def test_error_in_three_dimensions_has_a_closed_form():
    # d = 3: t is uniform, so the error is 2 int_0^1 (1 + e^(bt))^-2 dt, b = beta sqrt 2, whose
    # antiderivative is t - ln(1 + e^(bt)) / b + 1 / (b (1 + e^(bt)))
    for scale in (Fraction(1, 7), 3, 50):
        with mpmath.workdps(50):
            b = mpmath.mpf(Fraction(scale).numerator) / Fraction(scale).denominator * mpmath.sqrt(2)
            grown = mpmath.exp(b)
            value = 1 - mpmath.log((1 + grown) / 2) / b + (1 / (1 + grown) - mpmath.mpf(1) / 2) / b
            # at most a dozen digits cancel
            truth = 2 * value
        ball = softmax_error(3, scale, digits=25).value
        assert is_near(ball, truth, Fraction(1, 10**30))


@pytest.mark.parametrize("d", [3, 4, 5, 16, 64, 1000])
@pytest.mark.parametrize("error", ["0.49", "1/4", "1/10", "0.01", "1e-6"])
def test_the_scale_suffices(d, error):
    bound = softmax_scale(d, error)
    assert (bound.kind, bound.status, bound.quantity) == ("upper", "proved", "softmax scale")
    assert bound.value.radius <= bound.value.midpoint / 10**15
    assert softmax_error(d, bound.value.upper).value.lower <= Fraction(error)
    # at d = 3 the two differ by e^(-scale): a billionth more scale makes the difference plain
    larger = bound.value.upper * (1 + Fraction(1, 10**9))
    assert softmax_error(d, larger).value < Fraction(error)


@pytest.mark.parametrize("d", [3, 6, 64])
def test_the_scale_is_tight_as_the_error_vanishes(d):
    gaps = []
    for exponent in (1, 2, 3, 5, 8):
        error = Fraction(1, 10**exponent)
        found = softmax_error(d, softmax_scale(d, error).value.upper).value
        gaps.append(1 - found.midpoint / error)
    assert all(0 < after < before for before, after in itertools.pairwise(gaps)) or d == 3
    # d = 3: the density is flat, and the gap falls faster than any power
    assert -Fraction(1, 10**13) < gaps[-1] < Fraction(1, 10**9)
    smaller = softmax_scale(d, Fraction(1, 10**8)).value.lower * Fraction(999, 1000)
    assert softmax_error(d, smaller).value > Fraction(1, 10**8)


@settings(max_examples=20)
@given(st.integers(3, 100), st.fractions(0, 1000, max_denominator=100))
def test_error_falls_with_the_scale(d, scale):
    here, after = softmax_error(d, scale).value, softmax_error(d, scale + 1).value
    assert 0 < after < here <= Fraction(1, 2) + here.radius


@pytest.mark.parametrize("error", ["1/2", 0.5, 1, 10**30])
def test_at_half_the_scale_zero_is_enough(error):
    bound = softmax_scale(8, error)
    assert bound.value.is_exact
    assert bound.value.midpoint == 0
    assert bound.status == "vacuous"


def test_errors_beyond_floats_are_no_trouble():
    assert softmax_scale(8, 10**400).value.midpoint == 0
    tiny = softmax_scale(8, Fraction(1, 10**400))
    scaled = softmax_scale(8, Fraction(1, 10)).value
    assert abs(tiny.value.midpoint / 10**399 - scaled.midpoint) < scaled.midpoint / 10**14
    assert "<= 0 " not in str(tiny)
    assert "inf" not in str(tiny)


def test_a_scale_beyond_floats_is_no_trouble():
    found = softmax_error(8, 10**400).value
    # the error is 2 sqrt 2 c_8 (ln 2 - 1/2) / beta to first order
    first_order = softmax_scale(8, Fraction(1, 10)).value.midpoint / 10 / 10**400
    assert abs(found.midpoint - first_order) < first_order / 10**12


def test_small_dimensions_are_outside_the_hypotheses():
    for ask in (lambda: softmax_scale(2, "1/10"), lambda: softmax_error(2, 1)):
        with pytest.raises(HypothesisError, match="d >= 3"):
            ask()


@pytest.mark.parametrize(
    "bad", [float("nan"), float("inf"), "abc", "1/0", None, True, 1j, object(), -1]
)
def test_bad_numbers_name_the_argument(bad):
    with pytest.raises(ArgumentError, match="error = "):
        softmax_scale(8, bad)
    with pytest.raises(ArgumentError, match="scale = "):
        softmax_error(8, bad)
    with pytest.raises(ArgumentError, match="d = "):
        softmax_error(bad, 1)
    with pytest.raises(ArgumentError, match="digits = "):
        softmax_scale(8, "1/10", digits=bad)


def test_zero_error_is_refused_and_zero_scale_is_not():
    with pytest.raises(ArgumentError, match="error = 0"):
        softmax_scale(8, 0)
    assert softmax_error(8, 0).value > Fraction(49, 100)
