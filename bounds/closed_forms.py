r"""H4: closed forms that follow from the head floor, with explicit constants on both sides.

Proofs are in docs/H4-closed-forms.md. Everything is a sympy expression first; the numbers are exact
or certified.
"""

from __future__ import annotations

from fractions import Fraction

import sympy
from flint import arb

from bounds.arithmetic import (
    Ball,
    certified_ball,
    certify,
    exact_integer,
    exact_rational,
    rational_text,
    to_arb,
)
from bounds.bound import Bound
from bounds.errors import ArgumentError, HypothesisError
from bounds.harmonics import (
    Values,
    check_values,
    density_constant_ball,
    harmonic_dimension,
    head_dimension,
)
from bounds.head_floor import check_rank, exact_error, floor_hypotheses, floor_model, layer_text
from bounds.profiles import NEAREST_NEIGHBOR
from bounds.spectrum import SignSpectrum

SOURCE = "[attention-bounds, H4]"

_d, _k, _l, _L = sympy.symbols("d k ell L", positive=True)
_r, _H = sympy.symbols("r H", positive=True)
_alpha, _rho = sympy.symbols("alpha rho", positive=True)
_c = sympy.gamma(_d / 2) / (sympy.sqrt(sympy.pi) * sympy.gamma((_d - 1) / 2))
_x = sympy.Symbol("x", positive=True)
_error = sympy.Symbol("E", nonnegative=True)

ENERGY = (
    _c / (2 * sympy.pi) * (4 * _k + _d) / ((_k + sympy.Rational(1, 2)) * (_k + (_d - 1) / 2))
    * sympy.gamma(_k + sympy.Rational(1, 2)) / sympy.gamma(_k + 1)
    * sympy.gamma(_k + _d / 2) / sympy.gamma(_k + (_d + 1) / 2)
)  # fmt: skip
r"""$\eta_{2k+1}^2$ of the sign as one expression in d and k: exact."""

TAIL_LOWER = 4 * _c / (sympy.pi * sympy.sqrt((_L + 2) * (_L + _d + 1)))
r"""A lower bound of $T(L) = \sum_{\ell>L}\eta_\ell^2$, odd $L \ge -1$, $d \ge 3$."""

TAIL_UPPER = 8 * _c / (sympy.pi * sympy.sqrt((2 * _L + 1) * (2 * _L + 2 * _d - 1)))
r"""An upper bound of $T(L)$, odd $L \ge 1$, $d \ge 3$."""


def binary_entropy(x: sympy.Expr) -> sympy.Expr:
    r"""$h(x) = -x\log_2x - (1-x)\log_2(1-x)$."""
    return -(x * sympy.log(x) + (1 - x) * sympy.log(1 - x)) / sympy.log(2)


RATE = (1 + _alpha) * binary_entropy(_alpha / (1 + _alpha)) - (_rho + _alpha) * binary_entropy(
    _alpha / (_rho + _alpha)
)
r"""$\lim\frac1d\log_2 N(d,\alpha d)/M(\rho d,\alpha d)$: positive for $\rho < 1$."""


def tail_energy(d: int, degree: int, *, digits: int = 15) -> Ball:
    r"""$T(L) = \sum_{\ell>L}\eta_\ell^2$ of the sign profile, as a certified ball; any size.

    $d \ge 3$, ``degree`` $L \ge 0$. Source: [attention-bounds, H4].

    >>> tail_energy(64, 1).decimal(12)
    '0.358387360778'
    """
    d, degree = _tail_arguments(d, degree)
    index = (degree + 1) // 2

    def tail(bits: int) -> arb:
        return SignSpectrum(d, 1, "scalar", arb(1), bits).energy_tail(index)

    return certified_ball(tail, digits, f"the tail energy at d={d}")


