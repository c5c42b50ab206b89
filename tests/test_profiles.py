"""Step profiles: exact energies, Parseval, quadrature split at the steps, and broken input."""

import itertools
import pickle
from fractions import Fraction

import mpmath
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from oracles import harmonic_counts, rational_floor
from oracles.mpmath_numbers import fraction_of, is_near

from bounds.arithmetic import Ball, precision
from bounds.errors import ArgumentError
from bounds.profiles import NEAREST_NEIGHBOR, StepProfile

thresholds = st.lists(
    st.fractions(Fraction(-39, 40), Fraction(39, 40), max_denominator=40),
    min_size=1, max_size=4, unique=True,
)  # fmt: skip


@st.composite
def profiles(draw):
    places = draw(thresholds)
    nonzero = st.integers(-5, 5).filter(bool)
    sizes = draw(st.lists(nonzero, min_size=len(places), max_size=len(places)))
    return StepProfile(places, sizes)


def _as_rational(exact, d):
    """A sympy energy as the rational it is a multiple of: by 1 (odd d) or 1/pi^2 (even d)."""
    rational = sympy.sympify(exact) * (1 if d % 2 else sympy.pi**2)
    assert rational.is_Rational
    return Fraction(int(rational.p), int(rational.q))


def _distribution(d, tau):
    """Pr(t <= tau) by mpmath's incomplete beta function."""
    tail = mpmath.betainc(mpmath.mpf(1) / 2, mpmath.mpf(d - 1) / 2, 0, tau**2, regularized=True)
    return (1 + mpmath.sign(tau) * tail) / 2


def _quadrature_energy(d, degree, steps):
    """N (int c_d (1-t^2)^((d-3)/2) psi(t) P_l(t) dt)^2, panel by panel between the steps."""

    def integrand(u):
        t = mpmath.sin(u)
        value = mpmath.hyp2f1(-degree, degree + d - 2, mpmath.mpf(d - 1) / 2, (1 - t) / 2)
        return mpmath.cos(u) ** (d - 2) * value

    mass = mpmath.quad(lambda u: mpmath.cos(u) ** (d - 2), [-mpmath.pi / 2, 0, mpmath.pi / 2])
    total = mpmath.mpf(0)
    for tau, size in steps:
        cut = mpmath.asin(tau)
        below = mpmath.quad(integrand, [-mpmath.pi / 2, cut])
        above = mpmath.quad(integrand, [cut, mpmath.pi / 2])
        total += size * (above - below)
    return harmonic_counts.harmonics_by_series(d, degree) * (total / mass) ** 2


@pytest.mark.parametrize("d", [3, 4, 5, 6, 9, 12, 31])
def test_sign_energies_are_the_exact_rationals(d):
    for degree in (*range(1, 16), 41):
        exact = _as_rational(NEAREST_NEIGHBOR.energy_exact(d, degree), d)
        assert exact == rational_floor.sign_energy(d, degree)


@pytest.mark.parametrize("d", [3, 4, 6, 7, 33])
def test_energy_ball_contains_the_exact_energy_and_is_narrow(d):
    low, high = rational_floor.pi_bounds()
    for degree in (1, 2, 3, 9, 24, 61):
        for digits in (3, 40):
            ball = NEAREST_NEIGHBOR.energy(d, degree, digits=digits)
            exact = rational_floor.sign_energy(d, degree)
            ends = (exact, exact) if d % 2 else (exact / high**2, exact / low**2)
            assert ball.lower <= ends[0] <= ends[1] <= ball.upper
            assert ball.radius <= ball.midpoint / 10**digits


def test_known_energies():
    assert NEAREST_NEIGHBOR.energy_exact(3, 1) == sympy.Rational(3, 4)
    assert NEAREST_NEIGHBOR.energy_exact(3, 3) == sympy.Rational(7, 64)
    assert NEAREST_NEIGHBOR.energy_exact(5, 1) == sympy.Rational(45, 64)
    assert NEAREST_NEIGHBOR.energy_exact(2, 3) == 8 / (9 * sympy.pi**2)  # the square wave
    assert NEAREST_NEIGHBOR.energy_exact(7, 4) == 0
    assert NEAREST_NEIGHBOR.energy(7, 4) == Ball(0, 0, 0, 0)


@pytest.mark.parametrize(("d", "terms"), [(2, 4000), (3, 2000), (8, 2000), (65, 2000)])
def test_sign_energies_sum_to_one(d, terms):
    source = NEAREST_NEIGHBOR.energies(d, 200)
    with precision(200):
        total = Ball.from_arb(sum((next(source) for _ in range(terms)), start=next(source)))
    # the tail of the energies falls like sqrt(2 d / pi^3) * 2 / sqrt(terms) or faster
    assert 0 < 1 - total.upper < Fraction(mpmath.sqrt(4 * d / mpmath.mpf(terms)).__str__())
    assert total.radius < Fraction(1, 10**40)


