r"""C6: softmax with a null token: the mass off a row's neighbours, and the logit scale that bounds it.

A row of a softmax head sees $N$ tokens and a null token. Its $k$ neighbours score at least
$\tau+\gamma$, the other $N-k$ tokens at most $\tau-\gamma$, the null token exactly $\tau+\delta$;
logits are $\beta$ times scores. The *leakage* of the row is the softmax mass off its neighbours,
null token included; of a row without neighbours ($k=0$), the mass off the null token. The weights
are :func:`constructions.routing.routing_layer`, their certified leakage is
:func:`verification.leakage.leakage_report`; the proof is in docs/C6-softmax-routing.md.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import sympy
from flint import arb

from bounds.arithmetic import (
    Ball,
    certified_ball,
    exact_integer,
    exact_rational,
    rational_text,
    to_arb,
)
from bounds.bound import Bound
from bounds.errors import ArgumentError
from bounds.model import Model

Null = Literal["threshold", "balanced"]

SOURCE = "[attention-bounds, C6]"

_N, _k = sympy.symbols("N k", integer=True, positive=True)
_beta, _gamma, _epsilon, _p = sympy.symbols("beta gamma epsilon p", positive=True)
_delta = sympy.Symbol("delta", real=True)

_OFF = sympy.exp(_beta * _delta) + (_N - _k) * sympy.exp(-_beta * _gamma)

EMPTY_ROW_STATEMENT = sympy.Eq(_p, _N / (_N + sympy.exp(_beta * (_gamma + _delta))))
ROW_STATEMENT = sympy.Eq(_p, _OFF / (_OFF + _k * sympy.exp(_beta * _gamma)))
"""The largest leakage of a row with no neighbour, and with k of them."""

_rho = _epsilon / (1 - _epsilon)
SCALE_STATEMENT = sympy.Eq(_beta, sympy.log(_N / _rho) / _gamma)
ROW_SCALE_STATEMENT = sympy.Eq(
    _beta, sympy.log((1 + sympy.sqrt(1 + 4 * _rho * _k * (_N - _k))) / (2 * _rho * _k)) / _gamma
)
BALANCED_STATEMENT = sympy.Eq(
    _beta, sympy.log((_N - _epsilon) * (1 - _epsilon) / _epsilon**2) / (2 * _gamma)
)
"""The least logit scales: all rows, rows with k neighbours, and all rows with the best null score."""


def softmax_leakage(
    context: int,
    margin: int | float | str | Fraction,
    scale: int | float | str | Fraction,
    *,
    neighbours: int = 0,
    null_shift: int | float | str | Fraction = 0,
    digits: int = 15,
) -> Bound:
    r"""The largest leakage of a row with ``neighbours`` $k$ among ``context`` $N$ tokens, enclosed.

    $k = 0$: $\frac{N}{N+e^{\beta(\gamma+\delta)}}$; $k \ge 1$: $\frac{w}{w+ke^{\beta\gamma}}$ with
    $w = e^{\beta\delta}+(N-k)e^{-\beta\gamma}$. Attained, by scores at their limits.
    ``margin`` $\gamma > 0$, ``scale`` $\beta \ge 0$, ``null_shift`` $\delta$.
    Source: [attention-bounds, C6].

    >>> print(softmax_leakage(1000, "1/100", 1500).value.decimal(6))
    0.000305809
    """
    n, k = _row(context, neighbours)
    gamma, beta = _positive(margin, "margin"), exact_rational(scale, "scale")
    shift = exact_rational(null_shift, "null_shift")
    if beta < 0:
        raise ArgumentError("scale", scale, "at least 0")

    def leakage(_: int) -> arb:
        if k == 0:
            odds = n * to_arb(-beta * (gamma + shift)).exp()
        else:
            away = to_arb(beta * (shift - gamma)).exp() + (n - k) * to_arb(-2 * beta * gamma).exp()
            odds = away / k
        return odds / (1 + odds)

    return Bound(
        quantity="leakage",
        value=certified_ball(leakage, exact_integer(digits, "digits", 1), "the leakage"),
        kind="exact",
        status="certified",
        sentence=f"a softmax row with {k} neighbors among {n} tokens and a null token, margin "
        f"{rational_text(gamma)} and logit scale {rational_text(beta)}, has leakage at most {{value}}",
        statement=EMPTY_ROW_STATEMENT if k == 0 else ROW_STATEMENT,
        hypotheses=(
            "neighbors score >= tau + gamma, other tokens <= tau - gamma",
            "the null token scores tau + delta",
        ),
        model=_model(n),
        source=SOURCE,
        parameters={
            "context": n, "neighbors": k, "margin": gamma, "scale": beta, "null shift": shift
        },
    )  # fmt: skip


def leakage_scale(
    context: int,
    margin: int | float | str | Fraction,
    error: int | float | str | Fraction,
    *,
    neighbours: int | None = None,
    null: Null = "threshold",
    digits: int = 15,
) -> Bound:
    r"""The least logit scale $\beta$ at which no row leaks more than ``error`` $\varepsilon$.

    For rows with any number of neighbours (``None``): $\beta = \ln(N(1-\varepsilon)/\varepsilon)/\gamma$
    with the null token at $\tau$, and $\frac1{2\gamma}\ln\frac{(N-\varepsilon)(1-\varepsilon)}{\varepsilon^2}$
    with ``null="balanced"``, the null score that is best (:func:`balanced_null_shift`). For rows
    with exactly ``neighbours`` $k$ and the null token at $\tau$: $\beta\gamma$ is the logarithm of the
    positive root of $\rho ky^2-y-(N-k)$, $\rho=\varepsilon/(1-\varepsilon)$. Where the scale 0 is
    enough the bound is vacuous. $0 < \varepsilon < 1$. Source: [attention-bounds, C6].

    >>> print(leakage_scale(1000, "1/100", "1/100").value.decimal(8))
    1150.2875
    >>> print(leakage_scale(1000, "1/100", "1/100", null="balanced").value.decimal(8))
    805.40177
    """
    n, k = _row(context, neighbours or 0)
    gamma, epsilon = _positive(margin, "margin"), _positive(error, "error")
    if epsilon >= 1:
        raise ArgumentError("error", error, "between 0 and 1")
    if null not in ("threshold", "balanced"):
        raise ArgumentError("null", null, "'threshold' or 'balanced'")
    if null == "balanced" and neighbours is not None:
        raise ArgumentError("neighbours", neighbours, "absent for null='balanced'")
    rho = epsilon / (1 - epsilon)
    if null == "balanced":
        enough, statement = (n - epsilon) * (1 - epsilon) <= epsilon**2, BALANCED_STATEMENT
    elif k == 0:
        enough, statement = n <= rho, SCALE_STATEMENT
    else:
        enough, statement = 1 + n - k <= rho * k, ROW_SCALE_STATEMENT

    def scale(_: int) -> arb:
        if null == "balanced":
            ratio = to_arb((n - epsilon) * (1 - epsilon) / epsilon**2).sqrt()
        elif k == 0:
            ratio = to_arb(n / rho)
        else:
            ratio = (1 + to_arb(1 + 4 * rho * k * (n - k)).sqrt()) / to_arb(2 * rho * k)
        return ratio.log() / to_arb(gamma)

    digits = exact_integer(digits, "digits", 1)
    rows = "every softmax row" if neighbours is None else f"every softmax row with {k} neighbors"
    return Bound(
        quantity="logit scale",
        value=Ball.of(0) if enough else certified_ball(scale, digits, "the logit scale"),
        kind="exact",
        status="vacuous" if enough else "proved",
        sentence=f"{rows} among {n} tokens and a null token, margin {rational_text(gamma)}, leaks at "
        f"most {rational_text(epsilon)} from the logit scale {{value}} on",
        statement=statement,
        hypotheses=(
            "neighbors score >= tau + gamma, other tokens <= tau - gamma",
            "the null token scores tau" + (" + delta, the best delta" if null == "balanced" else ""),
        ),
        model=_model(n),
        source=SOURCE,
        parameters={"context": n, "neighbors": neighbours, "margin": gamma, "error": epsilon, "null": null},
    )  # fmt: skip


def balanced_null_shift(
    context: int,
    margin: int | float | str | Fraction,
    scale: int | float | str | Fraction,
    *,
    digits: int = 15,
) -> Ball:
    r"""The $\delta$ at which rows without and with one neighbour leak alike: the best null score $\tau+\delta$.

    $e^{\beta\delta} = \frac{\sqrt{(N-1)^2+4Ny^2}-(N-1)}{2y}$, $y = e^{\beta\gamma}$; nearly
    $\beta\delta = \frac12\ln N$ at large scales. ``scale`` $\beta > 0$. Source: [attention-bounds, C6].

    >>> balanced_null_shift(1, 1, 5).decimal(3)
    '0'
    """
    n = exact_integer(context, "context", 1)
    gamma, beta = _positive(margin, "margin"), _positive(scale, "scale")
    if n == 1:
        return Ball.of(0)

    def shift(_: int) -> arb:
        y = to_arb(beta * gamma).exp()
        root = (to_arb((n - 1) ** 2) + 4 * n * y * y).sqrt()
        # the difference root - (N-1), without cancellation
        return (2 * n * y / (root + (n - 1))).log() / to_arb(beta)

    return certified_ball(shift, exact_integer(digits, "digits", 1), "the null shift")


def _row(context: object, neighbours: object) -> tuple[int, int]:
    n = exact_integer(context, "context", 1)
    return n, exact_integer(neighbours, "neighbours", 0, n)


def _positive(value: object, name: str) -> Fraction:
    number = exact_rational(value, name)
    if number <= 0:
        raise ArgumentError(name, value, "positive")
    return number


def _model(context: int) -> Model:
    return Model(
        task="relations",
        attention="soft",
        readout="null-token-softmax",
        embeddings="fixed",
        context=context,
    )
