r"""Spherical harmonics on $S^{d-1}$: dimensions, the law of $\langle w, y\rangle$, Gegenbauer values.

$P_\ell$ is the Gegenbauer polynomial of $S^{d-1}$ normalised to $P_\ell(1) = 1$; the unnormalised
ones overflow from $d \approx 128$ and are never used.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb
from typing import Literal

import sympy
from flint import arb, fmpq

from bounds.arithmetic import exact_integer
from bounds.errors import ArgumentError

Values = Literal["general", "scalar"]


def harmonic_dimension(d: int, degree: int) -> int:
    r"""$N(d,\ell) = \binom{\ell+d-1}{\ell} - \binom{\ell+d-3}{\ell-2}$, an exact integer.

    The dimension of the spherical harmonics of degree $\ell$ on $S^{d-1}$, $d \ge 2$, $\ell \ge 0$.
    Source: [DaiXu2013, Section 1.1].

    >>> [harmonic_dimension(3, degree) for degree in range(4)]
    [1, 3, 5, 7]
    """
    d = exact_integer(d, "d", 2)
    degree = exact_integer(degree, "degree", 0)
    lower = comb(degree + d - 3, degree - 2) if degree >= 2 else 0
    return comb(degree + d - 1, degree) - lower


def invariant_dimension(r: int, degree: int) -> int:
    r"""$M(r,\ell) = \binom{\ell+r-1}{\ell}$, an exact integer.

    The dimension of the harmonics of degree $\ell$ that are invariant under the rotations fixing
    an $r$-dimensional subspace, $r \ge 1$, $\ell \ge 0$: those that a function of $K^\top w$ can
    have, $K \in \mathbb R^{d \times r}$, $d - r \ge 2$. Source: [attention-bounds, H2].

    >>> invariant_dimension(2, 3)
    4
    """
    r = exact_integer(r, "r", 1)
    degree = exact_integer(degree, "degree", 0)
    return comb(degree + r - 1, degree)


def head_dimension(d: int, r: int, degree: int, *, values: Values = "general") -> int:
    r"""$D(r,\ell)$, the degree-$\ell$ dimension that one generalised rank-$r$ head can reach.

    For scalar values $M(r,\ell)$; for general values
    $M(r,\ell) + \min\{rM(r,\ell-1) + M(r,\ell), (d-r)M(r,\ell-1)\} + M(r,\ell-2)$.
    Never above $N(d,\ell)$ for $\ell \ge 1$. Source: [attention-bounds, H2].

    >>> head_dimension(6, 2, 3), head_dimension(6, 2, 3, values="scalar")
    (16, 4)
    """
    d = exact_integer(d, "d", 2)
    r = exact_integer(r, "r", 1, d)
    degree = exact_integer(degree, "degree", 0)
    check_values(values)
    here, below, below_two = (
        comb(degree - drop + r - 1, degree - drop) if degree >= drop else 0 for drop in range(3)
    )
    if values == "scalar":
        return here
    return here + min(r * below + here, (d - r) * below) + below_two


def check_values(values: object) -> None:
    """An :class:`~bounds.errors.ArgumentError` unless ``values`` names a kind of value matrix."""
    if values not in ("general", "scalar"):
        raise ArgumentError("values", values, "'general' (any V) or 'scalar' (V = a I)")


def density_constant(d: int) -> sympy.Expr:
    r"""$c_d = \Gamma(d/2) / (\sqrt\pi\,\Gamma(\tfrac{d-1}2))$ as a sympy number, $d \ge 2$.

    For $w, y$ independent and uniform on $S^{d-1}$, $t = \langle w, y\rangle$ has density
    $c_d (1-t^2)^{(d-3)/2}$. Rational for odd $d$, a rational over $\pi$ for even $d$.

    >>> density_constant(3), density_constant(4)
    (1/2, 2/pi)
    """
    d = exact_integer(d, "d", 2)
    n = d // 2
    if d % 2:
        return sympy.Rational(n * comb(2 * n, n), 4**n)
    return sympy.Rational(4 ** (n - 1), comb(2 * n - 2, n - 1)) / sympy.pi


def density_constant_ball(d: int) -> arb:
    """$c_d$ as a flint ball at the precision in force; any $d$, without overflow."""
    return arb.gamma_fmpq(fmpq(d, 2)) / arb.gamma_fmpq(fmpq(d - 1, 2)) / arb.const_sqrt_pi()


def gegenbauer_values(d: int, t: arb) -> Iterator[arb]:
    r"""$P_0(t), P_1(t), \dots$ of $S^{d-1}$, $d \ge 2$, as balls, by the three-term recurrence.

    $(\ell+d-2)P_{\ell+1} = (2\ell+d-2)tP_\ell - \ell P_{\ell-1}$. The balls widen by up to 1.3
    bits a degree: the caller works at a precision that allows for it.
    """
    previous, current = arb(1), t
    yield previous
    degree = 1
    while True:
        yield current
        step = (2 * degree + d - 2) * t * current - degree * previous
        previous, current = current, step / (degree + d - 2)
        degree += 1