@pytest.mark.parametrize("jump", [2, Fraction(-1, 3), "0.5"])
def test_a_multiple_of_the_sign_has_the_squared_energies(jump):
    profile = StepProfile([0], [jump])
    square = Fraction(jump) ** 2
    assert profile.energy_exact(5, 3) == sympy.Rational(square) * NEAREST_NEIGHBOR.energy_exact(
        5, 3
    )
    total = Ball.from_arb(profile.total_energy(5))
    assert square in total
    assert total.radius < Fraction(1, 10**12)
    assert profile.energy(5, 3).midpoint - square * NEAREST_NEIGHBOR.energy(5, 3).midpoint < 1e-15
    assert profile.energy(5, 3) > 0


@pytest.mark.parametrize("d", [3, 4, 7, 16])
def test_step_energies_against_quadrature_split_at_the_steps(d):
    steps = [(Fraction(-1, 2), 2), (Fraction(1, 10), -1), (Fraction(3, 4), 3)]
    profile = StepProfile([tau for tau, _ in steps], [size for _, size in steps])
    with mpmath.workdps(40):
        numbers = [(mpmath.mpf(tau.numerator) / tau.denominator, size) for tau, size in steps]
        for degree in (1, 2, 3, 8, 15):
            truth = _quadrature_energy(d, degree, numbers)
            ball = profile.energy(d, degree, digits=20)
            assert is_near(ball, truth, Fraction(1, 10**25))
            assert ball.radius <= ball.midpoint / 10**20
            exact = sympy.N(profile.energy_exact(d, degree), 35)
            assert abs(fraction_of(mpmath.mpf(exact)) - ball.midpoint) < ball.midpoint / 10**20


@given(profiles(), st.integers(2, 40), st.integers(1, 40))
def test_step_energies_against_the_sum_formula(profile, d, degree):
    """lambda_l of a step is the integral of the Gegenbauer polynomial, here by Rodrigues' formula."""
    with mpmath.workdps(60):
        half = mpmath.mpf(d) / 2
        factor = 2 * mpmath.gamma(half) / mpmath.gamma(half - mpmath.mpf(1) / 2)
        factor /= mpmath.sqrt(mpmath.pi) * (d - 1)
        total = mpmath.mpf(0)
        for place, size in zip(profile.thresholds, profile.jumps, strict=True):
            tau = Fraction(int(place.p), int(place.q))
            inner = harmonic_counts.normalized_gegenbauer(d + 2, degree - 1, tau)
            square = 1 - tau**2
            weight = mpmath.sqrt(mpmath.mpf(square.numerator) / square.denominator) ** (d - 1)
            total += int(size) * factor * weight * mpmath.mpf(inner.numerator) / inner.denominator
        truth = harmonic_counts.harmonics_by_series(d, degree) * total**2
        ball = profile.energy(d, degree)
        assert abs(fraction_of(truth) - ball.midpoint) <= ball.radius + Fraction(1, 10**40)
    if ball.midpoint > Fraction(1, 10**30):
        assert ball.radius <= ball.midpoint / 10**15


@given(profiles(), st.integers(2, 50))
def test_total_energy_is_the_variance_of_the_profile(profile, d):
    with mpmath.workdps(40):
        places = [mpmath.mpf(int(p.p)) / int(p.q) for p in profile.thresholds]
        sizes = [int(size) for size in profile.jumps]
        below = [mpmath.mpf(0), *(_distribution(d, tau) for tau in places), mpmath.mpf(1)]
        levels = [
            sum(size if place < index else -size for place, size in enumerate(sizes))
            for index in range(len(sizes) + 1)
        ]
        masses = [high - low for low, high in itertools.pairwise(below)]
        mean = sum(level * mass for level, mass in zip(levels, masses, strict=True))
        square = sum(level**2 * mass for level, mass in zip(levels, masses, strict=True))
        with precision(160):
            ball = Ball.from_arb(profile.total_energy(d))
        assert abs(fraction_of(square - mean**2) - ball.midpoint) < Fraction(1, 10**30)
        assert ball.radius < Fraction(1, 10**35)


@given(profiles(), st.integers(3, 20))
def test_energies_add_up_to_the_total(profile, d):
    source = profile.energies(d, 100)
    with precision(100):
        total = Ball.from_arb(profile.total_energy(d))
        energies = [next(source) for _ in range(400)]
        part = Ball.from_arb(sum(energies[1:], start=energies[0]))
    assert all(Ball.from_arb(energy).upper >= 0 for energy in energies)
    assert part.lower <= total.upper
    # what is missing falls like 1 / sqrt(degree)
    assert part.upper >= total.lower * Fraction(3, 4)


