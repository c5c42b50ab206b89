"""H8: energies, dimension count and floors for the nearest neighbour among N points."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice, pairwise
from math import comb, gamma, pi, sqrt

import numpy as np
import pytest
from flint import arb, nmod_mat
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from test_dimension_count import PRIME, Polynomial, harmonics, mean_given_u, random_matrix, times

from bounds.arithmetic import Ball
from bounds.bound import Bound
from bounds.context_energies import ThresholdDensity, context_energies, nonpositive_chance
from bounds.context_floor import context_dimension, context_floor, context_min_heads
from bounds.errors import ArgumentError, HypothesisError
from bounds.harmonics import Values, harmonic_dimension
from bounds.head_floor import head_floor
from bounds.profiles import NEAREST_NEIGHBOR

VALUES: tuple[Values, Values] = ("scalar", "general")


def ball(bound: Bound) -> Ball:
    assert isinstance(bound.value, Ball)
    return bound.value


def kernel_energy(d: int, context: int, degree: int) -> float:
    """The energy from the two-point kernel of Gaussians, which knows neither tau nor its law.

    N(n,l) 2c/(pi(n-1)) int (1-q^2)^((n-2)/2) P_(l-1)(q) A(1+q) dq, A(p) = E exp(-Z_+^2 / p).
    """
    n, rivals = d - context + 1, context - 2
    m, m_weight = np.linspace(-9, 9, 401), 18 / 400
    law = rivals * stats.norm.pdf(m) * stats.norm.cdf(m) ** (rivals - 1) * m_weight
    zero = (law * stats.norm.cdf(-sqrt(2) * m)).sum()
    u, u_weight = np.polynomial.legendre.leggauss(80)
    u, u_weight = pi / 2 * (1 + u), pi / 2 * u_weight
    a = np.sqrt((1 + np.cos(u)) / (3 + np.cos(u)))[:, None]
    smoothed = law * np.exp(-(m**2) * (1 - a**2)) * stats.norm.cdf(sqrt(2) * m * a)
    kernel = zero + (a * smoothed).sum(axis=1)
    polynomial = special.eval_gegenbauer(degree - 1, n / 2, np.cos(u))
    polynomial /= special.eval_gegenbauer(degree - 1, n / 2, 1.0)
    c = gamma(n / 2) / gamma((n - 1) / 2) / sqrt(pi)
    total = float((u_weight * np.sin(u) ** (n - 1) * polynomial * kernel).sum())
    return harmonic_dimension(n, degree) * 2 * c / (pi * (n - 1)) * total


@pytest.mark.parametrize(("d", "context"), [(6, 3), (8, 4), (12, 6), (20, 9)])
@pytest.mark.parametrize("degree", [1, 3, 7])
def test_energies_are_those_of_the_two_point_kernel(d: int, context: int, degree: int) -> None:
    value = context_energies(d, context, 9, 64)[degree // 2]
    assert value.rad() < 1e-15
    assert abs(float(value) - kernel_energy(d, context, degree)) < 1e-9


@pytest.mark.parametrize(("d", "last"), [(6, 9), (40, 31)])
def test_two_points_have_the_sign_energies_one_dimension_down(d: int, last: int) -> None:
    for energy, known in zip(
        context_energies(d, 2, last, 80),
        islice(NEAREST_NEIGHBOR.energies(d - 1, 80), 0, last, 2),
        strict=True,
    ):
        assert energy.overlaps(known)
        assert energy.rad() < 1e-20


@pytest.mark.parametrize(("d", "context"), [(6, 3), (12, 4), (24, 6)])
def test_energies_approach_their_total(d: int, context: int) -> None:
    heads = [sum(context_energies(d, context, last, 64), arb(0)) for last in (15, 63, 127)]
    gaps = [float(arb(2) / context - head) for head in heads]
    assert all(low > high > 0 for low, high in pairwise(gaps))
    # steps leave a tail like L^(-1/2) below d, like L^(-1) beyond
    assert 0.35 < gaps[2] / gaps[1] < 0.75


def test_chance_that_a_near_tie_leads() -> None:
    third = (arb(1) / 3).asin() / arb.pi()
    for context, exact in (
        (3, arb(1) / 2),
        (4, arb(1) / 4 + third / 2),
        (5, arb(1) / 8 + 3 * third / 4),
    ):
        value = nonpositive_chance(context, 60)
        assert value.overlaps(exact)
        assert value.rad() < 1e-13


@pytest.mark.parametrize("n", [3, 10, 63])
def test_three_points_have_a_student_threshold(n: int) -> None:
    """N = 3: Z is Gaussian of variance 3, so that tau is Student's t over sqrt(n / 3)."""
    density = ThresholdDensity(n, 3, 64)
    for x in (0.0, 0.1, 0.7, 1.0):
        student = arb(n + 1) / 2
        scale = student.gamma() / (arb(n) / 2).gamma() / (3 * arb.pi()).sqrt()
        exact = scale * (1 + arb(x) ** 2 / 3) ** (-student)
        assert density(arb(x)).overlaps(exact)
        assert density(arb(x)).rel_accuracy_bits() > 50


