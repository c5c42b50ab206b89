r"""Gaussian integrals on the line by the trapezoidal rule, with a proved error.

For an integrand $F$ analytic with $\int|F(x+ib)|\,dx \le e^{Ca^2/2}\int F$ for $|b| \le a$, a step
$\delta$ errs by at most $2e^{Ca^2/2}/(e^{2\pi a/\delta}-1)$ of the integral (Poisson summation,
docs/H8-contexts.md); the best $a$ is $2\pi/(C\delta)$. Products of $\varphi$ and $\Phi$ have such a $C$,
since $|\varphi(x+ib)| = e^{b^2/2}\varphi(x)$ and $|\Phi(x+ib)| \le e^{b^2/2}\Phi(x)$.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

from flint import arb, fmpq

from bounds.arithmetic import Ball, ceiling


def gaussian_density(x: arb) -> arb:
    r"""$\varphi(x) = e^{-x^2/2}/\sqrt{2\pi}$."""
    return (-(x**2) / 2).exp() / (2 * arb.pi()).sqrt()


def gaussian_distribution(x: arb) -> arb:
    r"""$\Phi(x) = \int_{-\infty}^x\varphi$."""
    return (-x / arb(2).sqrt()).erfc() / 2


def chi_mean(n: int) -> arb:
    r"""$\mathbb E R = \sqrt2\,\Gamma(\frac{n+1}2)/\Gamma(\frac n2)$ for $R \sim \chi_n$."""
    return arb(2).sqrt() * arb.gamma_fmpq(fmpq(n + 1, 2)) / arb.gamma_fmpq(fmpq(n, 2))


def trapezoid_nodes(exponent: fmpq, bits: int, mass: int) -> tuple[arb, int, arb]:
    r"""A dyadic step $\delta$, a count $j_0$, and the relative error for $C$ = ``exponent``.

    The error is below $2^{-bits}$, and so is ``mass`` $\cdot\,\Phi(-j_0\delta)$.
    """
    goal = (bits + 3) * arb.const_log2()
    ideal = arb.pi() * (2 / (arb(exponent) * goal)).sqrt()
    step = (ideal * (1 << 16)).floor().mid() / (1 << 16)
    width = 2 * arb.pi() / (exponent * step)
    error = 2 * (width**2 * exponent / 2).exp() / ((2 * arb.pi() * width / step).exp() - 1)
    # Phi(-x) <= exp(-x^2 / 2) <= 2^-(bits + log2 mass)
    end = isqrt(2 * (bits + mass.bit_length())) + 1
    return step, ceiling(Ball.from_arb(end / step).upper), error.upper()


def line_integral(integrand: Callable[[arb], arb], exponent: fmpq, bits: int, mass: int) -> arb:
    r"""$\int F$ over the line, for $0 \le F \le$ ``mass`` $\cdot\,\varphi$ and $C$ = ``exponent``."""
    step, count, relative = trapezoid_nodes(exponent, bits, mass)
    total = arb(0)
    for j in range(-count, count + 1):
        total += step * integrand(j * step)
    # left out on each side: at most mass times what Phi has beyond, as phi falls there
    cut = 2 * mass * gaussian_distribution(-count * step)
    return (total + cut.union(arb(0))) * (1 + relative * arb(0, 1))