def tail_energy_bounds(d: int, degree: int, *, digits: int = 15) -> tuple[Bound, Bound]:
    r"""Elementary bounds of $T(L)$ on both sides, with ratio tending to 1 as $L \to \infty$, for any $d$.

    $\frac{4c_d}{\pi\sqrt{(L+2)(L+d+1)}} \le T(L) \le \frac{8c_d}{\pi\sqrt{(2L+1)(2L+2d-1)}}$ for odd
    $L \ge 1$: $\asymp L^{-1/2}$ for $L \ll d$, $\asymp\sqrt d/L$ beyond. Hypotheses: $d \ge 3$, ``degree``
    $L$ odd. Source: [attention-bounds, H4].

    >>> lower, upper = tail_energy_bounds(64, 9)
    >>> lower.value.decimal(6), tail_energy(64, 9).decimal(6), upper.value.decimal(6)
    ('0.140752', '0.150524', '0.153016')
    """
    d, degree = _tail_arguments(d, degree)
    if degree % 2 == 0:
        raise HypothesisError("H4", "an odd degree L", f"L = {degree}")
    ell = to_arb(degree)

    def lower(_: int) -> arb:
        return 4 * density_constant_ball(d) / (arb.pi() * ((ell + 2) * (ell + d + 1)).sqrt())

    def upper(_: int) -> arb:
        product = (2 * ell + 1) * (2 * ell + 2 * d - 1)
        return 8 * density_constant_ball(d) / (arb.pi() * product.sqrt())

    tail = sympy.Function("T")(_L)
    both = []
    for kind, attempt, statement in (
        ("lower", lower, sympy.Ge(tail, TAIL_LOWER)),
        ("upper", upper, sympy.Le(tail, TAIL_UPPER)),
    ):
        both.append(
            Bound(
                quantity="tail energy",
                value=certified_ball(attempt, digits, "the tail bound"),
                kind=kind,  # type: ignore[arg-type]
                status="proved",
                sentence=f"the energy of the sign above degree {degree}, d = {d}, is "
                f"{'>=' if kind == 'lower' else '<='} {{value}}",
                statement=statement,
                hypotheses=("d >= 3", "L odd"),
                model=floor_model(1, "scalar"),
                source=SOURCE,
                parameters={"d": d, "degree": degree},
            )
        )
    return both[0], both[1]


def closed_form_heads(
    d: int, r: int, error: int | float | str | Fraction, *, values: Values = "general"
) -> Bound:
    r"""A head count in closed form, below :func:`bounds.min_heads`: $H > \frac12N(d,\ell)/D(r,\ell)$.

    If $H \le \frac12N(d,\ell)/D(r,\ell)$, $\ell = L+2$, the error is at least $\frac14T(L)$ (the shares
    fall). $\ell$ is the largest odd degree with $\frac{c_d}{\pi\sqrt{\ell(\ell+d-1)}} > \varepsilon$, so
    $\ell \approx \frac1{2\pi^3\varepsilon^2}$ when that is far below $d$: growth
    $(d/r)^{\Omega(1/\varepsilon^2)}$; and $N/M \ge \bigl(\frac{d+\ell-3}{r+\ell-1}\bigr)^\ell$. Vacuous when
    not even $\ell = 1$ qualifies. Hypotheses: $1 \le r \le d-3$. Source: [attention-bounds, H4].

    >>> closed_form_heads(4096, 64, "1/20").value
    68844304
    """
    d, r = check_rank(d, r, "H4")
    check_values(values)
    epsilon = exact_error(error)
    degree = _closed_form_degree(d, epsilon)
    value = 0
    if degree is not None:
        value = (
            harmonic_dimension(d, degree) // (2 * head_dimension(d, r, degree, values=values)) + 1
        )
    return Bound(
        quantity="heads",
        value=value,
        kind="lower",
        status="proved" if value else "vacuous",
        sentence=f"every layer of {layer_text(r, values)} with error <= {rational_text(epsilon)} on "
        f"nearest neighbor, d = {d}, has at least {{value}} heads",
        statement=sympy.Implies(
            sympy.Le(_H, sympy.Function("N")(_d, _L + 2) / (2 * sympy.Function("D")(_r, _L + 2))),
            sympy.Ge(_error, sympy.Function("T")(_L) / 4),
        ),
        hypotheses=floor_hypotheses(d, r, NEAREST_NEIGHBOR),
        model=floor_model(r, values),
        source=SOURCE,
        parameters={"d": d, "r": r, "error": epsilon, "values": values, "degree": degree},
    )


