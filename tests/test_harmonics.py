"""Dimensions, the density of <w, y> and Gegenbauer values against brute force and mpmath."""

from fractions import Fraction
from itertools import islice
from math import comb

import mpmath
import numpy as np
import pytest
import sympy
from flint import arb, ctx, fmpz
from hypothesis import given
from hypothesis import strategies as st
from oracles import harmonic_counts
from oracles.mpmath_numbers import is_near

from bounds.arithmetic import Ball, precision
from bounds.errors import ArgumentError
from bounds.harmonics import (
    density_constant,
    density_constant_ball,
    gegenbauer_values,
    harmonic_dimension,
    head_dimension,
    invariant_dimension,
)

VALUES = ("general", "scalar")


@pytest.mark.parametrize("d", range(2, 7))
def test_harmonic_dimension_is_the_kernel_of_the_laplacian(d):
    for degree in range(6 if d < 5 else 5):
        kernel = harmonic_counts.monomials(d, degree) - harmonic_counts.laplacian_rank(d, degree)
        assert harmonic_dimension(d, degree) == kernel


@given(st.integers(2, 40), st.integers(0, 60))
def test_harmonic_dimension_by_generating_function(d, degree):
    assert harmonic_dimension(d, degree) == harmonic_counts.harmonics_by_series(d, degree)


def test_harmonic_dimension_in_the_plane_and_in_space():
    assert [harmonic_dimension(2, k) for k in range(5)] == [1, 2, 2, 2, 2]
    assert [harmonic_dimension(3, k) for k in range(50)] == [2 * k + 1 for k in range(50)]


@pytest.mark.parametrize("r", range(1, 7))
def test_invariant_dimension_counts_monomials(r):
    for degree in range(8):
        assert invariant_dimension(r, degree) == harmonic_counts.monomials(r, degree)


@given(st.data())
def test_harmonics_split_under_rotations_of_a_subspace_and_its_complement(data):
    d = data.draw(st.integers(4, 60))
    r = data.draw(st.integers(1, d - 2))
    degree = data.draw(st.integers(0, 40))
    parts = (
        invariant_dimension(r, degree - j) * harmonic_dimension(d - r, j) for j in range(degree + 1)
    )
    assert harmonic_dimension(d, degree) == sum(parts)


@given(st.data())
def test_head_dimension_is_the_formula_and_is_at_most_all_harmonics(data):
    d = data.draw(st.integers(4, 80))
    r = data.draw(st.integers(1, d - 3))
    degree = data.draw(st.integers(1, 80))

    def m(k):
        return harmonic_counts.harmonics_by_series(r + 1, k) if k == 0 else comb(r + k - 1, r - 1)

    below = m(degree - 1)
    below_two = m(degree - 2) if degree >= 2 else 0
    general = m(degree) + min(r * below + m(degree), (d - r) * below) + below_two
    assert head_dimension(d, r, degree) == general
    assert head_dimension(d, r, degree, values="scalar") == m(degree)
    assert m(degree) <= general <= harmonic_dimension(d, degree)


@given(st.data())
def test_shares_fall_strictly_with_the_degree(data):
    d = data.draw(st.integers(4, 60))
    r = data.draw(st.integers(1, d - 3))
    degree = data.draw(st.integers(1, 200))
    for values in VALUES:
        here, after = (
            Fraction(head_dimension(d, r, k, values=values), harmonic_dimension(d, k))
            for k in (degree, degree + 1)
        )
        assert after < here


@pytest.mark.parametrize(
    ("d", "r", "ranks"),
    [(5, 1, (3, 4, 4, 4)), (6, 2, (6, 11, 16)), (6, 3, (6, 16, 31)), (7, 3, (7, None, 37))],
)
def test_head_dimension_at_the_measured_ranks(d, r, ranks):
    for degree, rank in enumerate(ranks, start=1):
        if rank is not None and (d, degree) != (7, 1):
            assert head_dimension(d, r, degree) == rank


def test_big_dimensions_are_exact_integers():
    value = harmonic_dimension(4096, 2000)
    assert type(value) is int
    # N(d, l) = (2l + d - 2) / (d - 2) binom(l + d - 3, l)
    assert value * 4094 == (2 * 2000 + 4094) * comb(2000 + 4093, 2000)
    assert value.bit_length() > 1024  # past every float
    assert type(head_dimension(4096, 1000, 2000)) is int
    assert 0 < head_dimension(4096, 1000, 2000) < value
    assert harmonic_dimension(10**6, 3) == comb(10**6 + 2, 3) - 10**6
    assert invariant_dimension(10**6, 2) == 10**6 * (10**6 + 1) // 2


def test_numpy_and_flint_sizes_give_python_integers():
    for cast in (np.int32, np.int64, np.uint8, fmpz, sympy.Integer):
        value = harmonic_dimension(cast(200), cast(100))
        assert type(value) is int
        assert value == harmonic_dimension(200, 100) > 2**128