def random_frames(
    rng: np.random.Generator, count: int, d: int, context: int
) -> tuple[np.ndarray, np.ndarray]:
    """Uniform orthonormal frames (count, N, d) and uniform queries (count, d)."""
    q, r = np.linalg.qr(rng.standard_normal((count, d, context)))
    frames = q * np.sign(np.einsum("sii->si", r))[:, None, :]
    queries = rng.standard_normal((count, d))
    return frames.transpose(0, 2, 1), queries / np.linalg.norm(queries, axis=1, keepdims=True)


def test_energies_of_drawn_frames() -> None:
    rng = np.random.default_rng(1)
    d, context, count = 7, 4, 100_000
    n = d - context + 1
    points, queries = random_frames(rng, count, d, context)
    scores = np.einsum("snd,sd->sn", points, queries)
    lead, rivals = (scores[:, 0] + scores[:, 1]) / sqrt(2), scores[:, 2:]
    radius = np.sqrt(1 - lead**2 - (rivals**2).sum(axis=1))
    tau = np.maximum(0, sqrt(2) * rivals.max(axis=1) - lead) / radius
    c = gamma(n / 2) / sqrt(pi) / gamma((n - 1) / 2)
    shared = (2 * c / (n - 1)) ** 2 * np.maximum(0, 1 - tau**2) ** (n - 1)
    third = ((n + 2) * tau**2 - 1) / (n + 1)
    exact = context_energies(d, context, 3, 64)
    for degree, sample in ((1, n * shared), (3, harmonic_dimension(n, 3) * shared * third**2)):
        error = sample.std() / sqrt(count)
        assert abs(sample.mean() - float(exact[degree // 2])) < 5 * error
        assert error < 0.01 * sample.mean()


def condition_rank(n: int, r: int, degree: int, forms: int, seed: int) -> int:
    """The rank of what a general V tests: a quadratic form and so many linear forms."""
    values = random_matrix(n, seed)
    vectors = random_matrix(max(n, forms), seed + 1)
    axis = [tuple(int(i == j) for j in range(n)) for i in range(n)]
    quadratic: Polynomial = {}
    for i in range(n):
        for j in range(n):
            name = tuple(a + b for a, b in zip(axis[i], axis[j], strict=True))
            quadratic[name] = (quadratic.get(name, 0) + values[i][j]) % PRIME
    linear = [{axis[i]: vectors[j][i] for i in range(n)} for j in range(forms)]
    columns: dict[tuple[int, tuple[int, ...]], int] = {}
    rows = []
    for harmonic in harmonics(n, degree):
        row = {}
        for index, form in enumerate([quadratic, *linear]):
            for name, entry in mean_given_u(times(form, harmonic), r).items():
                row[columns.setdefault((index, name), len(columns))] = entry
        rows.append(row)
    table = [[row.get(j, 0) for j in range(len(columns))] for row in rows]
    return int(nmod_mat(table, PRIME).rank())


@pytest.mark.parametrize(
    ("n", "r", "degree", "context"),
    [
        (4, 1, 3, 2),
        (5, 1, 3, 3),
        (5, 2, 3, 2),
        (6, 2, 3, 3),
        (6, 3, 2, 2),
        (6, 3, 3, 2),
        (6, 1, 3, 5),
        (5, 3, 3, 3),
        (7, 4, 2, 2),
        (6, 4, 2, 3),
    ],
)
def test_dimension_count_is_the_rank(n: int, r: int, degree: int, context: int) -> None:
    d = n + context - 1
    expected = context_dimension(d, r, context, degree)
    assert condition_rank(n, r, degree, context - 1, 5) == expected
    assert expected <= harmonic_dimension(n, degree)


@given(
    r=st.integers(1, 12), context=st.integers(2, 9), more=st.integers(0, 30), k=st.integers(0, 12)
)
def test_dimensions_are_ordered(r: int, context: int, more: int, k: int) -> None:
    d, degree = r + context + 1 + more, 2 * k + 1
    n = d - context + 1
    scalar = context_dimension(d, r, context, degree, values="scalar")
    general = context_dimension(d, r, context, degree)
    assert comb(degree + r - 1, degree) == scalar <= general <= harmonic_dimension(n, degree)


@pytest.mark.parametrize("values", VALUES)
def test_floor_is_the_sum(values: Values) -> None:
    """Against floats, summed to a degree past which these heads lose nothing that shows."""
    d, r, context, heads = 20, 2, 4, 100
    n, last = d - context + 1, 61
    energies = [float(e) for e in context_energies(d, context, last, 64)]
    total = 2 / context - sum(energies)
    for index, energy in enumerate(energies):
        degree = 2 * index + 1
        share = context_dimension(d, r, context, degree, values=values)
        total += energy * max(0.0, 1 - heads * share / harmonic_dimension(n, degree))
    value = ball(context_floor(d, r, heads, context, values=values))
    assert abs(float(value) - (context - 1) / 2 * total) < 1e-10
    assert value.radius < value.midpoint / 10**10


@pytest.mark.parametrize("context", [2, 3, 5])
def test_floor_is_near_the_error_of_the_mean_of_the_points(context: int) -> None:
    """Rank-1 heads of a large dimension: one scalar-value head has at least about 1 - 1/N."""
    value = ball(context_floor(400, 1, 1, context, values="scalar", digits=6))
    assert Fraction(context - 1, context) * Fraction(99, 100) < value.lower
    assert value.upper < Fraction(context - 1, context)


@pytest.mark.parametrize("values", VALUES)
def test_floor_falls_with_heads_and_rank(values: Values) -> None:
    floors = [ball(context_floor(16, 2, heads, 4, values=values)) for heads in (1, 5, 40, 1000)]
    assert all(low > high for low, high in pairwise(floors))
    by_rank = [ball(context_floor(16, r, 30, 4, values=values)) for r in (1, 2, 4, 7)]
    assert all(low > high for low, high in pairwise(by_rank))


@given(r=st.integers(1, 5), heads=st.integers(1, 10**5), context=st.sampled_from([2, 4]))
def test_scalar_values_are_a_smaller_class(r: int, heads: int, context: int) -> None:
    scalar = ball(context_floor(16, r, heads, context, values="scalar"))
    general = ball(context_floor(16, r, heads, context))
    assert general.lower <= scalar.upper


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize(("d", "r", "context", "error"), [(9, 1, 2, "1/5"), (16, 4, 4, "1/10")])
def test_heads_are_the_least_of_the_floor(
    d: int, r: int, context: int, error: str, values: Values
) -> None:
    heads = context_min_heads(d, r, error, context, values=values).value
    assert isinstance(heads, int)
    assert ball(context_floor(d, r, heads - 1, context, values=values)) > Fraction(error)
    assert not ball(context_floor(d, r, heads, context, values=values)) > Fraction(error)


def test_reference_values() -> None:
    for (d, r, heads, context), scalar, general in (
        ((16, 4, 1000, 3), "0.0796514738", "0.0651190965"),
        ((64, 8, 10**6, 3), "0.104310776", "0.0984987425"),
        ((64, 8, 10**6, 5), "0.119239515", "0.107298712"),
    ):
        for values, digits in zip(VALUES, (scalar, general), strict=True):
            value = ball(context_floor(d, r, heads, context, values=values))
            assert value.decimal(9) == Ball.of(Fraction(digits)).decimal(9)
    assert context_min_heads(64, 8, "1/10", 5).value == 9657845


def test_two_points_sharpen_the_floor_of_general_values() -> None:
    assert ball(context_floor(64, 8, 10**6, 2)) > ball(head_floor(64, 8, 10**6))
    assert ball(context_floor(64, 8, 10**6, 2, values="scalar")) < ball(
        head_floor(64, 8, 10**6, values="scalar")
    )
    assert context_min_heads(64, 8, "1/10", 2).value == 4650


def test_rank_near_the_dimension_leaves_a_wide_ball_that_is_still_a_bound() -> None:
    wide = ball(context_floor(9, 5, 3, 3))
    assert wide.radius > wide.midpoint / 10**10
    assert wide.lower > 0
    # a head more costs at most what it reaches: the floor of 4 lies below, whatever the width
    assert ball(context_floor(9, 5, 4, 3)).lower < wide.lower


@pytest.mark.parametrize(("d", "context", "r", "heads"), [(16, 4, 2, 6)])
def test_drawn_layers_do_not_beat_the_floor(d: int, context: int, r: int, heads: int) -> None:
    """Hard heads of random keys with fitted values, judged on fresh frames."""
    rng = np.random.default_rng(3)
    keys = np.linalg.qr(rng.standard_normal((heads, d, r)))[0]

    def sample(count: int) -> tuple[np.ndarray, np.ndarray]:
        points, queries = random_frames(rng, count, d, context)
        place = np.arange(count)
        best = points[place, np.einsum("snd,sd->sn", points, queries).argmax(axis=1)]
        seen = []
        for key in keys:
            scores = np.einsum("snr,sr->sn", points @ key, queries @ key)
            seen.append(points[place, scores.argmax(axis=1)])
        return np.stack(seen, axis=1), best

    seen, best = sample(6_000)
    fresh, truth = sample(6_000)
    flat = seen.transpose(0, 2, 1).reshape(-1, heads)
    scalar = np.linalg.lstsq(flat, best.ravel(), rcond=None)[0]
    general = np.linalg.lstsq(seen.reshape(len(seen), -1), best, rcond=None)[0]
    outputs = np.einsum("shd,h->sd", fresh, scalar), fresh.reshape(len(fresh), -1) @ general
    for values, output in zip(VALUES, outputs, strict=True):
        losses = ((output - truth) ** 2).sum(axis=1)
        error = losses.mean() + 5 * losses.std() / sqrt(len(losses))
        assert float(ball(context_floor(d, r, heads, context, values=values))) < error < 1


def test_bounds_survive_json_and_name_their_context() -> None:
    for bound in (context_floor(16, 1, 4, 4), context_min_heads(16, 1, "1/4", 4)):
        assert Bound.from_json(bound.to_json()) == bound
        assert bound.model.context == 4
        assert "4 points" in str(bound)
    assert context_min_heads(8, 1, "2/3", 3).status == "vacuous"
    assert context_min_heads(8, 1, "2/3", 3).value == 0


def test_outside_the_hypotheses_is_an_error() -> None:
    with pytest.raises(HypothesisError, match="r <= d - N - 1"):
        context_floor(8, 5, 1, 3)
    with pytest.raises(HypothesisError, match="r <= d - N - 1"):
        context_min_heads(8, 5, "1/10", 3)
    with pytest.raises(HypothesisError, match="r <= d - N - 1"):
        context_floor(5, 1, 1, 4)
    with pytest.raises(ArgumentError, match="context"):
        context_floor(8, 1, 1, 1)
    with pytest.raises(ArgumentError, match="heads"):
        context_floor(8, 1, 0, 3)
    with pytest.raises(ArgumentError, match="values"):
        context_floor(8, 1, 1, 3, values="any")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="error"):
        context_min_heads(8, 1, 0, 3)