def growth_rate(
    alpha: int | float | str | Fraction, rho: int | float | str | Fraction, *, digits: int = 15
) -> Ball:
    r"""$(1+\alpha)h(\frac\alpha{1+\alpha}) - (\rho+\alpha)h(\frac\alpha{\rho+\alpha})$, in bits per dimension.

    The rate of $\log_2 N(d,\alpha d)/M(\rho d,\alpha d)$: heads of rank $\rho d$ are needed in numbers
    $2^{d\cdot rate}$ to capture degrees above $\alpha d$. Positive for $0 < \rho < 1$, $\alpha > 0$.
    :func:`growth_remainder` bounds the distance at finite $d$. Source: [attention-bounds, H4].

    >>> growth_rate(4, "1/2").decimal(6)
    '1.34498'
    """
    a, p = _rates(alpha, rho)
    return certified_ball(lambda _: _rate(to_arb(a), to_arb(p)), digits, "the growth rate")


def growth_remainder(d: int, r: int, degree: int, *, digits: int = 15) -> tuple[Ball, Ball]:
    r"""Bounds of $\log_2\frac{N(d,\ell)}{M(r,\ell)} - d\cdot rate(\ell/d, r/d)$ on both sides, $O(1)$ in $d$.

    From $\sqrt{\frac{a+b}{8ab}}\,2^{(a+b)h} \le \binom{a+b}a \le \sqrt{\frac{a+b}{2\pi ab}}\,2^{(a+b)h}$,
    $h = h(\frac a{a+b})$. $1 \le r \le d$, ``degree`` $\ell \ge 1$, $d \ge 3$.
    Source: [attention-bounds, H4].
    """
    d, degree = _tail_arguments(d, degree)
    r, degree = exact_integer(r, "r", 1, d), exact_integer(degree, "degree", 1)

    def side(choose_d: arb, choose_r: arb) -> arb:
        n, rank, ell = to_arb(d), to_arb(r), to_arb(degree)
        # N(d,l) = (2l+d-2)/(l+d-2) * d(d-1)... : N = C(l+d,l) * d (d-1)(2l+d-2) / ((l+d)(l+d-1)(l+d-2))
        factor = n * (n - 1) * (2 * ell + n - 2) / ((ell + n) * (ell + n - 1) * (ell + n - 2))
        small = rank / (ell + rank)  # M(r,l) = C(l+r,l) r/(l+r)
        spread = (choose_r * rank * (ell + n)) / (choose_d * n * (ell + rank))
        # C(d+l,l)/C(r+l,l) is 2^(d rate) times sqrt of this spread, up to the two constants
        return (factor / small * spread.sqrt()).log() / arb.const_log2()

    low = certified_ball(lambda _: side(arb(8), 2 * arb.pi()), digits, "the remainder")
    high = certified_ball(lambda _: side(2 * arb.pi(), arb(8)), digits, "the remainder")
    return low, high


def _rate(alpha: arb, rho: arb) -> arb:
    def entropy_sum(a: arb, b: arb) -> arb:  # (a+b) h(a/(a+b)) = log2 of (a+b)^(a+b) / (a^a b^b)
        total = a + b
        return (total * total.log() - a * a.log() - b * b.log()) / arb.const_log2()

    return entropy_sum(alpha, arb(1)) - entropy_sum(alpha, rho)


def _rates(alpha: object, rho: object) -> tuple[Fraction, Fraction]:
    a, p = exact_rational(alpha, "alpha"), exact_rational(rho, "rho")
    if a <= 0:
        raise ArgumentError("alpha", alpha, "positive")
    if not 0 < p < 1:
        raise ArgumentError("rho", rho, "strictly between 0 and 1")
    return a, p


def _closed_form_degree(d: int, epsilon: Fraction) -> int | None:
    """The largest odd $\\ell$ with $\\ell(\\ell+d-1) < (c_d/(\\pi\\varepsilon))^2$, or ``None``."""

    def attempt(_: int) -> int | None:
        reach = density_constant_ball(d) / (arb.pi() * to_arb(epsilon))
        half = to_arb(d - 1) / 2
        edge = ((half * half + reach * reach).sqrt() - half).ceil().unique_fmpz()
        return None if edge is None else int(edge)  # the degrees below are < edge

    below = certify(attempt, "the degree of the closed form")
    degree = below - 1 if (below - 1) % 2 else below - 2
    return degree if degree >= 1 else None


def _tail_arguments(d: object, degree: object) -> tuple[int, int]:
    dimension = exact_integer(d, "d", 2)
    if dimension < 3:
        raise HypothesisError("H4", "d >= 3", f"d = {dimension}")
    return dimension, exact_integer(degree, "degree", 0)