@pytest.mark.parametrize("bad", [1, 0, -3, 2.0, "4", True, None, float("nan"), 3 + 0j])
def test_bad_sizes_name_the_argument(bad):
    with pytest.raises(ArgumentError, match="d = "):
        harmonic_dimension(bad, 2)
    with pytest.raises(ArgumentError, match="d = "):
        density_constant(bad)
    with pytest.raises(ArgumentError, match="degree = "):
        harmonic_dimension(4, -1 if bad in (1, 0) else bad)
    with pytest.raises(ArgumentError, match="r = "):
        invariant_dimension(0 if bad == 1 and bad is not True else bad, 2)


def test_rank_and_values_out_of_range_are_refused():
    with pytest.raises(ArgumentError, match="r = 5"):
        head_dimension(4, 5, 1)
    for values in ("Scalar", "", None, 1):
        with pytest.raises(ArgumentError, match="values = "):
            head_dimension(6, 2, 1, values=values)


@pytest.mark.parametrize("d", [2, 3, 4, 5, 8, 17, 64])
def test_density_constant_normalises_the_density(d):
    with mpmath.workdps(40):
        # t = sin u: the mass of (1 - t^2)^((d-3)/2) dt is that of cos(u)^(d-2) du
        mass = mpmath.quad(lambda u: mpmath.cos(u) ** (d - 2), [-mpmath.pi / 2, 0, mpmath.pi / 2])
        assert abs(mpmath.mpf(sympy.N(density_constant(d), 40)) * mass - 1) < mpmath.mpf(10) ** -35


@pytest.mark.parametrize("d", range(2, 20))
def test_density_constant_is_rational_or_rational_over_pi(d):
    exact = sympy.gamma(sympy.Rational(d, 2)) / (
        sympy.sqrt(sympy.pi) * sympy.gamma(sympy.Rational(d - 1, 2))
    )
    assert density_constant(d) == exact
    assert (density_constant(d) * (1 if d % 2 else sympy.pi)).is_Rational


@pytest.mark.parametrize("d", [2, 3, 64, 65, 4096, 10**6, 10**9])
def test_density_ball_contains_the_constant_and_is_narrow(d):
    with precision(200), mpmath.workdps(80):
        ball = Ball.from_arb(density_constant_ball(d))
        half = mpmath.mpf(d) / 2
        log_value = mpmath.loggamma(half) - mpmath.loggamma(half - mpmath.mpf(1) / 2)
        truth = mpmath.exp(log_value) / mpmath.sqrt(mpmath.pi)
    assert is_near(ball, truth, Fraction(1, 10**60))
    assert 0 < ball.radius < ball.midpoint / 2**150
    if d < 5000 and d % 2:
        exact = density_constant(d)
        assert Fraction(int(exact.p), int(exact.q)) in ball


@given(st.integers(2, 30), st.integers(0, 25), st.fractions(-1, 1, max_denominator=50))
def test_gegenbauer_values_contain_the_exact_rational(d, degree, t):
    with precision(160):
        value = next(islice(gegenbauer_values(d, arb(t.numerator) / t.denominator), degree, None))
        ball = Ball.from_arb(value)
    assert harmonic_counts.normalized_gegenbauer(d, degree, t) in ball
    assert ball.radius < Fraction(1, 2**100)


@pytest.mark.parametrize("d", [2, 3, 6, 129, 1000])
def test_gegenbauer_values_against_mpmath(d):
    t = mpmath.mpf("0.3")
    with mpmath.workdps(60), precision(400):
        t = mpmath.mpf(3) / 10
        values = list(islice(gegenbauer_values(d, arb(3) / 10), 61))
        for degree in (0, 1, 2, 7, 30, 60):
            if d == 2:
                truth = mpmath.cos(degree * mpmath.acos(t))
            else:
                # P_l(t) = 2F1(-l, l+d-2; (d-1)/2; (1-t)/2)
                truth = mpmath.hyp2f1(-degree, degree + d - 2, mpmath.mpf(d - 1) / 2, (1 - t) / 2)
            found = mpmath.mpf(values[degree].str(50, radius=False))
            assert abs(found - truth) < mpmath.mpf(10) ** -40
            assert values[degree].rad() < arb(10) ** -40


def test_gegenbauer_values_at_the_ends_and_bounded_by_one():
    for d in (2, 5, 512):
        with precision(64):
            ones = islice(gegenbauer_values(d, arb(1)), 300)
            assert all(value.contains(1) and value.rad() < 1e-10 for value in islice(ones, 20))
        with precision(1000):
            for value in islice(gegenbauer_values(d, arb(1) / 3), 400):
                assert value.is_finite()
                assert abs(value) <= 1


def test_precision_is_left_as_it_was():
    before = ctx.prec
    density_constant_ball(10)
    with precision(333):
        density_constant_ball(10)
    assert ctx.prec == before
