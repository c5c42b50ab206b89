"""Certificates and confidence intervals, against exact enumeration."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds import Ball
from bounds.errors import ArgumentError
from constructions import AttentionLayer
from verification import Certificate, bounded_mean, clopper_pearson
from verification.certificate import layer_digest


def tail_from(successes: int, trials: int, p: Fraction | float) -> Fraction:
    """Pr(Bin(n, p) >= k), exactly."""
    q = Fraction(p)
    return sum(
        (
            math.comb(trials, k) * q**k * (1 - q) ** (trials - k)
            for k in range(successes, trials + 1)
        ),
        Fraction(0),
    )


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("trials", [1, 2, 7, 30])
def test_interval_ends_solve_the_binomial_equations(trials: int, confidence: float) -> None:
    """Pr(>= k | low) = Pr(<= k | high) = (1 - confidence)/2."""
    half = (1 - confidence) / 2
    for k in range(trials + 1):
        low, high = clopper_pearson(k, trials, confidence)
        assert 0.0 <= low < high <= 1.0
        assert (low == 0.0) == (k == 0)
        assert (high == 1.0) == (k == trials)
        if k:
            assert float(tail_from(k, trials, low)) == pytest.approx(half, rel=1e-10)
        if k < trials:
            assert float(1 - tail_from(k + 1, trials, high)) == pytest.approx(half, rel=1e-10)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.999])
@pytest.mark.parametrize("trials", [1, 3, 12, 30])
def test_coverage_by_enumeration(trials: int, confidence: float) -> None:
    """Whatever p is, the interval misses it with probability at most 1 - confidence."""
    intervals = [clopper_pearson(k, trials, confidence) for k in range(trials + 1)]
    ends = [end for interval in intervals for end in interval if 0 < end < 1]
    worst = 1.0
    grid = [
        *np.linspace(0.001, 0.999, 41),
        *ends,
        *(np.nextafter(e, s) for e in ends for s in (0, 1)),
    ]
    for p in grid:
        mass = [math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1)]
        covered = sum(m for m, (low, high) in zip(mass, intervals, strict=True) if low <= p <= high)
        worst = min(worst, covered)
    assert worst >= confidence - 1e-12
    assert worst < 1 - (1 - confidence) / 4  # and not by being wide for nothing


def test_large_samples_against_mpmath() -> None:
    """Pr(>= k | low) = 1 - Pr(<= k - 1 | low), summed from small terms to large."""

    def at_most(k: int, n: int, p: mpmath.mpf) -> mpmath.mpf:
        term, total = mpmath.mpf(1), mpmath.mpf(1)  # terms relative to that of k
        for i in range(k, 0, -1):
            term *= mpmath.mpf(i) / (n - i + 1) * (1 - p) / p
            total += term
            if term < total * mpmath.mpf(10) ** -30:
                break
        return total * mpmath.binomial(n, k) * p**k * (1 - p) ** (n - k)

    with mpmath.workdps(40):
        for k, n, confidence in [(3, 10**6, 0.999), (4 * 10**4, 10**5, 0.95), (9999, 10**4, 0.99)]:
            low, high = clopper_pearson(k, n, confidence)
            half = (1 - mpmath.mpf(confidence)) / 2
            # Pr(>= k | low) = Pr(<= n - k | 1 - low) of the failures
            assert float(at_most(n - k, n, 1 - mpmath.mpf(low)) / half) == pytest.approx(
                1, rel=1e-6
            )
            assert float(at_most(k, n, mpmath.mpf(high)) / half) == pytest.approx(1, rel=1e-6)


@given(st.integers(1, 200), st.data(), st.floats(0.01, 0.999))
def test_interval_symmetry_and_growth(trials: int, data: Any, confidence: float) -> None:
    k = data.draw(st.integers(0, trials))
    low, high = clopper_pearson(k, trials, confidence)
    mirrored = clopper_pearson(trials - k, trials, confidence)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)
    assert low <= k / trials <= high
    wider = clopper_pearson(k, trials, (1 + confidence) / 2)
    assert wider[0] <= low
    assert high <= wider[1]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((-1, 5, 0.9), "successes"),
        ((6, 5, 0.9), "successes"),
        ((0, 0, 0.9), "trials"),
        ((1.0, 5, 0.9), "successes"),
        ((1, 5, 0.0), "confidence"),
        ((1, 5, 1), "confidence"),
        ((1, 5, math.nan), "confidence"),
        ((1, 5, 1.5), "confidence"),
        ((True, 5, 0.5), "successes"),
    ],
)
def test_bad_intervals(arguments: Any, name: str) -> None:
    with pytest.raises(ArgumentError, match=name):
        clopper_pearson(*arguments)


@pytest.mark.parametrize("largest", [1.0, 7.0])
@pytest.mark.parametrize("law", ["uniform", "rare", "constant", "ends"])
def test_bounded_mean_covers_by_simulation(law: str, largest: float) -> None:
    rng = np.random.default_rng(0)
    runs, n = 2000, 60
    draws, mean = {
        "uniform": (rng.uniform(0, 1, (runs, n)), 0.5),
        "rare": ((rng.uniform(0, 1, (runs, n)) < 0.02).astype(float), 0.02),
        "constant": (np.full((runs, n), 0.25), 0.25),
        "ends": ((rng.uniform(0, 1, (runs, n)) < 0.5).astype(float), 0.5),
    }[law]
    missed = 0
    for row in draws:
        low, high = bounded_mean(largest * row, largest, 0.5)
        assert 0 <= low <= high <= largest
        missed += not low <= largest * mean <= high
    assert missed <= 0.5 * runs + 3 * math.sqrt(runs) / 2


def test_bounded_mean_is_the_empirical_bernstein_bound() -> None:
    values = np.array([0.0, 1.0, 0.5, 0.25] * 500)
    log_term = math.log(4 / 0.01)
    deviation = math.sqrt(2 * values.var(ddof=1) * log_term / 2000) + 7 * 2 * log_term / (3 * 1999)
    low, high = bounded_mean(values, 2.0, 0.99)
    assert (low, high) == pytest.approx((0.4375 - deviation, 0.4375 + deviation), rel=1e-12)
    assert high - low < 0.13


@pytest.mark.parametrize(
    ("values", "largest", "name"),
    [
        ([0.5, -1e-9], 1.0, "values"),
        ([0.5, 1.0001], 1.0, "values"),
        ([0.5, math.nan], 1.0, "values"),
        ([0.5], 1.0, "samples"),
        ([], 1.0, "samples"),
        ([0.5, 0.5], math.inf, "largest"),
        ([0.0, 0.0], 0.0, "largest"),
        ([0.0, 0.0], math.nan, "largest"),
    ],
)
def test_bad_means(values: Any, largest: float, name: str) -> None:
    with pytest.raises(ArgumentError, match=name):
        bounded_mean(np.array(values), largest, 0.9)


def certificate(**changes: Any) -> Certificate:
    base: dict[str, Any] = {
        "claim": "x < y",
        "scope": "all pairs",
        "checked": 12345,
        "verdict": "verified",
        "layer_digest": "ab",
        "method": "given",
    }
    return Certificate(**(base | changes))


def test_json_loses_nothing() -> None:
    third = Ball.of(Fraction(1, 3))
    for found in [
        certificate(),
        certificate(error=third, margin=0.1, rounding=1e-16),
        certificate(error=(0.1, 0.2), confidence=0.999, seed=3),
        certificate(verdict="refuted", counterexample={"pair": "(é, 2)", "indices": [1, 2]}),
        certificate(verdict="undecided", reason="because", details={"heads": 3}),
    ]:
        data = json.loads(found.to_json())
        assert data.pop("format") == "attention-bounds certificate 1"
        error = data.pop("error")
        if isinstance(found.error, Ball):
            assert Ball.parse(error["ball"]) == found.error
        else:
            assert error == (None if found.error is None else list(found.error))
        for name, value in data.items():
            assert value == getattr(found, name)
        assert set(data) == set(Certificate.__dataclass_fields__) - {"error"}


def test_a_certificate_reads_as_a_sentence() -> None:
    text = str(certificate(margin=0.25, rounding=1e-16))
    assert (
        text == "verified: x < y (all pairs, 12,345 checked); margin 0.25, rounding at most 1e-16"
    )
    text = str(certificate(verdict="refuted", checked=0, counterexample={"pair": "(a, b)"}))
    assert text == "refuted: x < y (all pairs); counterexample: pair (a, b)"
    text = str(certificate(verdict="undecided", error=(0.1, 0.25), confidence=0.9, reason="why"))
    assert text.endswith("; error in [0.1, 0.25] at confidence 0.9; why")
    assert "; error 0.33333333" in str(certificate(error=Ball.of(Fraction(1, 3))))
    assert [certificate(verdict=v).holds for v in ("verified", "refuted", "undecided")] == [
        True,
        False,
        False,
    ]


def test_the_digest_is_of_everything_that_is_judged() -> None:
    base: dict[str, Any] = {
        "w_q": [np.eye(2)],
        "w_k": [np.eye(2)],
        "b_q": [[0.0, 1.0]],
        "threshold": 0.5,
    }
    digest = layer_digest(AttentionLayer(**base))
    assert digest == layer_digest(AttentionLayer(**base, method="other", seed=4))
    changes: list[dict[str, Any]] = [
        {"w_q": [[[1.0, 0.0], [0.0, np.nextafter(1, 2)]]]},
        {"w_k": [-np.eye(2)]},
        {"threshold": None},
        {"threshold": 0.25},
        {"b_q": ()},
        {"b_q": (), "b_k": [[0.0, 1.0]]},
        {"logit_scale": 2.0},
        {"kind": "soft"},
        {"w_v": [np.eye(2)], "w_o": [np.eye(2)]},
    ]
    digests = {layer_digest(AttentionLayer(**(base | change))) for change in changes}
    assert len(digests | {digest}) == len(changes) + 1