def test_energies_stream_agrees_with_single_energies():
    profile = StepProfile(["1/3", "-1/5"], [1, -2])
    for first in (1, 4, 100):
        source = profile.energies(6, 128, first=first)
        for degree in range(first, first + 200):
            found = Ball.from_arb(next(source))
            alone = profile.energy(6, degree)
            assert abs(found.midpoint - alone.midpoint) <= found.radius + alone.radius
            assert found.radius < Fraction(1, 10**30)


def test_profiles_of_one_parity_have_exact_zeros():
    odd = StepProfile(["-1/2", 0, "1/2"], [1, 3, 1])
    even = StepProfile(["-1/2", "1/2"], [1, -1])
    neither = StepProfile(["-1/2", "1/3"], [1, 1])
    assert (odd.parity(), even.parity(), neither.parity()) == (1, 0, None)
    assert NEAREST_NEIGHBOR.parity() == 1
    assert odd.energy(6, 4) == even.energy(6, 5) == Ball(0, 0, 0, 0)
    assert odd.energy(6, 5) > 0
    assert even.energy(6, 4) > 0
    assert neither.energy(6, 4) > 0
    assert StepProfile([-sympy.sqrt(2) / 2, sympy.sqrt(2) / 2], [2, 2]).parity() == 1


def test_a_zero_of_the_polynomial_is_an_energy_around_zero():
    # P_2 of S^4 (d + 2 = 5) is (5 t^2 - 1) / 4: lambda_3 vanishes at t = 1/sqrt 5 for d = 3
    ball = StepProfile([1 / sympy.sqrt(5)], [1]).energy(3, 3)
    assert 0 in ball
    assert ball.radius < Fraction(1, 2**1000)
    assert StepProfile(["0.447"], [1]).energy(3, 3) > 0


@pytest.mark.parametrize("place", [sympy.sqrt(2) / 2, sympy.pi / 4, sympy.cos(1), sympy.exp(-2)])
def test_sympy_thresholds_are_kept_and_right(place):
    profile = StepProfile([place], [sympy.sqrt(3)])
    assert profile.thresholds == (place,)
    with mpmath.workdps(40):
        tau = mpmath.mpf(sympy.N(place, 45))
        truth = _quadrature_energy(6, 5, [(tau, mpmath.sqrt(3))])
    ball = profile.energy(6, 5)
    assert is_near(ball, truth, Fraction(1, 10**25))
    with pytest.raises(ArgumentError, match="rational, for an exact energy"):
        profile.energy_exact(6, 5)


def test_thresholds_are_sorted_exactly_even_when_nearly_equal():
    near = Fraction(1, 3) + Fraction(1, 10**40)
    profile = StepProfile([near, "1/3"], [5, -5])
    assert profile.thresholds[0] == sympy.Rational(1, 3)
    assert profile.jumps == (-5, 5)
    # psi is -10 on an interval of length 1e-40 and 0 elsewhere: by the mean value theorem
    # lambda_1 = -10 * 1e-40 * (1/3) * density(1/3) up to a relative 1e-39
    ball = profile.energy(3, 1, digits=12)
    truth = 3 * (Fraction(10, 10**40) * Fraction(1, 3) / 2) ** 2
    assert abs(ball.midpoint - truth) < truth / 10**12
    assert ball.radius <= ball.midpoint / 10**12
    root = sympy.sqrt(2) / 2
    digits = sympy.Rational(int(sympy.floor(root * 10**40)), 10**40)
    assert StepProfile([root, digits], [1, 2]).thresholds == (digits, root)


def test_equal_profiles_compare_hash_and_pickle_alike():
    one = StepProfile(["0.5", 0], [1, 2])
    two = StepProfile([0, Fraction(1, 2)], [2.0, 1])
    assert one == two
    assert hash(one) == hash(two)
    assert pickle.loads(pickle.dumps(one)) == two
    assert one != StepProfile([0, Fraction(1, 2)], [1, 2])
    assert StepProfile([0], [1]) == NEAREST_NEIGHBOR
    assert StepProfile([0.05], [1]) != StepProfile(["0.05"], [1])
    with pytest.raises(AttributeError):
        one.jumps = (1,)
    assert str(NEAREST_NEIGHBOR) == "1*sgn(t - 0)"


