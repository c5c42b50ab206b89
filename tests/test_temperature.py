"""H1 for N points: margins and softmax scales that are enough."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bounds.arithmetic import Ball, precision
from bounds.bound import Bound
from bounds.errors import ArgumentError, HypothesisError
from bounds.score_gaps import gap_density, tie_chance
from bounds.softmax_scale import softmax_scale
from bounds.temperature import (
    orthonormal_scale,
    sphere_margin,
    sphere_scale,
    sphere_scale_with_failure,
)


def ball(bound: Bound) -> Ball:
    assert isinstance(bound.value, Ball)
    return bound.value


def softmax_losses(points: np.ndarray, queries: np.ndarray, scale: float) -> np.ndarray:
    """Squared errors of the softmax head, one for each row of (S, N, d) and (S, d)."""
    scores = np.einsum("snd,sd->sn", points, queries)
    shares = np.exp(scale * (scores - scores.max(axis=1, keepdims=True)))
    shares /= shares.sum(axis=1, keepdims=True)
    best = points[np.arange(len(points)), scores.argmax(axis=1)]
    errors = best - np.einsum("sn,snd->sd", shares, points)
    return np.asarray((errors**2).sum(axis=1))


def directions(rng: np.random.Generator, *shape: int) -> np.ndarray:
    draws = rng.standard_normal(shape)
    return np.asarray(draws / np.linalg.norm(draws, axis=-1, keepdims=True))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_rivals_cost_no_more_one_at_a_time(rivals: list[float]) -> None:
    """The lemma of docs/temperature.md: q^2 + sum p_i^2 <= sum kappa(e_i), kappa(e) <= e / 2."""

    def kappa(e: float) -> float:
        return e / (4 * (1 - e)) if e <= 1 / 3 else 2 * e**2 / (1 + e) ** 2

    total = sum(rivals)
    left = (total**2 + sum(e**2 for e in rivals)) / (1 + total) ** 2
    assert left <= sum(map(kappa, rivals)) + 1e-15
    assert all(kappa(e) <= e / 2 for e in rivals)


def test_constant_of_the_lemma() -> None:
    with mpmath.workdps(20):
        low = mpmath.quad(lambda e: 1 / (4 * (1 - e)), [0, mpmath.mpf(1) / 3])
        high = mpmath.quad(lambda e: 2 * e / (1 + e) ** 2, [mpmath.mpf(1) / 3, 1])
        closed = mpmath.mpf(9) / 4 * mpmath.log(mpmath.mpf(3) / 2) - mpmath.mpf(1) / 2
        assert abs(low + high - closed) < 1e-15


@pytest.mark.parametrize(
    ("d", "context", "error", "least"),
    [
        (3, 3, "1/50", 0.5),
        (16, 2, "1/50", 0.9),
        (16, 4, "1/50", 0.5),
        (16, 16, "1/50", 0.4),
        (16, 8, "1/1000", 0.75),
        (8, 4, "1/3", 0.1),
    ],
)
def test_scale_is_enough_on_orthonormal_points(
    d: int, context: int, error: str, least: float
) -> None:
    """The measured error is below epsilon, and not far below."""
    rng = np.random.default_rng(d + context)
    count = 200_000 if Fraction(error) < Fraction(1, 100) else 30_000
    queries = directions(rng, count, d)
    scores = queries[:, :context]  # by rotation the points are the first axes
    scale = float(ball(orthonormal_scale(d, context, error)))
    shares = np.exp(scale * (scores - scores.max(axis=1, keepdims=True)))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(count), scores.argmax(axis=1)] -= 1
    losses = (shares**2).sum(axis=1)
    noise = 5 * losses.std() / np.sqrt(count)
    epsilon = float(Fraction(error))
    assert losses.mean() - noise < epsilon
    assert losses.mean() + noise > least * epsilon


@pytest.mark.parametrize(
    ("d", "context", "error", "least"),
    [(3, 5, "1/50", 0.35), (8, 2, "1/50", 0.6), (16, 16, "1/50", 0.45), (8, 4, "1/5", 0.2)],
)
def test_scale_is_enough_on_independent_points(
    d: int, context: int, error: str, least: float
) -> None:
    rng = np.random.default_rng(d + context)
    points, queries = directions(rng, 30_000, context, d), directions(rng, 30_000, d)
    losses = softmax_losses(points, queries, float(ball(sphere_scale(d, context, error))))
    noise = 5 * losses.std() / np.sqrt(len(losses))
    epsilon = float(Fraction(error))
    assert losses.mean() - noise < epsilon
    assert losses.mean() + noise > least * epsilon


@pytest.mark.parametrize(("d", "context"), [(3, 2), (4, 5), (16, 16)])
def test_margin_and_scale_with_failure(d: int, context: int) -> None:
    rng = np.random.default_rng(d)
    count, delta, error = 40_000, "1/20", "1/100"
    points, queries = directions(rng, count, context, d), directions(rng, count, d)
    scores = np.sort(np.einsum("snd,sd->sn", points, queries), axis=1)
    short = (scores[:, -1] - scores[:, -2] < float(ball(sphere_margin(d, context, delta)))).sum()
    # an exact 1 - 1e-6 interval: at most delta, and nearly that (the margin is tight)
    assert stats.beta.ppf(5e-7, short, count - short + 1) <= 0.05
    assert stats.beta.ppf(1 - 5e-7, short + 1, count - short) >= 0.045
    scale = float(ball(sphere_scale_with_failure(d, context, error, delta)))
    failed = int((softmax_losses(points, queries, scale) > float(Fraction(error))).sum())
    assert stats.beta.ppf(5e-7, failed, count - failed + 1) <= 0.05


@pytest.mark.parametrize(
    ("d", "context", "shift"), [(3, 4, 0.0), (4, 3, 0.25), (7, 6, 0.0), (9, 12, 1.5), (5, 3, 2.5)]
)
def test_gap_density_is_its_integral(d: int, context: int, shift: float) -> None:
    with mpmath.workdps(20):
        half = mpmath.mpf(1) / 2
        c = mpmath.gamma(half * d) / mpmath.gamma(half * (d - 1)) / mpmath.sqrt(mpmath.pi)

        def density(u: mpmath.mpf) -> mpmath.mpf:
            return c * (1 - u**2) ** (half * (d - 3))

        def distribution(u: mpmath.mpf) -> mpmath.mpf:
            if u >= 1:
                return mpmath.mpf(1)
            mass = mpmath.betainc(half, half * (d - 1), 0, u**2, regularized=True) / 2
            return half + mpmath.sign(u) * mass

        cuts = sorted({-1, 0, 1, min(1, max(-1, 1 - shift)), max(-1, -shift)})
        expected = (
            context
            * (context - 1)
            * mpmath.quad(
                lambda u: density(u) ** 2 * distribution(u + shift) ** (context - 2), cuts
            )
        )
    with precision(128):
        value = gap_density(d, context, 64, arb(shift))
        assert value.rel_accuracy_bits() > 45
        assert abs(float(value) - float(expected)) < 1e-9 * float(expected)


def test_gap_density_in_three_dimensions() -> None:
    """d = 3: scores are uniform on [-1, 1], the gap density at 0 is N / 2."""
    with precision(96):
        for context in (2, 3, 10):
            assert gap_density(3, context, 64).overlaps(arb(context) / 2)


def test_tie_chance_bounds_the_chance() -> None:
    rng = np.random.default_rng(2)
    d, context, count = 9, 5, 200_000
    others = directions(rng, count, d - 1)  # v, then the rivals, then the rest
    lead = np.sqrt(2) * others[:, 1 : context - 1].max(axis=1) - others[:, 0]
    with precision(64):
        for gap in (0.0, 0.1, 0.5, 1.0):
            t = gap / np.sqrt(2)
            chance = (np.sqrt(1 - t**2) * lead <= t).mean()
            bound = float(tie_chance(d, context, 64, arb(gap)))
            assert chance - 0.006 < bound
            if gap == 0:
                assert bound < chance + 0.006
        assert tie_chance(d, 2, 64, arb("0.1")) == 1
        assert tie_chance(d, context, 64, arb(2)) == 1


def test_two_points_are_those_of_the_closed_form() -> None:
    for d in (3, 64):
        known, found = ball(softmax_scale(d, "1/100")), ball(orthonormal_scale(d, 2, "1/100"))
        assert known.lower <= found.upper <= known.upper * (1 + Fraction(1, 10**12))


def test_scales_fall_with_the_error_and_grow_with_the_points() -> None:
    for call in (orthonormal_scale, sphere_scale):
        by_error = [ball(call(12, 4, error)) for error in ("1/4", "1/10", "1/100", "1/10000")]
        assert all(low < high for low, high in pairwise(by_error))
        by_points = [ball(call(12, context, "1/100")) for context in (2, 3, 6, 12)]
        assert all(low < high for low, high in pairwise(by_points))


def test_orthonormal_scale_never_exceeds_the_closed_form() -> None:
    with mpmath.workdps(30):
        constant = mpmath.mpf(9) / 4 * mpmath.log(mpmath.mpf(3) / 2) - mpmath.mpf(1) / 2
        for d, context in ((3, 3), (8, 5), (64, 16)):
            c = mpmath.gammaprod([mpmath.mpf(d) / 2], [mpmath.mpf(d - 1) / 2])
            closed = mpmath.sqrt(2 / mpmath.pi) * (context - 1) * c * constant * 10
            value = ball(orthonormal_scale(d, context, "1/10"))
            assert value.upper_float() <= closed * (1 + mpmath.mpf(10) ** -12)


def test_trivial_errors_need_no_scale() -> None:
    for bound in (
        orthonormal_scale(8, 4, "3/4"),
        sphere_scale(8, 4, 2),
        sphere_scale_with_failure(8, 4, "9/4", "1/10"),
    ):
        assert bound.status == "vacuous"
        assert ball(bound).upper == 0
    assert sphere_scale_with_failure(8, 4, "2.24", "1/10").status == "proved"


def test_bounds_survive_json_and_keep_their_settings_apart() -> None:
    orthonormal, independent = orthonormal_scale(8, 4, "1/10"), sphere_scale(8, 4, "1/10")
    assert not orthonormal.model.covers(independent.model)
    assert not independent.model.covers(orthonormal.model)
    for bound in (
        orthonormal,
        independent,
        sphere_margin(8, 4, "1/10"),
        sphere_scale_with_failure(8, 4, "1/10", "1/10"),
    ):
        assert Bound.from_json(bound.to_json()) == bound


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(HypothesisError, match="d >= 3"):
        sphere_scale(2, 4, "1/10")
    with pytest.raises(HypothesisError, match="N <= d"):
        orthonormal_scale(4, 5, "1/10")
    with pytest.raises(ArgumentError, match="context"):
        sphere_margin(4, 1, "1/10")
    with pytest.raises(ArgumentError, match="failure"):
        sphere_margin(4, 3, 1)
    with pytest.raises(ArgumentError, match="error"):
        orthonormal_scale(4, 3, 0)
