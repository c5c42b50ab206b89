r"""General values: layers whose error is certainly below the best of scalar values.

The floors are :func:`bounds.head_floor.head_floor`; proofs are in docs/general-values.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import sympy
from flint import fmpq, fmpq_mat

from bounds.arithmetic import exact_integer, exact_rational, precision
from bounds.errors import ArgumentError, HypothesisError
from bounds.harmonics import density_constant, harmonic_dimension
from constructions.cubic_forms import vanishing_cubics
from constructions.generalized import (
    BITS,
    GeneralizedHeads,
    draw_keys,
    identity,
    layer_arguments,
    nearest_double,
    sign_coefficients,
    zonal_projection,
)


def general_value_layer(
    d: int,
    heads: int,
    degree: int = 9,
    seed: int = 0,
    perturbation: int | float | str | Fraction = Fraction(1, 2**24),
) -> GeneralizedHeads:
    r"""General-value heads, $d < H < N(d,3)$, whose error is below the floor for scalar values.

    $G = \min\{\lfloor H/(d+1)\rfloor, N(d,3)-H\}$ groups of $d+1$ keys, each with its relation
    $\sum_hc_hk_h = 0$, and $G$ orthogonal harmonic cubics $Y_j = \mathcal T_j(w,w,w)$ that vanish
    at all keys. With the dual basis $k_h^*$ of the group's first $d$ keys,
    $V_h = I + \frac{3\epsilon}{c_h}\mathcal T_j(k_h^*,\cdot,\cdot)$ (symmetric, traceless) and
    $E_{hj} = c_h\tau_j/\epsilon$:
    $$\sum_h\tfrac{c_h\tau}\epsilon\langle k_h,w\rangle V_hw
      = \tfrac\tau\epsilon\Bigl\langle\sum_hc_hk_h,w\Bigr\rangle w + 3\tau\,\mathcal T(w,w,\cdot)
      = \tau\nabla Y(w),$$
    a field orthogonal to all that scalar heads make. The error is the truncated scalar floor minus
    $G\frac{3\lambda_3^2}{2(d+4)}$, within an amount that vanishes with ``perturbation`` $\epsilon$.

    ``degree`` $L \ge 3$ odd. Raises ``ArgumentError``, ``HypothesisError``, ``UndecidedError``.
    Source: [attention-bounds, H3].

    >>> layer = general_value_layer(4, 5)
    >>> from bounds.head_floor import head_floor
    >>> scalar = head_floor(4, 1, 5, values="scalar").value
    >>> layer.squared_error() < scalar, scalar.decimal(6)
    (True, '0.116487')
    """
    d, heads, degree = layer_arguments(d, heads, degree)
    epsilon = exact_rational(perturbation, "perturbation")
    if epsilon <= 0:
        raise ArgumentError("perturbation", perturbation, "positive")
    if degree < 3:
        raise ArgumentError("degree", degree, "an odd integer >= 3")
    groups = min(heads // (d + 1), harmonic_dimension(d, 3) - heads)
    if groups < 1:
        found = f"H = {heads}, d = {d}, N(d, 3) = {harmonic_dimension(d, 3)}"
        raise HypothesisError("general_value_layer", "d < H < N(d, 3)", found)
    keys = draw_keys(d, heads, seed)
    cubics = vanishing_cubics(d, keys, groups)
    small = fmpq(epsilon.numerator, epsilon.denominator)
    values = [identity(d) for _ in range(heads)]
    couplings = fmpq_mat(heads, groups)
    with precision(BITS):
        strength = nearest_double(sign_coefficients(d, 3)[3])
    for j, form in enumerate(cubics):
        first = j * (d + 1)
        slope = strength / (form.inner(form) * (d + 4))
        basis = fmpq_mat(d, d, [x for key in keys[first : first + d] for x in key]).transpose()
        dual = basis.inv()
        relation = dual * fmpq_mat(d, 1, list(keys[first + d]))
        slices = [form.slice(a) for a in range(d)]
        for i in range(d):
            # sum_i c_i k_i = k_last, so the last head cancels w's part and keeps V = I
            along = sum((dual[i, a] * slices[a] for a in range(d)), fmpq_mat(d, d))
            values[first + i] += 3 * small / relation[i, 0] * along
            couplings[first + i, j] = relation[i, 0] * slope / small
        couplings[first + d, j] = -slope / small
    return GeneralizedHeads(
        d=d,
        keys=keys,
        values=tuple(values),
        totals=tuple(fmpq(int(h == d)) for h in range(heads)),  # that head's V is I: it routes v
        zonal=zonal_projection(d, degree, keys),
        cubics=cubics,
        couplings=couplings,
    )


@dataclass(frozen=True)
class HardHeadValue:
    r"""The best $V$ of one hardmax head with $q = k$.

    $V$ = ``along`` $kk^\top$ + ``across`` $(I-kk^\top)$. ``error`` is its error, ``scalar_error``
    that of the best $V = aI$; sympy expressions, exact.
    """

    along: sympy.Expr
    across: sympy.Expr
    error: sympy.Expr
    scalar_error: sympy.Expr


def hard_head_value(d: int) -> HardHeadValue:
    r"""One rank-1 hardmax head, $q = k$: the best general $V$ beats the best scalar one.

    Scores $\langle k,x_i\rangle\langle k,y\rangle$.
    $V = d\,\mathbb E[f x_{sel}^\top]$ with eigenvalues $d\,m_\parallel, d\,m_\perp$,
    $m_\parallel = \frac12(\frac1d+\frac2\pi\mathbb E[u^2\arcsin|u|])$, and error
    $1-d(m_\parallel^2+(d-1)m_\perp^2)$, against $1-(m_\parallel+(d-1)m_\perp)^2$ for $V = aI$; the
    difference is $(d-1)(m_\parallel-m_\perp)^2 > 0$. Hypotheses: $d \ge 2$.
    Source: [attention-bounds, H6].

    >>> hard_head_value(2).error
    7/16 - 1/pi**4
    """
    d = exact_integer(d, "d", 2)
    double = 2 * density_constant(d)
    whole = double * _angle_moment(d - 2)  # E[arcsin|u|]
    along = double * (_angle_moment(d - 2) - _angle_moment(d))  # E[u^2 arcsin|u|]
    inner = (sympy.Rational(1, d) + 2 / sympy.pi * along) / 2
    outer = (sympy.Rational(1, d) + 2 / sympy.pi * (whole - along) / (d - 1)) / 2
    return HardHeadValue(
        along=sympy.expand(d * inner),
        across=sympy.expand(d * outer),
        error=sympy.expand(1 - d * (inner**2 + (d - 1) * outer**2)),
        scalar_error=sympy.expand(1 - (inner + (d - 1) * outer) ** 2),
    )


def _angle_moment(power: int) -> sympy.Expr:
    r"""$\int_0^{\pi/2}\theta\cos^n\theta\,d\theta$: $I_n = \frac{n-1}nI_{n-2}-\frac1{n^2}$."""
    value = sympy.pi**2 / 8 if power % 2 == 0 else sympy.pi / 2 - 1
    for n in range(2 + power % 2, power + 1, 2):
        value = sympy.expand(value * sympy.Rational(n - 1, n) - sympy.Rational(1, n * n))
    return value
