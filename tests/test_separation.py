"""H5: square waves, the separation, and the full-rank layer that realises the target."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from bounds import ArgumentError, HypothesisError, StepProfile, head_dimension, head_floor
from bounds.arithmetic import precision
from bounds.harmonics import harmonic_dimension
from bounds.separation import separation, square_wave
from constructions.step_profiles import (
    step_profile_layer,
    step_profile_target,
    step_profile_tokens,
)


def frame(rng: np.random.Generator, d: int) -> np.ndarray:
    q, r = np.linalg.qr(rng.standard_normal((d, 2)))
    return (q * np.sign(np.diag(r))).T


@pytest.mark.parametrize(("d", "alpha"), [(16, 1), (64, 4), (128, 4), (64, "1/2")])
def test_square_wave_is_the_sign_of_the_cosine(d: int, alpha: object) -> None:
    wave = square_wave(d, alpha)
    omega = math.sqrt(2 * float(Fraction(alpha)) * d)
    places = [float(place) for place in wave.thresholds]
    jumps = [float(jump) for jump in wave.jumps]
    offset = None
    for t in np.linspace(-0.999, 0.999, 2003):
        if abs(math.sqrt(d) * t) > 3 or min(abs(t - place) for place in places) < 1e-9:
            continue
        value = sum(a * math.copysign(1, t - place) for a, place in zip(jumps, places, strict=True))
        cosine = math.copysign(1, math.cos(omega * math.sqrt(d) * t))
        offset = value - cosine if offset is None else offset
        assert value - cosine == offset  # one constant: degree 0 is free
    assert wave.parity() == 0


def test_reference_numbers() -> None:
    """62 steps at d = 128, 44 at d = 64; energies below the stated degrees; log2(N/D)."""
    for d, steps, degree, share in ((128, 62, 300, Fraction(1, 4)), (64, 44, 148, Fraction(1, 4))):
        wave = square_wave(d, 4)
        assert len(wave.thresholds) == steps
        with precision(160):
            total = wave.total_energy(d)
            energies = wave.energies(d, 200)
            below = sum((next(energies) for _ in range(1, degree)), 0 * total)
            assert below / total < float(share)
    for d, r, degree, expected in (
        (128, 64, 300, "126.14"), (128, 32, 300, "219.68"), (64, 32, 148, "60.38"), (64, 16, 148, "107.41"),
    ):  # fmt: skip
        ratio = Fraction(harmonic_dimension(d, degree), head_dimension(d, r, degree))
        with mpmath.workdps(30):
            value = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator, 2)
            assert abs(value - mpmath.mpf(expected)) <= mpmath.mpf("0.005")


def test_separation_is_the_least_count_and_exponential() -> None:
    bound = separation(32, 8, 4, "1/2")
    wave = square_wave(32, 4)
    with precision(200):
        half = wave.total_energy(32) / 4  # relative error 1/2 of (1/2) Var
    at = head_floor(32, 8, bound.value, profile=wave, digits=40).value
    before = head_floor(32, 8, bound.value - 1, profile=wave, digits=40).value
    assert at.arb() <= half
    assert before.arb() > half
    counts = [separation(d, d // 4, 4, "1/2").value for d in (16, 32, 64)]
    assert counts[1] > counts[0] ** 1.5
    assert counts[2] > counts[1] ** 1.5


@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(1, 5))
def test_hard_layer_realises_the_target(seed: int, d: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    places = sorted({Fraction(int(n), 1000) for n in rng.integers(-900, 900, steps)})
    jumps = [
        Fraction(int(n), 8)
        for n in rng.integers(1, 30, len(places)) * rng.choice([-1, 1], len(places))
    ]
    profile = StepProfile(places, jumps)
    layer = step_profile_layer(d, profile)
    points, query = frame(rng, d), rng.standard_normal(d)
    query /= np.linalg.norm(query)
    w, v = (points[0] - points[1]) / math.sqrt(2), (points[0] + points[1]) / math.sqrt(2)
    t = float(w @ query)
    if min(abs(t - float(place)) for place in places) < 1e-9:
        return
    got = layer.attend(np.append(query, 0.0)[None, :], step_profile_tokens(points))[0]
    psi = sum(float(a) * math.copysign(1, t - float(p)) for a, p in zip(jumps, places, strict=True))
    np.testing.assert_allclose(
        got, (sum(map(float, jumps)) * v + psi * w) / math.sqrt(2), atol=1e-12
    )
    np.testing.assert_allclose(got, step_profile_target(profile, points, query), atol=1e-12)


def test_soft_layer_tends_to_the_hard_one() -> None:
    rng = np.random.default_rng(3)
    profile = square_wave(16, 1)
    hard, soft = step_profile_layer(16, profile), step_profile_layer(16, profile, scale=1e6)
    for _ in range(20):
        points, query = frame(rng, 16), rng.standard_normal(16)
        token = np.append(query / np.linalg.norm(query), 0.0)[None, :]
        tokens = step_profile_tokens(points)
        np.testing.assert_allclose(
            soft.attend(token, tokens), hard.attend(token, tokens), atol=1e-3
        )


def test_refusals() -> None:
    for bad in ({"alpha": 0}, {"alpha": -1}, {"alpha": 1, "cutoff": 0}, {"alpha": float("nan")}):
        with pytest.raises(ArgumentError):
            square_wave(16, **bad)
    with pytest.raises(ArgumentError, match="large enough"):
        square_wave(4, Fraction(1, 10**6))
    with pytest.raises(ArgumentError, match="relative_error"):
        separation(16, 4, 1, 1)
    with pytest.raises(HypothesisError):
        separation(16, 14, 1, "1/2")
    assert square_wave(16, 4).thresholds[0].has(sympy.pi)
