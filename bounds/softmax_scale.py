r"""H1: one full-rank head is enough; the softmax scale it needs and the error it has.

The weights are :func:`constructions.nearest_neighbor.full_rank_nearest_neighbor`; the proof is in
docs/H1-full-rank-head.md.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import sympy
from flint import acb, arb, fmpq

from bounds.arithmetic import (
    Ball,
    certified_ball,
    exact_integer,
    exact_rational,
    rational_text,
    to_arb,
)
from bounds.bound import Bound
from bounds.errors import ArgumentError, HypothesisError
from bounds.harmonics import density_constant_ball
from bounds.model import Model

SOURCE = "[attention-bounds, H1]"

_d = sympy.Symbol("d", integer=True, positive=True)
_c = sympy.Function("c")(_d)
_beta, _epsilon, _error = sympy.symbols("beta epsilon E", positive=True)
_t = sympy.Symbol("t", real=True)

SCALE = 2 * sympy.sqrt(2) * _c * (sympy.log(2) - sympy.Rational(1, 2)) / _epsilon
"""A sufficient scale as a sympy expression in c(d) and epsilon."""

SCALE_STATEMENT = sympy.Le(_beta, SCALE)
ERROR_STATEMENT = sympy.Eq(
    _error,
    4 * _c * sympy.Integral(
        (1 - _t**2) ** ((_d - 3) / 2) / (1 + sympy.exp(sympy.sqrt(2) * _beta * _t)) ** 2, (_t, 0, 1)
    ),
)  # fmt: skip


def softmax_scale(d: int, error: int | float | str | Fraction, *, digits: int = 15) -> Bound:
    r"""A scale $\beta$ at which one full-rank softmax head has error at most ``error`` on $\mathcal D_2$.

    $\beta = 2\sqrt2\,c_d(\ln 2 - \tfrac12)/\varepsilon$ is enough (an upper bound on the scale that
    is needed, tight as $\varepsilon \to 0$), for scores $\beta\langle x_i, y\rangle$. At
    $\varepsilon \ge 1/2$ the scale 0 is enough and the bound is vacuous.
    Hypothesis: $d \ge 3$. Source: [attention-bounds, H1].

    >>> print(softmax_scale(64, "1/100").value.decimal(8))
    172.30203
    """
    d = _dimension(d)
    epsilon = exact_rational(error, "error")
    if epsilon <= 0:
        raise ArgumentError("error", error, "positive")
    digits = exact_integer(digits, "digits", 1)

    def scale(_: int) -> arb:
        constant = 2 * arb(2).sqrt() * (arb.const_log2() - fmpq(1, 2))
        return constant * density_constant_ball(d) / to_arb(epsilon)

    enough = epsilon >= Fraction(1, 2)
    return Bound(
        quantity="softmax scale",
        value=Ball.of(0) if enough else certified_ball(scale, digits, "the scale"),
        kind="upper",
        status="vacuous" if enough else "proved",
        sentence=f"one full-rank softmax head with scores beta <x_i, y>, beta = {{value}}, has error "
        f"<= {rational_text(epsilon)} on nearest neighbor, d = {d}",
        statement=SCALE_STATEMENT,
        hypotheses=("d >= 3", "two orthonormal points, uniform among such frames"),
        model=_model(),
        source=SOURCE,
        parameters={"d": d, "error": epsilon},
    )


def softmax_error(d: int, scale: int | float | str | Fraction, *, digits: int = 15) -> Bound:
    r"""The error of one full-rank softmax head of scale $\beta \ge 0$ on $\mathcal D_2$, enclosed.

    $\mathbb E\|f-g\|^2 = 2\,\mathbb E[\sigma(-\beta\sqrt2|t|)^2]$ with $\sigma$ the logistic function,
    by certified integration over the angle. Hypothesis: $d \ge 3$. Source: [attention-bounds, H1].

    >>> print(softmax_error(64, 173).value.decimal(8))
    0.0099555033
    """
    d = _dimension(d)
    beta = exact_rational(scale, "scale")
    if beta < 0:
        raise ArgumentError("scale", scale, "at least 0")
    digits = exact_integer(digits, "digits", 1)
    return Bound(
        quantity="error",
        value=certified_ball(lambda _: _error_integral(d, beta), digits, "the softmax error"),
        kind="exact",
        status="certified",
        sentence=f"one full-rank softmax head with scores beta <x_i, y>, beta = {rational_text(beta)}, "
        f"has error {{value}} on nearest neighbor, d = {d}",
        statement=ERROR_STATEMENT,
        hypotheses=("d >= 3", "two orthonormal points, uniform among such frames"),
        model=_model(),
        source=SOURCE,
        parameters={"d": d, "scale": beta},
    )


def _error_integral(d: int, beta: Fraction) -> arb:
    """4 c_d times the integral of cos(u)^(d-2) sigma(-beta sqrt2 sin u)^2 over [0, pi/2]."""
    slope = acb(to_arb(beta) * arb(2).sqrt())

    def integrand(u: acb, _: bool) -> acb:
        decay = (-slope * u.sin()).exp()  # sigma(-s) = e^-s / (1 + e^-s)
        return u.cos() ** (d - 2) * (decay / (1 + decay)) ** 2

    # split where the logistic has died out, so that the integrator starts on the right scale
    scale = max(Fraction(1), beta, Fraction(d))
    cuts = [
        arb(0),
        *(arb.pi() / 2 / to_arb(scale) * 4**k for k in range(64) if 4**k < scale),
        arb.pi() / 2,
    ]
    pieces = (acb.integral(integrand, low, high).real for low, high in pairwise(cuts))
    return 4 * density_constant_ball(d) * sum(pieces, arb(0))


def _dimension(d: object) -> int:
    dimension = exact_integer(d, "d", 2)
    if dimension < 3:
        raise HypothesisError("H1", "d >= 3", f"d = {dimension}")
    return dimension


def _model() -> Model:
    return Model(
        task="nearest-neighbor",
        attention="soft",
        values="scalar",
        readout="sum",
        embeddings="random-frame",
        context=2,
    )
