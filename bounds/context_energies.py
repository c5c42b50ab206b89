r"""H8: the harmonic energies of the nearest neighbour among $N$ points, seen by one pair of them.

Given all points but the direction $w = (x_1-x_2)/\sqrt2$, the target along $w$ is
$\psi_\tau(t)/\sqrt2$ with $\psi_\tau = \mathrm{sgn}(t)\,1\{|t| > \tau\}$ on $S^{n-1}$, $n = d-N+1$. In
Gaussian terms $\tau = Z_+/R$: $Z = \sqrt2\max_{i\le N-2}g_i - g$, and $R \sim \chi_n$ independent of
it. The energies are $\bar\eta_\ell^2 = \mathbb E_\tau[\eta_\ell(\psi_\tau)^2]$, and sum to $2/N$.
Proofs in docs/H8-contexts.md.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice

from flint import arb, fmpq

from bounds.arithmetic import Ball, ceiling, precision
from bounds.gaussians import (
    chi_mean,
    gaussian_density,
    gaussian_distribution,
    line_integral,
    trapezoid_nodes,
)
from bounds.harmonics import density_constant_ball, gegenbauer_values, harmonic_dimension

_ELLIPSES = (fmpq(3, 2), fmpq(2), fmpq(5, 2), fmpq(3), fmpq(7, 2))


@lru_cache(maxsize=32)
def context_energies(d: int, context: int, last: int, bits: int) -> tuple[arb, ...]:
    r"""$\bar\eta_\ell^2$ for the odd degrees $\ell = 1, 3, \dots, \le$ ``last``, as flint balls.

    $\bar\eta_\ell^2 = K_\ell\,\bigl[\Pr(Z\le0)P(0)^2 + \int_0^1(1-x^2)^{n-1}P(x)^2f_\tau(x)\,dx\bigr]$
    with $K_\ell = N(n,\ell)\,4c_n^2/(n-1)^2$, $P = P^{(n+2)}_{\ell-1}$; even degrees have none.
    $f_\tau$ is replaced by a polynomial, whose error is the error of every energy, and
    Gauss-Legendre quadrature is then exact. $N \ge 2$, $n = d-N+1 \ge 3$. The absolute error is
    near $2^{-bits}$.
    """
    n = d - context + 1
    density = None if context == 2 else _interpolant(n, context, bits)
    spread = 0 if density is None else 2 * density.degree
    # the recurrences lose 1.3 bits a degree, and K_l is multiplied in afterwards
    work = bits + 2 * last + spread + harmonic_dimension(n, last).bit_length() // 2 + 32
    with precision(work):
        scale = (2 * density_constant_ball(n) / (n - 1)) ** 2
        atom = arb(1) if density is None else nonpositive_chance(context, bits)
        sums = [atom * square for square in _squares(n, arb(0), last)]
        if density is not None:
            # degree 2(n-1) + 2(last-1) + density.degree of the integrand
            nodes = n - 2 + last + density.degree // 2 + 1
            for k in range(nodes):
                root, weight = arb.legendre_p_root(nodes, k, weight=True)
                x = (1 + root) / 2
                mass = weight / 2 * (1 - x**2) ** (n - 1) * density(root)
                sums = [s + mass * q for s, q in zip(sums, _squares(n, x, last), strict=True)]
        error = arb(0) if density is None else density.error
        return tuple(
            scale * harmonic_dimension(n, degree) * total + error * arb(0, 1)
            for degree, total in zip(range(1, last + 1, 2), sums, strict=True)
        )


def nonpositive_chance(context: int, bits: int) -> arb:
    r"""$\Pr(Z\le0) = \mathbb E[\Phi(g/\sqrt2)^{N-2}]$, $N \ge 3$: two points that tie are the best ones."""

    def integrand(s: arb) -> arb:
        return gaussian_density(s) * gaussian_distribution(s / arb(2).sqrt()) ** (context - 2)

    return line_integral(integrand, fmpq(context, 2), bits, 1)


class ThresholdDensity:
    r"""The density $f_\tau$ of $\tau$ on $(0, \infty)$, $N \ge 3$, to about ``bits`` bits.

    $f_\tau(x) = \int (N-2)\varphi(m)\Phi(m)^{N-3}h(x,m)\,dm$,
    $h(x,m) = \mathbb E[R\,\varphi(\sqrt2m - xR)]
    = \frac{e^{-m^2}}{\sqrt{2\pi}(1+x^2)^{(n+1)/2}}\bigl[\mathbb E R\,{}_1F_1(\tfrac{n+1}2;\tfrac12;z)
    + nb\,{}_1F_1(\tfrac n2+1;\tfrac32;z)\bigr]$ with $b = \sqrt2mx/\sqrt{1+x^2}$, $z = b^2/2$; by the
    trapezoidal rule in $m$.
    """

    def __init__(self, n: int, context: int, bits: int) -> None:
        self.n = n
        # z < bits + 32: at this precision 1F1 is summed, as its asymptotic series loses all digits
        self.bits = 2 * bits + 64
        rivals = context - 2
        with precision(self.bits):
            self.mean = chi_mean(n)
            step, count, self.relative = trapezoid_nodes(fmpq(context), bits, rivals)
            self.places = [j * step for j in range(count + 1)]
            weights = [
                (self._weight(m, rivals) * step, self._weight(-m, rivals) * step)
                for m in self.places
            ]
            root = (2 * arb.pi()).sqrt()
            damping = [(-(m**2)).exp() / root for m in self.places]
            self.even = [
                (up + down if j else up) * self.mean * damping[j]
                for j, (up, down) in enumerate(weights)
            ]
            self.odd = [(up - down) * n * damping[j] for j, (up, down) in enumerate(weights)]
            # left out: weights of at most rivals * Phi(-end) a side, times h <= E R / sqrt(2 pi)
            self.cut = 2 * rivals * gaussian_distribution(-self.places[-1]) * self.mean / root

    @staticmethod
    def _weight(m: arb, rivals: int) -> arb:
        return rivals * gaussian_density(m) * gaussian_distribution(m) ** (rivals - 1)

    def __call__(self, x: arb) -> arb:
        """$f_\\tau(x)$, $x \\ge 0$."""
        with precision(self.bits):
            square = 1 + x**2
            slope = (2 / square).sqrt() * x
            half = arb(self.n + 1) / 2
            total = arb(0)
            for m, even, odd in zip(self.places, self.even, self.odd, strict=True):
                b = slope * m
                z = b**2 / 2
                total += even * z.hypgeom_1f1(half, arb(1) / 2)
                total += odd * b * z.hypgeom_1f1(half + arb(1) / 2, arb(3) / 2)
            total = total / square.sqrt() ** (self.n + 1) + self.cut.union(arb(0))
            return total * (1 + self.relative * arb(0, 1))


class DensityInterpolant:
    r"""A polynomial within ``error`` of $f_\tau$ on [0, 1]: Chebyshev interpolation.

    On the ellipse of foci 0, 1 and semi-axes $(\varrho\pm\varrho^{-1})/4$, where
    $|\mathrm{Im}\,x| \le B = (\varrho-\varrho^{-1})/4 < 1$,
    $|f_\tau| \le \mathbb E[Re^{R^2B^2/2}]/\sqrt{2\pi} = \mathbb E R\,(1-B^2)^{-(n+1)/2}/\sqrt{2\pi} =: M$, so
    that interpolation of degree $m$ errs by at most $4M\varrho^{-m}/(\varrho-1)$; errors of the
    values interpolated grow by at most $1+\frac2\pi\ln(m+1)$.
    """

    def __init__(self, n: int, context: int, bits: int) -> None:
        with precision(2 * bits + 64):
            self.degree, truncation = _interpolation_degree(n, bits)
            count = self.degree + 1
            density = ThresholdDensity(n, context, bits)
            angles = [arb.pi() * (2 * j + 1) / (2 * count) for j in range(count)]
            values = [density((1 + angle.cos()) / 2) for angle in angles]
            noise = max(value.rad() for value in values)
            lebesgue = 1 + 2 * arb(count).log() / arb.pi()
            self.error = (truncation + lebesgue * noise).upper()
        # midpoints are exact numbers: what was computed is within `noise` of them
        with precision(2 * bits + 64 + 2 * count):
            cosines = [(arb.pi() * k / (2 * count)).cos() for k in range(4 * count)]
            self.coefficients = [
                sum(
                    (
                        v.mid() * cosines[i * (2 * j + 1) % (4 * count)]
                        for j, v in enumerate(values)
                    ),
                    arb(0),
                )
                * (2 if i else 1)
                / count
                for i in range(count)
            ]

    def __call__(self, u: arb) -> arb:
        """The polynomial at $x = (1+u)/2$, by Clenshaw's recurrence, which loses 1.3 bits a degree."""
        ahead, current = arb(0), arb(0)
        for coefficient in reversed(self.coefficients[1:]):
            ahead, current = current, 2 * u * current - ahead + coefficient
        return u * current - ahead + self.coefficients[0]


@lru_cache(maxsize=32)
def _interpolant(n: int, context: int, bits: int) -> DensityInterpolant:
    return DensityInterpolant(n, context, bits)


def _squares(n: int, x: arb, last: int) -> list[arb]:
    """Squares of the polynomials of degree 0, 2, ... < ``last`` of the sphere of dimension n + 1."""
    return [value**2 for value in islice(gegenbauer_values(n + 2, x), 0, last, 2)]


def _interpolation_degree(n: int, bits: int) -> tuple[int, arb]:
    """A degree for :class:`DensityInterpolant`, and its truncation error."""
    best: tuple[int, arb] | None = None
    for rho in map(arb, _ELLIPSES):
        height = (rho - 1 / rho) / 4
        bound = 4 * chi_mean(n) / (2 * arb.pi()).sqrt() / (rho - 1)
        bound /= (1 - height**2).sqrt() ** (n + 1)
        degree = max(1, _ceiling((bound.log() + bits * arb.const_log2()) / rho.log()))
        if best is None or degree < best[0]:
            best = degree, (bound * rho**-degree).upper()
    assert best is not None
    return best


def _ceiling(value: arb) -> int:
    return ceiling(Ball.from_arb(value).upper)
