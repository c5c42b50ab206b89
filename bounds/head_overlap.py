r"""The inner products behind H6: of two rank-1 hard heads, and of a head with the nearest neighbour.

A head with unit $q, k$ and value $I$ selects $x_1$ when $\langle k, x_1-x_2\rangle\langle q, y\rangle > 0$,
else $x_2$. Proofs: docs/H6-rank-one-heads.md.
"""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from functools import cache
from itertools import pairwise

from flint import arb, ctx, fmpq

from bounds.arithmetic import (
    Ball,
    certified_ball,
    certify,
    exact_integer,
    exact_rational,
    precision,
    to_arb,
)
from bounds.errors import ArgumentError
from bounds.harmonics import density_constant_ball, gegenbauer_values, harmonic_dimension

Cosine = int | float | str | Fraction | Ball


def head_overlap(query_cosine: Cosine, key_cosine: Cosine, *, digits: int = 15) -> Ball:
    r"""$C_{hh'} = \frac12 + \frac2{\pi^2}\arcsin\langle q_h,q_{h'}\rangle\arcsin\langle k_h,k_{h'}\rangle$.

    The inner product $\mathbb E\langle g_h, g_{h'}\rangle$ of two heads of value $I$. The cosines are
    those of *unit* queries and keys, exact numbers (or balls) in $[-1, 1]$. Exact.
    Source: [attention-bounds, H6].

    >>> print(head_overlap("1/2", 1).decimal(10))
    0.6666666667
    """
    query, key = _cosine(query_cosine, "query_cosine"), _cosine(key_cosine, "key_cosine")
    digits = exact_integer(digits, "digits", 1)

    def attempt(_: int) -> arb:
        return arb(1) / 2 + 2 * _arcsine(query) * _arcsine(key) / arb.pi() ** 2

    return certified_ball(attempt, digits, "head_overlap")


def target_overlap(d: int, cosine: Cosine, *, digits: int = 15) -> Ball:
    r"""$b_h = \mathbb E\langle f, g_h\rangle$ at $t = \langle q_h, k_h\rangle$, in closed form.

    The inner product of the nearest neighbour $f$ and a head $g_h$ of value $I$.
    $b = \frac12 + \frac{\lambda_1}{\pi}\int_0^t {}_2F_1(\tfrac12,\tfrac12;\tfrac{d+1}2;1-x^2)\,dx$,
    $\lambda_1 = 2c_d/(d-1)$, for *unit* $q_h, k_h$; at $d = 2$ it is $\frac34 - \theta^2/\pi^2$,
    $\cos\theta = t \ge 0$, antisymmetric about $\frac12$. $d \ge 2$; ``cosine`` in $[-1, 1]$. Exact.
    Source: [attention-bounds, H6].

    >>> print(target_overlap(2, "1/2").decimal(10))
    0.6388888889
    """
    d = exact_integer(d, "d", 2)
    t = _cosine(cosine, "cosine")
    digits = exact_integer(digits, "digits", 1)
    return certified_ball(lambda _: target_overlap_ball(d, to_arb(t)), digits, "target_overlap")


def target_overlap_ball(d: int, t: arb) -> arb:
    r"""$b$ at the precision in force, for $t \in [-1, 1]$."""
    middle = arb(t.mid())
    size = abs(middle)
    if d == 2:
        # at the signed angle s = arcsin t, b - 1/2 = (pi^2/4 - (pi/2 - s)^2) / pi^2 for s >= 0
        half = size.asin() * (arb.pi() - size.asin()) / arb.pi() ** 2
    else:
        half = overlap_table(d, ctx.prec).excess(size)
    drift = t.rad() * _slope_at_zero(d)  # the slope is largest at 0
    return arb(1) / 2 + (half if middle >= 0 else -half) + drift * arb(0, 1)


def overlap_slope_ball(d: int, t: arb) -> arb:
    r"""$b'(t) = \frac{\lambda_1}\pi{}_2F_1(\frac12,\frac12;\frac{d+1}2;1-t^2)$ for $t \in [-1, 1]$."""
    if t.is_zero():
        return _slope_at_zero(d)
    half = arb(1) / 2
    value = (1 - t**2).hypgeom_2f1(half, half, arb(d + 1) / 2)
    return 2 * density_constant_ball(d) / ((d - 1) * arb.pi()) * value


