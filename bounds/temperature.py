r"""H1 for any number of points: a softmax scale at which one full-rank head is good enough.

The head has scores $\beta\langle x_i, y\rangle$ and values $x_i$
(:func:`constructions.nearest_neighbor.full_rank_nearest_neighbor`). All results are upper bounds on
the scale that is needed. Two points have their own exact formulas in :mod:`bounds.softmax_scale`.
Proofs in docs/temperature.md.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import sympy
from flint import arb, fmpq

from bounds.arithmetic import (
    Ball,
    certified_ball,
    exact_integer,
    exact_rational,
    precision,
    rational_text,
    to_arb,
)
from bounds.bound import Bound, Kind, Parameter, Status
from bounds.errors import ArgumentError, HypothesisError
from bounds.harmonics import density_constant_ball
from bounds.head_floor import exact_error
from bounds.model import Model
from bounds.score_gaps import gap_density, tie_chance

SOURCE = "[attention-bounds, H1]"

_BITS = 64
_STEPS = 1 << 12
_FAR_SHARE = 200  # rivals beyond the cut get at most 1 / 400 of the error

Error = int | float | str | Fraction

_N, _d = sympy.symbols("N d", integer=True, positive=True)
_c = sympy.Function("c")(_d)
_beta, _epsilon, _delta, _gamma = sympy.symbols("beta epsilon delta gamma", positive=True)
_h, _pi = sympy.Function("h"), sympy.Function("pi")
_s = sympy.Symbol("s", positive=True)
_C = sympy.Rational(9, 4) * sympy.log(sympy.Rational(3, 2)) - sympy.Rational(1, 2)

ORTHONORMAL_ERROR = _N * (_N - 1) * _c * _C / (sympy.sqrt(2) * _beta) * sympy.Min(
    _pi(_s), 2 / _N
) + (_N - 1) / 2 * sympy.exp(-_beta * _s)
r"""Above the expected error on orthonormal points, $N \ge 3$, for every $s > 0$; $\pi(s)$ is at least
the chance that two given points at a gap of $s$ are the best two."""

SPHERE_ERROR = (
    _C / _beta * sympy.sqrt(_h(_d, _N, 0) * _h(_d, _N, _s))
    + (_N - 1) / 2 * sympy.exp(-_beta * _s)
    + (sympy.log(_N) / _beta) ** 2
)
r"""Above the expected error on independent points, $N \ge 3$, for every $s > 0$; $h(d, N, s)$ is
:func:`bounds.score_gaps.gap_density`."""

MARGIN = _delta / _h(_d, _N, 0)
"""A margin that fails with probability at most delta."""

MARGIN_SCALE = sympy.log((_N - 1) * (2 / sympy.sqrt(_epsilon) - 1)) / _gamma
"""The scale that turns a margin gamma into a squared error epsilon."""


def orthonormal_scale(d: int, context: int, error: Error) -> Bound:
    r"""A scale at which one full-rank softmax head has expected error at most ``error`` on $\mathcal D_N$.

    At most $\sqrt2(N-1)c_dC/\varepsilon$, $C = \frac94\ln\frac32-\frac12$ ($2\ln2-1$ for $N = 2$); for
    many points and small errors far smaller: the least scale found at which
    :data:`ORTHONORMAL_ERROR` is certainly below $\varepsilon$. As $\varepsilon \to 0$ at most 7 % above
    the scale needed. At $\varepsilon \ge 1-\frac1N$ the scale 0 is enough, and the bound is vacuous.
    Hypotheses: $d \ge 3$, $2 \le N \le d$. Source: [attention-bounds, H1].

    >>> print(orthonormal_scale(64, 16, "1/100").value.decimal(6, "up"))
    753.603
    """
    d, context = _sizes(d, context)
    if context > d:
        raise HypothesisError("H1", "N <= d", f"N = {context} and d = {d}")
    epsilon = exact_error(error)
    enough = epsilon >= Fraction(context - 1, context)
    with precision(_BITS):
        pairs = arb(2).sqrt() * (context - 1) * density_constant_ball(d) * _constant(context)
        start = pairs / to_arb(epsilon)

    def ceiling(scale: arb, cut: arb) -> arb:
        near = pairs * context / 2 * tie_chance(d, context, _BITS, cut) / scale
        return near + _far(context, scale, cut)

    return _bound(
        "softmax scale",
        Ball.of(0) if enough else _least_scale(start, ceiling, context, epsilon),
        "upper",
        "vacuous" if enough else "proved",
        f"one full-rank softmax head with scores beta <x_i, y>, beta = {{value}}, has expected "
        f"error <= {rational_text(epsilon)} on nearest neighbor among {context} orthonormal points, "
        f"d = {d}",
        sympy.Le(ORTHONORMAL_ERROR, _epsilon),
        ("d >= 3", "N <= d", "orthonormal points, uniform among such frames, a uniform query"),
        {"d": d, "context": context, "error": epsilon},
    )


def sphere_margin(d: int, context: int, failure: Error, *, digits: int = 15) -> Bound:
    r"""A margin by which the nearest of $N$ independent points leads, except with small probability.

    The best score $\langle x_i, y\rangle$ of $N$ independent uniform points on $S^{d-1}$ beats every other by
    $\gamma = \delta/h(d,N)$ with probability at least $1-\delta$, for any unit $y$; $h$ is
    :func:`bounds.score_gaps.gap_density`. Tight as $\delta \to 0$. Hypotheses: $d \ge 3$, $N \ge 2$,
    $0 < \delta < 1$ (``failure``). Source: [attention-bounds, H1].

    >>> print(sphere_margin(64, 16, "1/100").value.decimal(8, "down"))
    0.00069875222
    """
    d, context = _sizes(d, context)
    delta = _failure(failure)
    digits = exact_integer(digits, "digits", 1)

    def margin(bits: int) -> arb:
        return to_arb(delta) / gap_density(d, context, bits)

    return _bound(
        "margin",
        certified_ball(margin, digits, "the margin"),
        "lower",
        "proved",
        f"the nearest of {context} independent uniform points, d = {d}, leads by at least {{value}} "
        f"except with probability <= {float(delta):.6g}",
        sympy.Ge(_gamma, MARGIN),
        _SPHERE,
        {"d": d, "context": context, "failure": delta},
    )


def sphere_scale_with_failure(
    d: int, context: int, error: Error, failure: Error, *, digits: int = 15
) -> Bound:
    r"""A scale at which $\|f-g\|^2 \le \varepsilon$ except with probability $\delta$, on independent points.

    $\beta = \ln((N-1)(2/\sqrt\varepsilon-1))/\gamma$ with the margin of :func:`sphere_margin`;
    at $\varepsilon \ge 4$, or when the logarithm is not positive, 0 is enough (vacuous).
    Hypotheses: $d \ge 3$, $N \ge 2$, $0 < \delta < 1$. Source: [attention-bounds, H1].

    >>> print(sphere_scale_with_failure(64, 16, "1/100", "1/100").value.decimal(8, "up"))
    8089.4042
    """
    d, context = _sizes(d, context)
    epsilon, delta = exact_error(error), _failure(failure)
    digits = exact_integer(digits, "digits", 1)
    # (N-1)(2 / sqrt(eps) - 1) <= 1 means sqrt(eps) >= 2 (N-1) / N
    enough = epsilon >= Fraction(4 * (context - 1) ** 2, context**2)

    def scale(bits: int) -> arb:
        odds = (context - 1) * (2 / to_arb(epsilon).sqrt() - 1)
        return odds.log() * gap_density(d, context, bits) / to_arb(delta)

    return _bound(
        "softmax scale",
        Ball.of(0) if enough else certified_ball(scale, digits, "the scale"),
        "upper",
        "vacuous" if enough else "proved",
        f"one full-rank softmax head with scores beta <x_i, y>, beta = {{value}}, has squared error "
        f"<= {rational_text(epsilon)} on the nearest of {context} independent uniform points, d = {d}, "
        f"except with probability <= {float(delta):.6g}",
        sympy.Le(_beta, MARGIN_SCALE.subs(_gamma, MARGIN)),
        _SPHERE,
        {"d": d, "context": context, "error": epsilon, "failure": delta},
    )


def sphere_scale(d: int, context: int, error: Error) -> Bound:
    r"""A scale at which the expected error on $N$ independent uniform points is at most ``error``.

    The least scale found at which :data:`SPHERE_ERROR` is certainly below $\varepsilon$; no failure
    probability. As $\varepsilon \to 0$ at most 7 % above the scale needed. The error is relative:
    $\mathbb E\|f\|^2 = 1$. At $\varepsilon \ge 2$ it is 0 (vacuous). Hypotheses: $d \ge 3$,
    $N \ge 2$. Source: [attention-bounds, H1].

    >>> print(sphere_scale(64, 16, "1/100").value.decimal(6, "up"))
    714.285
    """
    d, context = _sizes(d, context)
    epsilon = exact_error(error)
    enough = epsilon >= 2
    with precision(_BITS):
        density = gap_density(d, context, _BITS)
        # the same from the gap of the best two alone
        alone = (arb(context).log() - 1 + arb(1) / context) * density
        second = arb(context).log() ** 2
        start = (alone + (alone**2 + to_arb(epsilon) * second).sqrt()) / to_arb(epsilon)

    def ceiling(scale: arb, cut: arb) -> arb:
        both = (density * gap_density(d, context, _BITS, cut)).sqrt()
        return _constant(context) * both / scale + _far(context, scale, cut) + second / scale**2

    return _bound(
        "softmax scale",
        Ball.of(0) if enough else _least_scale(start, ceiling, context, epsilon),
        "upper",
        "vacuous" if enough else "proved",
        f"one full-rank softmax head with scores beta <x_i, y>, beta = {{value}}, has expected "
        f"error <= {rational_text(epsilon)} on the nearest of {context} independent uniform points, "
        f"d = {d}",
        sympy.Le(SPHERE_ERROR, _epsilon),
        _SPHERE,
        {"d": d, "context": context, "error": epsilon},
    )


def _constant(context: int) -> arb:
    r"""$C = \int_0^\infty\kappa(e^{-x})dx$, $\kappa$ the bound of docs/temperature.md on one rival's share."""
    half = arb(1) / 2
    if context == 2:
        return 2 * (arb.const_log2() - half)
    return 9 * arb(fmpq(3, 2)).log() / 4 - half


