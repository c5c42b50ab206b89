r"""Exact confidence intervals: they hold at their level for every sample size, not in the limit."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from bounds.arithmetic import exact_integer
from bounds.errors import ArgumentError


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """The Clopper–Pearson interval of a probability. Source: [ClopperPearson1934].

    >>> low, high = clopper_pearson(0, 100, 0.95)
    >>> low, round(high, 4)
    (0.0, 0.0362)
    """
    trials = exact_integer(trials, "trials", 1)
    successes = exact_integer(successes, "successes", 0, trials)
    tail = (1 - check_confidence(confidence)) / 2
    low = 0.0 if successes == 0 else float(beta.ppf(tail, successes, trials - successes + 1))
    high = (
        1.0 if successes == trials else float(beta.ppf(1 - tail, successes + 1, trials - successes))
    )
    return low, high


def bounded_mean(
    values: NDArray[np.float64], largest: float, confidence: float
) -> tuple[float, float]:
    r"""The empirical Bernstein interval of the mean of values in $[0, largest]$.

    $|\bar x - \mu| \le \sqrt{2V\ln(4/\delta)/n} + 7B\ln(4/\delta)/(3(n-1))$ with probability at
    least $1-\delta$, $V$ the sample variance, $B$ = ``largest``. Source: [MaurerPontil2009,
    Theorem 4], both sides.
    """
    n = exact_integer(len(values), "samples", 2)
    if not 0 < largest < math.inf:
        raise ArgumentError("largest", largest, "positive and finite")
    outside = values[~((values >= 0) & (values <= largest))]  # nan included
    if outside.size:
        raise ArgumentError("values", float(outside[0]), f"within [0, {largest}]")
    log_term = math.log(4 / (1 - check_confidence(confidence)))
    mean, variance = float(values.mean()), float(values.var(ddof=1))
    width = math.sqrt(2 * variance * log_term / n) + 7 * largest * log_term / (3 * (n - 1))
    return max(0.0, mean - width), min(largest, mean + width)


def check_confidence(confidence: float) -> float:
    """``confidence`` if it lies strictly between 0 and 1."""
    if not 0 < confidence < 1:
        raise ArgumentError("confidence", confidence, "strictly between 0 and 1")
    return confidence