class OverlapTable:
    r"""Taylor polynomials of $b(t) - \frac12 = \frac{\lambda_1}\pi\int_0^tF$ on cells of $[0, 1]$.

    $F(t) = {}_2F_1(\frac12,\frac12;\frac{d+1}2;1-t^2)$ solves
    $t(1-t^2)F'' = (d-2+3t^2)F' + tF$, which gives the coefficients about a center $c$. By Euler's
    integral $|F| \le F(0)$ where $|\arg t| \le \pi/4$, so a coefficient is at most
    $F(0)\,(c/\sqrt2)^{-n}$. ``edges`` are dyadic, cell $i$ is
    $[\mathtt{edges}_i, \mathtt{edges}_{i+1}]$, ``coefficients[i]`` are in powers of
    $t - \mathtt{centers}_i$, each with an absolute error of about $2^{-bits}$ and with the
    truncation in the first. Below ``edges[0]``, $b - \frac12$ is $t$ times ``lowest``.
    """

    def __init__(self, d: int, bits: int) -> None:
        octaves = bits // 3 + 8  # F(0) - F(t) = O(t^2 log t) at d = 3, and smaller above
        # the ratio of the Cauchy bound is sqrt(2)/5 at most
        self.length = 5 * bits // 9 + 8
        self.edges = [fmpq(1)]
        for octave in range(octaves):
            self.edges += [fmpq(3, 4 << octave), fmpq(1, 2 << octave)]
        self.edges.reverse()
        pairs = list(pairwise(self.edges))
        self.centers = [(low + high) / 2 for low, high in pairs]
        # the solution that is singular at t = 1 grows up to 7^n: 3 bits a term
        with precision(bits + 3 * self.length + 64):
            scale = _slope_at_zero(d)
            factor = scale / _gauss_value(d)
            slopes = [self._slopes(d, center) for center in self.centers]
            lowest = factor * slopes[0][0]  # F falls, and the first center is above the first edge
            self.lowest = lowest.union(scale)
            total = self.lowest * arb(self.edges[0])
            self.coefficients: list[list[arb]] = []
            for (low, high), center, slope in zip(pairs, self.centers, slopes, strict=True):
                reach = arb(high - low) / 2
                terms = [arb(0), *(factor * value / (n + 1) for n, value in enumerate(slope))]
                ratio = reach * arb(2).sqrt() / arb(center)
                cut = (scale * reach * ratio**self.length / (1 - ratio)).upper()
                terms[0] = total - _horner(terms, -reach) + cut * arb(0, 1)
                self.coefficients.append(terms)
                total = _horner(terms, reach)

    def _slopes(self, d: int, center: fmpq) -> list[arb]:
        c, half = arb(center), arb(1) / 2
        z, third = 1 - c**2, arb(d + 1) / 2
        slopes = [
            z.hypgeom_2f1(half, half, third),
            -c / (2 * third) * z.hypgeom_2f1(3 * half, 3 * half, third + 1),
        ]
        leading = [c - c**3, 1 - 3 * c**2, -3 * c, arb(-1)]  # t (1 - t^2)
        middle = [d - 2 + 3 * c**2, 6 * c, arb(3)]  # d - 2 + 3 t^2
        for n in range(self.length - 2):
            value = c * slopes[n] + (slopes[n - 1] if n else 0)
            for i, q in enumerate(middle[: n + 2]):
                value += q * (n - i + 1) * slopes[n - i + 1]
            for i, p in enumerate(leading[1 : n + 2], 1):
                value -= p * ((n - i + 2) * (n - i + 1)) * slopes[n - i + 2]
            slopes.append(value / (leading[0] * ((n + 2) * (n + 1))))
        return slopes

    def excess(self, t: arb) -> arb:
        r"""$b(t) - \frac12$ for an exact $t \in [0, 1]$."""
        place = t.fmpq()
        if place <= self.edges[0]:
            return self.lowest * t
        cell = bisect_left(self.edges, place) - 1
        return _horner(self.coefficients[cell], t - arb(self.centers[cell]))


overlap_table = cache(OverlapTable)


def _horner(coefficients: list[arb], u: arb) -> arb:
    total = arb(0)
    for coefficient in reversed(coefficients):
        total = total * u + coefficient
    return total


def _gauss_value(d: int) -> arb:
    r"""$F(0) = \Gamma(\frac{d+1}2)\Gamma(\frac{d-1}2)/\Gamma(\frac d2)^2$."""
    upper, lower = arb.gamma_fmpq(fmpq(d + 1, 2)), arb.gamma_fmpq(fmpq(d - 1, 2))
    return upper * lower / arb.gamma_fmpq(fmpq(d, 2)) ** 2


def _slope_at_zero(d: int) -> arb:
    r"""$b'(0) = \lambda_1F(0)/\pi$, the largest slope of $b$."""
    return 2 * density_constant_ball(d) / ((d - 1) * arb.pi()) * _gauss_value(d)


def target_overlap_series(d: int, cosine: Cosine, degree: int, *, bits: int = 128) -> Ball:
    r"""$b_h$ by its series up to ``degree`` $L$, the tail enclosed.

    $b = \frac12 + \frac12\sum_{\ell\,\mathrm{odd}}\lambda_\ell^3N(d,\ell)P_\ell(t)$; the terms above
    $L$ add at most $\frac12|\lambda_{L+2}|\,T(L)$, since $|P_\ell| \le 1$ and
    $N\lambda_\ell^2 = \eta_\ell^2$. The radius falls like $L^{-(d+1)/2}$.
    Source: [attention-bounds, H6].

    >>> series, closed = target_overlap_series(8, "1/3", 41), target_overlap(8, "1/3")
    >>> closed in series
    True
    """
    d = exact_integer(d, "d", 2)
    t = _cosine(cosine, "cosine")
    degree = exact_integer(degree, "degree", 1)

    def attempt(_: int) -> Ball:
        total, rest = arb(0), arb(1)
        coefficient = 2 * density_constant_ball(d) / (d - 1)
        for ell, value in enumerate(gegenbauer_values(d, to_arb(t))):
            if ell > degree:
                break
            if ell % 2:
                energy = harmonic_dimension(d, ell) * coefficient**2
                total += energy * coefficient * value
                rest -= energy
                coefficient = -coefficient * ell / (ell + d)
        tail = (abs(coefficient) * rest).upper()
        return Ball.from_arb((1 + total + tail * arb(0, 1)) / 2)

    return certify(attempt, "target_overlap_series", start=bits + 3 * degree // 2)


def _cosine(value: Cosine, name: str) -> Fraction | Ball:
    number = value if isinstance(value, Ball) else exact_rational(value, name)
    low, high = (number.lower, number.upper) if isinstance(number, Ball) else (number, number)
    if low < -1 or high > 1:
        raise ArgumentError(name, value, "in [-1, 1] (the vectors must have unit length)")
    return number


def _arcsine(cosine: Fraction | Ball) -> arb:
    return to_arb(cosine).asin()
