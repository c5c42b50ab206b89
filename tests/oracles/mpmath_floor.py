"""The head floor H2 in mpmath floats: gamma functions, extrapolated sums, plain recurrences."""

from __future__ import annotations

import itertools
from typing import Any

import mpmath
from mpmath import mpf

from oracles.rational_floor import harmonics, reach


def _sign_coefficient_squared(d: int, k: Any) -> Any:
    """lambda_{2k+1}^2 by Gamma functions, for real k."""
    half = mpf(1) / 2
    unit = mpmath.gammaprod([mpf(d) / 2], [half, (mpf(d) + 1) / 2])  # 2 c_d / (d - 1)
    return (unit * mpmath.gammaprod([k + half, (d + 1) * half], [half, k + (d + 1) * half])) ** 2


def _reach(d: int, r: int, k: Any, values: str, second: bool) -> Any:
    """D(r, 2k+1) for real k, on one branch of its minimum."""

    def invariant(degree: Any) -> Any:
        return mpmath.gammaprod([degree + r], [degree + 1, r])

    here, below, below_two = (invariant(2 * k + 1 - drop) for drop in range(3))
    if values == "scalar":
        return here
    return here + ((d - r) * below if second else r * below + here) + below_two


def _branch(d: int, r: int, degree: int) -> bool:
    here, below = reach(d, r, degree, "scalar"), reach(d, r, degree - 1, "scalar")
    return (d - r) * below < r * below + here


def sign_floor(d: int, r: int, heads: int, values: str) -> Any:
    """The floor of the sign target at the mpmath precision in force."""
    first = 0
    while heads * reach(d, r, 2 * first + 1, values) >= harmonics(d, 2 * first + 1):
        first += 1
    energy = 1 - sum(
        harmonics(d, 2 * k + 1) * _sign_coefficient_squared(d, mpf(k)) for k in range(first)
    )
    # far out the smaller branch of D no longer changes
    last = _branch(d, r, 10**9 + 1)
    start, captured = first, mpf(0)
    while start < first + 4 or _branch(d, r, 2 * start + 1) != last:
        captured += _sign_coefficient_squared(d, mpf(start)) * reach(d, r, 2 * start + 1, values)
        start += 1
    captured += mpmath.nsum(
        lambda k: _sign_coefficient_squared(d, k) * _reach(d, r, k, values, last),
        [start, mpmath.inf],
        method="euler-maclaurin" if d > 40 else "r+s",
    )
    return (energy - heads * captured) / 2


def captured_by_hypergeometric(d: int, r: int) -> Any:
    """sum over odd degrees of lambda_l^2 M(r, l), as a 4F3 at 1."""
    half = mpf(1) / 2
    value = mpmath.hyper(
        [half, half, (r + 1) * half, (r + 2) * half], [(d + 1) * half, (d + 1) * half, 3 * half], 1
    )
    return _sign_coefficient_squared(d, mpf(0)) * r * value


def step_floor(
    d: int, r: int, heads: int, values: str, steps: list[tuple[Any, Any]], degrees: int
) -> tuple[Any, Any]:
    """Bounds of the floor of a step profile, from its first degrees; needs ample precision."""
    below = [mpf(0), *(_distribution(d, tau) for tau, _ in steps), mpf(1)]
    level = -sum(size for _, size in steps)
    mean = square = mpf(0)
    for index, (low, high) in enumerate(itertools.pairwise(below)):
        mean += level * (high - low)
        square += level**2 * (high - low)
        level += 2 * steps[index][1] if index < len(steps) else 0
    left = square - mean**2
    unit = mpmath.gammaprod([mpf(d) / 2], [mpf(1) / 2, (mpf(d) + 1) / 2])
    weights = [unit * size * mpmath.sqrt(1 - tau**2) ** (d - 1) for tau, size in steps]
    before, here = [mpf(0)] * len(steps), [mpf(1)] * len(steps)
    floor = mpf(0)
    for degree in range(1, degrees + 1):
        energy = harmonics(d, degree) * mpmath.fdot(weights, here) ** 2
        share = mpf(reach(d, r, degree, values)) / harmonics(d, degree)
        floor += energy * max(mpf(0), 1 - heads * share)
        left -= energy
        k = degree - 1  # from P_{k-1}, P_k to P_{k+1} of S^{d+1}
        for place, (tau, _) in enumerate(steps):
            after = ((2 * k + d) * tau * here[place] - k * before[place]) / (k + d)
            before[place], here[place] = here[place], after
    return (floor + left * max(mpf(0), 1 - heads * share)) / 2, (floor + left) / 2


def _distribution(d: int, tau: Any) -> Any:
    tail = mpmath.betainc(mpf(1) / 2, mpf(d - 1) / 2, 0, tau**2, regularized=True)
    return (1 + mpmath.sign(tau) * tail) / 2