def _far(context: int, scale: arb, cut: arb) -> arb:
    """At most the shares of all rivals whose gap is above ``cut``."""
    return arb(context - 1) / 2 * (-scale * cut).exp()


def _least_scale(
    start: arb, ceiling: Callable[[arb, arb], arb], context: int, epsilon: Fraction
) -> Ball:
    """A dyadic scale, ``start`` or below, at which ``ceiling`` is certainly at most ``epsilon``."""
    with precision(_BITS):
        unit = (start.upper() * (1 << 20) / _STEPS).floor().mid() / (1 << 20)
        target = to_arb(epsilon)

        def suffices(steps: int) -> bool:
            scale = unit * steps
            cut = (_FAR_SHARE * (context - 1) / target).log() / scale
            return bool(cut > 0 and ceiling(scale, cut.mid()) <= target)

        fails, works = 0, _STEPS + 1  # beyond the steps: start itself suffices
        while works - fails > 1:
            middle = (fails + works) // 2
            fails, works = (fails, middle) if suffices(middle) else (middle, works)
        return Ball.from_arb(start.upper() if works > _STEPS else unit * works)


_SPHERE = (
    "d >= 3",
    "independent uniform points on the sphere",
    "any unit query independent of them",
)


def _sizes(d: object, context: object) -> tuple[int, int]:
    dimension, points = exact_integer(d, "d", 2), exact_integer(context, "context", 2)
    if dimension < 3:
        raise HypothesisError("H1", "d >= 3", f"d = {dimension}")
    return dimension, points


def _failure(failure: object) -> Fraction:
    delta = exact_rational(failure, "failure")
    if not 0 < delta < 1:
        raise ArgumentError("failure", failure, "strictly between 0 and 1")
    return delta


def _bound(
    quantity: str,
    value: Ball,
    kind: Kind,
    status: Status,
    sentence: str,
    statement: sympy.Basic,
    hypotheses: tuple[str, ...],
    parameters: dict[str, Parameter],
) -> Bound:
    return Bound(
        quantity=quantity,
        value=value,
        kind=kind,
        status=status,
        sentence=sentence,
        statement=statement,
        hypotheses=hypotheses,
        model=Model(
            task="nearest-neighbor",
            attention="soft",
            values="scalar",
            readout="sum",
            embeddings="random-sphere" if hypotheses == _SPHERE else "random-frame",
            context=int(parameters["context"] or 0),
        ),
        source=SOURCE,
        parameters=parameters,
    )
