r"""H8: the error floor of a layer for the nearest neighbour among $N$ points.

The energies are those of :mod:`bounds.context_energies`; the weights that attain the target with
one full-rank head, for any $N$, are in :mod:`constructions.nearest_neighbor`. Proofs in
docs/H8-contexts.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import sympy
from flint import arb

from bounds.arithmetic import (
    Ball,
    bits_of_digits,
    certify,
    exact_integer,
    integer_text,
    precision,
    rational_text,
    to_arb,
)
from bounds.bound import Bound, count_text
from bounds.context_energies import context_energies
from bounds.errors import HypothesisError
from bounds.harmonics import Values, check_values, harmonic_dimension, invariant_dimension
from bounds.head_floor import exact_error
from bounds.model import Model

SOURCE = "[attention-bounds, H8]"

DEGREE_LIMIT = 400
"""Degrees beyond it are enclosed by their total energy."""

_FIRST_DEGREES = 48
_BITS_LIMIT = 512
_HEADS_DIGITS = 12  # as many as context_floor gives by default: they share energies

_N, _H, _l = sympy.symbols("N H ell", integer=True, positive=True)
_share, _energy = sympy.Function("s"), sympy.Function("e")
_error = sympy.Symbol("E", nonnegative=True)
_epsilon = sympy.Symbol("epsilon", positive=True)

FLOOR = (_N - 1) / 2 * sympy.Sum(_energy(_l) * sympy.Max(0, 1 - _H * _share(_l)), (_l, 1, sympy.oo))
r"""The floor; $e(\ell) = \bar\eta_\ell^2$ and $s(\ell) = D_N(r,\ell)/N(n,\ell)$."""

FLOOR_STATEMENT = sympy.Ge(_error, FLOOR)
HEADS_STATEMENT = sympy.Le(FLOOR, _epsilon)


def context_dimension(
    d: int, r: int, context: int, degree: int, *, values: Values = "general"
) -> int:
    r"""$D_N(r,\ell)$, the degree-$\ell$ dimension on $S^{n-1}$, $n = d-N+1$, that one head can reach.

    For scalar values $M(r,\ell)$; for general values
    $M(r,\ell) + kM(r,\ell-1) + M(r,\ell) - M(r-p,\ell) + M(r,\ell-2)$ with $k = \min(N-1, n-r)$
    linear forms and $p = \min(r, n-r-k)$, $M(0,\cdot) = 0$. Exact for generic weights.
    Hypotheses: $N \ge 2$, $1 \le r \le d-N-1$; $\ell \ge 1$. Source: [attention-bounds, H8].

    >>> context_dimension(8, 2, 3, 3), context_dimension(8, 2, 3, 3, values="scalar")
    (16, 4)
    """
    d, r, context = _arguments(d, r, context)
    degree = exact_integer(degree, "degree", 1)
    check_values(values)
    here = invariant_dimension(r, degree)
    if values == "scalar":
        return here
    n = d - context + 1
    forms = min(context - 1, n - r)
    kept = r - min(r, n - r - forms)
    linear = forms * invariant_dimension(r, degree - 1)
    mixed = here - (invariant_dimension(kept, degree) if kept else 0)
    square = invariant_dimension(r, degree - 2) if degree >= 2 else 0
    return here + linear + mixed + square


def context_floor(
    d: int, r: int, heads: int, context: int, *, values: Values = "general", digits: int = 12
) -> Bound:
    r"""The least error of a layer of $H$ rank-$r$ heads on $N$ points, as a certified lower bound.

    $\mathbb E\|f-g\|^2 \ge \frac{N-1}2\sum_\ell\bar\eta_\ell^2(1 - H D_N(r,\ell)/N(n,\ell))_+$,
    $n = d-N+1$, on $\mathcal D_N$, for a query of any rotation-invariant law. At no heads it is
    $1-\frac1N$, the error of the mean of the points. For $N = 2$ it is a floor of its own: above
    :func:`bounds.head_floor.head_floor` for general values and larger $r$, below it for scalar ones.

    Hypotheses: $N \ge 2$, $1 \le r \le d-N-1$, $H \ge 1$. ``digits``: the ball's relative radius is
    at most $10^{-digits}$, unless degrees above ``DEGREE_LIMIT`` matter ($r$ near $d-N-1$); then
    the ball is wider and its lower end is still the bound. Source: [attention-bounds, H8].

    >>> print(context_floor(16, 4, 100, 4).value.decimal(8))
    0.086982843
    """
    d, r, context = _arguments(d, r, context)
    heads = exact_integer(heads, "heads", 1)
    digits = exact_integer(digits, "digits", 1)
    check_values(values)
    goal = bits_of_digits(digits)

    def attempt(bits: int) -> Ball | None:
        terms = _terms(
            d, r, context, values, _last_degree(d, r, context, values, heads, goal), bits
        )
        value = terms.floor(heads)
        limited = terms.slack(heads) > (arb(1) / 2) ** goal or bits >= _BITS_LIMIT
        narrow = value.rel_accuracy_bits() >= goal
        return Ball.from_arb(value) if narrow or limited else None

    value = certify(attempt, "the context floor", start=goal + 32)
    return Bound(
        quantity="error",
        value=value,
        kind="lower",
        status="proved" if value.lower > 0 else "vacuous",
        sentence=f"every layer of {count_text(heads)} generalized rank-{r} heads ({values} values) "
        f"has error >= {{value}} on nearest neighbor among {context} points, d = {d}",
        statement=FLOOR_STATEMENT,
        hypotheses=_hypotheses(d, r, context),
        model=_model(r, values, context),
        source=SOURCE,
        parameters={"d": d, "r": r, "heads": heads, "context": context, "values": values},
    )


def context_min_heads(
    d: int,
    r: int,
    error: int | float | str | Fraction,
    context: int,
    *,
    values: Values = "general",
) -> Bound:
    r"""Heads that every rank-$r$ layer with error at most ``error`` on $N$ points has, certified.

    An integer $H$ such that the floor at $H-1$ heads is certainly above $\varepsilon$. It is the least
    $H$ whose floor is at most $\varepsilon$ when that is below about $10^{12}$ and low degrees
    decide; otherwise it may be smaller, by a relative $10^{-12}$ or what degrees above
    ``DEGREE_LIMIT`` leave open. At $\varepsilon \ge 1-\frac1N$ it is 0 and vacuous.
    ``error``, hypotheses and errors as in :func:`context_floor`. Source: [attention-bounds, H8].

    >>> context_min_heads(16, 4, "1/10", 4).value
    49
    """
    d, r, context = _arguments(d, r, context)
    epsilon = exact_error(error)
    check_values(values)
    heads = _certain_heads(d, r, context, values, epsilon)
    return Bound(
        quantity="heads",
        value=heads,
        kind="lower",
        status="proved" if heads > 0 else "vacuous",
        sentence=f"every layer of generalized rank-{r} heads ({values} values) with error <= "
        f"{rational_text(epsilon)} on nearest neighbor among {context} points, d = {d}, has at least "
        f"{{value}} heads",
        statement=HEADS_STATEMENT,
        hypotheses=_hypotheses(d, r, context),
        model=_model(r, values, context),
        source=SOURCE,
        parameters={"d": d, "r": r, "error": epsilon, "context": context, "values": values},
    )


@dataclass(frozen=True)
class _Terms:
    """Energies and shares of the odd degrees up to some degree, and what is above."""

    factor: arb
    energies: tuple[arb, ...]
    shares: tuple[arb, ...]
    rest: arb  # the energy above
    next_share: arb  # at least every share above

    def floor(self, heads: int) -> arb:
        """A ball around the floor, at the precision in force."""
        total = self.rest * (1 - self.slack(heads)).nonnegative_part().union(arb(1))
        for energy, share in zip(self.energies, self.shares, strict=True):
            total += energy * (1 - heads * share).nonnegative_part()
        return self.factor * total

    def slack(self, heads: int) -> arb:
        """What the degrees above may lose, relative to their energy."""
        return heads * self.next_share


@lru_cache(maxsize=64)
def _terms(d: int, r: int, context: int, values: Values, last: int, bits: int) -> _Terms:
    n = d - context + 1
    with precision(bits + 64):
        energies = context_energies(d, context, last, bits)
        shares = tuple(
            arb(context_dimension(d, r, context, degree, values=values))
            / harmonic_dimension(n, degree)
            for degree in range(1, last + 1, 2)
        )
        rest = (arb(2) / context - sum(energies, arb(0))).nonnegative_part()
        return _Terms(
            factor=arb(context - 1) / 2,
            energies=energies,
            shares=shares,
            rest=rest,
            next_share=_share_ceiling(d, r, context, values, last + 2),
        )


def _share_ceiling(d: int, r: int, context: int, values: Values, degree: int) -> arb:
    r"""At least $D_N(r,j)/N(n,j)$ for every $j \ge \ell$: $M(r,j)/N(n,j)$ falls, $D_N/M$ is capped."""
    n = d - context + 1
    cap = 1 if values == "scalar" else min(context + 2, n - r + 2)
    return arb(cap * invariant_dimension(r, degree)) / harmonic_dimension(n, degree)


def _last_degree(d: int, r: int, context: int, values: Values, heads: int, goal: int) -> int:
    """The least degree of the ladder above which ``heads`` heads lose less than 2^-goal."""
    last = _FIRST_DEGREES - 1
    while last < DEGREE_LIMIT - 1:
        slack = heads * _share_ceiling(d, r, context, values, last + 2)
        if slack < (arb(1) / 2) ** goal:
            break
        last = min(last + last // 2, DEGREE_LIMIT) // 2 * 2 - 1
    return last


def _certain_heads(d: int, r: int, context: int, values: Values, epsilon: Fraction) -> int:
    goal = bits_of_digits(_HEADS_DIGITS)
    if epsilon >= Fraction(context - 1, context):
        return 0
    with precision(goal + 96):
        target = to_arb(epsilon)
        guess = 1
        while True:
            last = _last_degree(d, r, context, values, guess, goal)
            terms = _terms(d, r, context, values, last, goal + 32)
            heads = _heads_of(terms, target)
            if _last_degree(d, r, context, values, heads, goal) <= last:
                return heads
            guess = heads


def _heads_of(terms: _Terms, target: arb) -> int:
    """The least H, up to the balls' width, at which the floor is not certainly above the target."""
    high = 1
    while terms.floor(high) > target:
        high *= 2
    low = high // 2  # certainly above, or 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if terms.floor(middle) > target else (low, middle)
    return high


def _arguments(d: object, r: object, context: object) -> tuple[int, int, int]:
    dim, rank = exact_integer(d, "d", 2), exact_integer(r, "r", 1)
    points = exact_integer(context, "context", 2)
    if rank > dim - points - 1:
        found = f"r = {integer_text(rank)}, d = {dim} and N = {integer_text(points)}"
        raise HypothesisError("H8", "r <= d - N - 1", found)
    return dim, rank, points


def _hypotheses(d: int, r: int, context: int) -> tuple[str, ...]:
    return (
        f"r <= d - N - 1 ({r} <= {d - context - 1})",
        f"{context} orthonormal points, uniform among such frames",
        "a query of any rotation-invariant law, independent of the points",
    )


def _model(r: int, values: Values, context: int) -> Model:
    return Model(
        task="nearest-neighbor",
        attention="generalized",
        values=values,
        readout="sum",
        embeddings="random-frame",
        rank=r,
        context=context,
    )
