r"""Step profiles $\psi(t) = \sum_i a_i\,\mathrm{sgn}(t - \tau_i)$ and their harmonic energies.

$\lambda_\ell(\psi) = \mathbb E[\psi(t)P_\ell(t)]$ and $\eta_\ell(\psi)^2 = N(d,\ell)\lambda_\ell(\psi)^2$
come from
$\mathbb E[\mathrm{sgn}(t-\tau)P_\ell(t)] = \frac{2c_d}{d-1}(1-\tau^2)^{(d-1)/2}P^{(d+2)}_{\ell-1}(\tau)$,
$\ell \ge 1$, with no quadrature: quadrature of a sign against Gegenbauer polynomials loses all digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cmp_to_key
from itertools import islice, pairwise
from typing import TypeAlias

import sympy
from flint import arb, fmpq

from bounds.arithmetic import (
    Ball,
    bits_of_digits,
    certify,
    exact_integer,
    exact_rational,
    precision,
    square,
    to_arb,
)
from bounds.errors import ArgumentError
from bounds.harmonics import (
    density_constant,
    density_constant_ball,
    gegenbauer_values,
    harmonic_dimension,
)

Number: TypeAlias = int | float | str | Fraction | sympy.Expr

_ZERO_RADIUS_BITS = 2048


@dataclass(frozen=True, init=False)
class StepProfile:
    r"""$\psi(t) = \sum_i a_i\,\mathrm{sgn}(t-\tau_i)$ with thresholds $\tau_i$ and jumps $a_i$.

    ``thresholds``: distinct numbers in $(-1, 1)$; ``jumps``: as many nonzero numbers ($\psi$ rises
    by $2a_i$ at $\tau_i$). Each an int, Fraction, float (at its exact value), text such as
    ``"1/20"``, or a real sympy number. Stored exactly, by rising threshold.
    Source: [attention-bounds, H5].

    >>> StepProfile([0], [1]) == NEAREST_NEIGHBOR
    True
    >>> NEAREST_NEIGHBOR.energy_exact(5, 1)
    45/64
    """

    thresholds: tuple[sympy.Expr, ...]
    jumps: tuple[sympy.Expr, ...]

    def __init__(self, thresholds: Iterable[Number], jumps: Iterable[Number]) -> None:
        places = _exact_numbers(thresholds, "thresholds")
        sizes = _exact_numbers(jumps, "jumps")
        if not places or len(places) != len(sizes):
            raise ArgumentError("jumps", sizes, f"one for each of {len(places)} >= 1 thresholds")
        for place in places:
            if _sign(1 - place**2) <= 0:
                raise ArgumentError("thresholds", place, "strictly between -1 and 1")
        for size in sizes:
            if _sign(size) == 0:
                raise ArgumentError("jumps", size, "nonzero")
        steps = sorted(zip(places, sizes, strict=True), key=cmp_to_key(_threshold_order))
        for (place, _), (following, _) in pairwise(steps):
            if _difference_sign(place, following) == 0:
                raise ArgumentError("thresholds", place, "distinct (merge equal ones)")
        object.__setattr__(self, "thresholds", tuple(place for place, _ in steps))
        object.__setattr__(self, "jumps", tuple(size for _, size in steps))

    @property
    def is_sign(self) -> bool:
        """Whether the profile is a multiple of the sign function."""
        return self.thresholds == (sympy.S.Zero,)

    def parity(self) -> int | None:
        r"""1 when $\psi$ is odd, 0 when it is even up to a constant, ``None`` otherwise."""
        mirrored = tuple(-place for place in reversed(self.thresholds))
        if mirrored != self.thresholds:
            return None
        if self.jumps == tuple(reversed(self.jumps)):
            return 1
        return 0 if self.jumps == tuple(-size for size in reversed(self.jumps)) else None

    def energy(self, d: int, degree: int, *, digits: int = 15) -> Ball:
        r"""$\eta_\ell(\psi)^2 = N(d,\ell)\lambda_\ell(\psi)^2$ to a relative radius $10^{-digits}$.

        $d \ge 2$, ``degree`` $\ell \ge 1$. An energy that is exactly zero is returned as an exact
        zero when the parity of the profile shows it, else as a ball of radius below $2^{-2048}$.

        >>> NEAREST_NEIGHBOR.energy(64, 1).decimal(12)
        '0.641612639222'
        """
        d = exact_integer(d, "d", 2)
        degree = exact_integer(degree, "degree", 1)
        digits = exact_integer(digits, "digits", 1)
        if self.parity() is not None and degree % 2 != self.parity():
            return Ball(0, 0, 0, 0)

        def attempt(bits: int) -> Ball | None:
            value = next(islice(self.energies(d, bits, first=degree), 1))
            tiny = value.contains(0) and value.rad() < (arb(1) / 2) ** _ZERO_RADIUS_BITS
            if tiny or value.rel_accuracy_bits() >= bits_of_digits(digits):
                return Ball.from_arb(value)
            return None

        return certify(attempt, "the energy", start=bits_of_digits(digits) + 64)

    def energies(self, d: int, bits: int, *, first: int = 1) -> Iterator[arb]:
        r"""$\eta_\ell(\psi)^2$ for $\ell$ = ``first``, ``first`` + 1, ... as flint balls.

        The working precision is ``bits`` plus what the recurrences lose by the degree reached, so
        the absolute error of $P_\ell$ stays near $2^{-bits}$.
        """
        degree, reach = first, 16
        while True:
            reach = max(2 * reach, degree + 1)
            work = bits + 8 + (0 if self.is_sign else int(self._bits_lost_a_degree() * reach))
            with precision(work):
                block = self._energy_block(d, degree, reach)
            yield from block
            degree = reach

    def _bits_lost_a_degree(self) -> float:
        r"""What ball recurrences widen by: $x^2 \le 2|\tau|x + 1$ a step, $x = |\tau| + \sqrt{1+\tau^2}$."""
        with precision(64):
            largest = max(abs(float(to_arb(place).mid())) for place in self.thresholds)
        return 1.01 * math.log2(largest + math.sqrt(1 + largest**2))

    def _energy_block(self, d: int, start: int, stop: int) -> list[arb]:
        if self.is_sign:
            scale = arb(1) if self.jumps[0] == 1 else square(to_arb(self.jumps[0]))
            return _sign_energies(d, start, stop, scale)
        dimension = arb(harmonic_dimension(d, start))
        energies = []
        coefficients = self._coefficients(d, start, stop)
        for degree, coefficient in zip(range(start, stop), coefficients, strict=True):
            energies.append(dimension * square(coefficient))
            # N(d, l+1) / N(d, l) = (2l+d)(l+d-2) / ((2l+d-2)(l+1)), for d >= 3 or l >= 1
            dimension = dimension * ((2 * degree + d) * (degree + d - 2))
            dimension = dimension / ((2 * degree + d - 2) * (degree + 1))
        return energies

    def _coefficients(self, d: int, start: int, stop: int) -> list[arb]:
        factor = 2 * density_constant_ball(d) / (d - 1)
        sums = [arb(0)] * (stop - start)
        parity = self.parity()
        for place, size in zip(self.thresholds, self.jumps, strict=True):
            tau = to_arb(place)
            mirrored = parity is not None and place != 0
            if mirrored and tau < 0:
                continue  # counted with -tau: equal at degrees of the profile's parity, else opposite
            weight = factor * to_arb(size) * (1 - square(tau)).sqrt() ** (d - 1)
            weight = 2 * weight if mirrored else weight
            values = islice(gegenbauer_values(d + 2, tau), start - 1, stop - 1)
            sums = [total + weight * value for total, value in zip(sums, values, strict=True)]
        if parity is None:
            return sums
        return [
            total if degree % 2 == parity else arb(0)
            for degree, total in zip(range(start, stop), sums, strict=True)
        ]

    def energy_exact(self, d: int, degree: int) -> sympy.Expr:
        r"""$\eta_\ell(\psi)^2$ as a sympy number, for rational thresholds and jumps.

        Rational for odd $d$; for even $d$ a rational over $\pi^2$ for one threshold, an algebraic
        number over $\pi^2$ for several. Other thresholds are an ``ArgumentError``.

        >>> NEAREST_NEIGHBOR.energy_exact(4, 1)
        64/(9*pi**2)
        """
        d = exact_integer(d, "d", 2)
        degree = exact_integer(degree, "degree", 1)
        for value in (*self.thresholds, *self.jumps):
            if not value.is_Rational:
                raise ArgumentError("thresholds", value, "rational, for an exact energy")
        factor = 2 * density_constant(d) / (d - 1)
        total = sympy.S.Zero
        for place, size in zip(self.thresholds, self.jumps, strict=True):
            polynomial = next(islice(_gegenbauer_rationals(d + 2, place), degree - 1, None))
            total += size * polynomial * sympy.sqrt(1 - place**2) ** (d - 1)
        return sympy.expand(harmonic_dimension(d, degree) * (factor * total) ** 2)

    def total_energy(self, d: int) -> arb:
        r"""$\sum_{\ell\ge1}\eta_\ell(\psi)^2 = \mathbb E\psi^2 - (\mathbb E\psi)^2$ as a flint ball."""
        if self.is_sign:
            return to_arb(self.jumps[0]) ** 2
        below = [arb(0), *(_distribution(d, to_arb(place)) for place in self.thresholds), arb(1)]
        level = -sum((to_arb(size) for size in self.jumps), arb(0))
        mean, mean_square = arb(0), arb(0)
        for index, (low, high) in enumerate(pairwise(below)):
            mean += level * (high - low)
            mean_square += square(level) * (high - low)
            if index < len(self.jumps):
                level += 2 * to_arb(self.jumps[index])
        return mean_square - square(mean)

    def __str__(self) -> str:
        steps = list(zip(self.thresholds, self.jumps, strict=True))
        if len(steps) > 4:
            return f"step profile with {len(steps)} steps"
        return " + ".join(f"{size}*sgn(t - {place})" for place, size in steps)


def _sign_energies(d: int, start: int, stop: int, scale: arb) -> list[arb]:
    """``scale`` times the sign's energies: at odd degrees from one another by the recurrences of N and lambda.

    lambda_1 = 2 c_d / (d-1), lambda_{l+2} = -lambda_l l / (l+d), N(d, 1) = d.
    """
    first = start | 1
    dimension = d if first == 1 else harmonic_dimension(d, first)
    energy = scale * dimension * square(_sign_coefficient(d, first // 2))
    energies = [arb(0)] * (stop - start)
    for ell in range(first, stop, 2):
        energies[ell - start] = energy
        # N(d, l+2) / N(d, l) = (2l+d+2)(l+d-2)(l+d-1) / ((2l+d-2)(l+1)(l+2))
        energy = energy * ((2 * ell + d + 2) * (ell + d - 2) * (ell + d - 1) * ell * ell)
        energy = energy / ((2 * ell + d - 2) * (ell + 1) * (ell + 2) * (ell + d) * (ell + d))
    return energies


def _sign_coefficient(d: int, k: int) -> arb:
    """The absolute value of lambda_{2k+1}: lambda_1 (1/2)_k / ((d+1)/2)_k."""
    value = 2 * density_constant_ball(d) / (d - 1)
    if k == 0:
        return value
    return value * arb(fmpq(1, 2)).rising(arb(k)) / arb(fmpq(d + 1, 2)).rising(arb(k))


def _gegenbauer_rationals(d: int, t: sympy.Rational) -> Iterator[sympy.Rational]:
    previous, current, degree = sympy.S.One, t, 1
    yield previous
    while True:
        yield current
        step = (2 * degree + d - 2) * t * current - degree * previous
        previous, current = current, step / (degree + d - 2)
        degree += 1


def _distribution(d: int, tau: arb) -> arb:
    r"""$\Pr(t \le \tau) = \tfrac12 + \tfrac12\mathrm{sgn}(\tau) I_{\tau^2}(\tfrac12, \tfrac{d-1}2)$."""
    if tau.is_zero():
        return arb(1) / 2
    mass = square(tau).beta_lower(arb(1) / 2, arb(d - 1) / 2, regularized=True) / 2
    return arb(1) / 2 + (mass if tau > 0 else -mass)


def _exact_numbers(values: object, name: str) -> list[sympy.Expr]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ArgumentError(name, values, "a sequence of numbers")
    return [_exact_number(value, name) for value in values]


def _exact_number(value: object, name: str) -> sympy.Expr:
    if isinstance(value, sympy.Expr) and not value.is_Rational:
        if value.is_number and value.is_real:
            with precision(64):
                to_arb(value)
            return value
        raise ArgumentError(name, value, "a real number")
    rational = exact_rational(value, name)
    return sympy.Rational(rational.numerator, rational.denominator)


def _sign(value: sympy.Expr) -> int:
    if value.is_Rational:
        return int(sympy.sign(value))

    def attempt(_: int) -> int | None:
        ball = to_arb(value)
        return 1 if ball > 0 else -1 if ball < 0 else None

    return certify(attempt, f"the sign of {value}", limit=1 << 14)


def _difference_sign(left: sympy.Expr, right: sympy.Expr) -> int:
    return 0 if left == right else _sign(left - right)


def _threshold_order(one: tuple[sympy.Expr, sympy.Expr], two: tuple[sympy.Expr, sympy.Expr]) -> int:
    return _difference_sign(one[0], two[0])


NEAREST_NEIGHBOR = StepProfile((0,), (1,))
r"""The profile $\mathrm{sgn}(t)$ of the nearest neighbour of two points."""