@pytest.mark.parametrize(
    ("places", "sizes"),
    [
        ([], []),
        ([0], []),
        ([0, "1/2"], [1]),
        ([1], [1]),
        ([-1], [1]),
        ([1.5], [1]),
        ([10**5000], [1]),
        ([sympy.sqrt(2)], [1]),
        ([0, 0], [1, 1]),
        (["0.5", Fraction(1, 2)], [1, 1]),
        ([sympy.sqrt(2) / 2, 1 / sympy.sqrt(2)], [1, 1]),
        ([0], [0]),
        ([0], ["0.0"]),
        ([float("nan")], [1]),
        ([0], [float("nan")]),
        ([0], [float("inf")]),
        ([0], [sympy.oo]),
        ([sympy.nan], [1]),
        ([0.5j], [1]),
        ([sympy.I / 2], [1]),
        (["abc"], [1]),
        (["1/0"], [1]),
        ([None], [1]),
        ([True], [1]),
        ([sympy.Symbol("t")], [1]),
        ([sympy.tan(1) / 2], [1]),
        ([[0]], [1]),
    ],
    ids=lambda value: "long" if value == [10**5000] else str(value),
)
def test_broken_profiles_are_refused(places, sizes):
    with pytest.raises(ArgumentError):
        StepProfile(places, sizes)


@pytest.mark.parametrize("places", [0, 0.5, None])
def test_a_bare_number_is_not_a_list_of_thresholds(places):
    with pytest.raises(ArgumentError):
        StepProfile(places, [1])


@pytest.mark.parametrize(("d", "degree"), [(1, 1), (4, 0), (4, -1), (4.0, 1), (4, 1.0), ("4", 1)])
def test_energy_sizes_are_checked(d, degree):
    for ask in (NEAREST_NEIGHBOR.energy, NEAREST_NEIGHBOR.energy_exact):
        with pytest.raises(ArgumentError):
            ask(d, degree)
    with pytest.raises(ArgumentError, match="digits"):
        NEAREST_NEIGHBOR.energy(4, 1, digits=0)


@pytest.mark.parametrize(
    ("d", "degree"), [(3, 1001), (4, 2001), (64, 2001), (4096, 5), (4096, 401), (10**6, 3)]
)
def test_sign_energies_at_large_sizes(d, degree):
    with mpmath.workdps(50):
        # |lambda_l| = (2 c_d / (d-1)) (1/2)_k / ((d+1)/2)_k, l = 2k+1, in the log domain
        k = (degree - 1) // 2
        half, upper = mpmath.mpf(1) / 2, mpmath.mpf(d + 1) / 2
        log_value = mpmath.loggamma(mpmath.mpf(d) / 2) - mpmath.loggamma(mpmath.mpf(d - 1) / 2)
        log_value += mpmath.log(2 / (mpmath.sqrt(mpmath.pi) * (d - 1)))
        log_value += mpmath.loggamma(half + k) - mpmath.loggamma(half)
        log_value -= mpmath.loggamma(upper + k) - mpmath.loggamma(upper)
        count = (
            mpmath.loggamma(degree + d - 2) - mpmath.loggamma(degree + 1) - mpmath.loggamma(d - 1)
        )
        truth = mpmath.exp(2 * log_value + count) * (2 * degree + d - 2)
    ball = NEAREST_NEIGHBOR.energy(d, degree, digits=25)
    assert is_near(ball, truth, Fraction(1, 10**35))
    assert ball.radius <= ball.midpoint / 10**25


@pytest.mark.parametrize(("d", "degree"), [(3, 2000), (8, 2000), (4096, 6), (10**6, 2)])
def test_step_energies_at_large_sizes(d, degree):
    place = Fraction(1, 3) if d < 100 else Fraction(1, 200)
    ball = StepProfile([place], [1]).energy(d, degree, digits=25)
    with mpmath.workdps(60):
        tau = mpmath.mpf(place.numerator) / place.denominator
        log_c = mpmath.loggamma(mpmath.mpf(d) / 2) - mpmath.loggamma(mpmath.mpf(d - 1) / 2)
        factor = 2 * mpmath.exp(log_c) / (mpmath.sqrt(mpmath.pi) * (d - 1))
        inner = _legendre_like(d + 2, degree - 1, tau)
        count = mpmath.binomial(degree + d - 1, degree) - mpmath.binomial(
            degree + d - 3, degree - 2
        )
        truth = count * (factor * mpmath.sqrt(1 - tau**2) ** (d - 1) * inner) ** 2
    assert is_near(ball, truth, Fraction(1, 10**35))
    assert ball.radius <= ball.midpoint / 10**25


def _legendre_like(d, degree, t):
    """P_l(t) by Clenshaw's backward recurrence on scaled values: stable, all digits kept."""
    with mpmath.workdps(60 + degree):
        high, low = mpmath.mpf(0), mpmath.mpf(1)
        for k in range(degree - 1, -1, -1):
            alpha = (2 * k + d - 2) * t / (k + d - 2) if k else t
            beta = -mpmath.mpf(k + 1) / (k + 1 + d - 2)
            high, low = low, alpha * low + beta * high
        return low
