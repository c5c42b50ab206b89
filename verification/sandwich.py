r"""The sandwich: the best lower bound and the best upper bound, side by side, at one model."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import sympy

from bounds import (
    Ball,
    Bound,
    HypothesisError,
    UndecidedError,
    context_floor,
    head_floor,
    min_heads,
    rank_one_error_bound,
    rank_one_heads,
)
from bounds.arithmetic import exact_integer
from bounds.harmonics import Values
from bounds.head_floor import check_rank
from bounds.rank_one import MODEL
from constructions.rank_one import rank_one_layer
from verification.rank_one import rank_one_error

BUILD_LIMIT = 4096
"""Heads up to which the upper bound is a layer that is built and certified."""


BUILD_DIMENSION = 256
"""Dimension up to which layers are built."""


@dataclass(frozen=True)
class Sandwich:
    """A lower and an upper bound on the same quantity, and how they were found."""

    lower: Bound
    upper: Bound

    @property
    def holds(self) -> bool:
        """Whether the lower bound lies below the upper one, decided; an undecided overlap raises."""
        return self.lower.is_below(self.upper)

    def __str__(self) -> str:
        return f"{self.lower}\n{self.upper}"


def sandwich(d: int, r: int, heads: int, *, values: Values = "scalar", seed: int = 0) -> Sandwich:
    r"""The error of $H$ rank-$r$ heads on two orthonormal points, from below and from above.

    Below: the head floor [H2]; for general values the larger of it and the floor [H8] at two
    points. Above: $H$ rank-1 hard heads with scalar values (a layer of every model here), built and
    certified up to ``BUILD_LIMIT`` heads and ``BUILD_DIMENSION``, beyond by the existence theorem [H6].
    Hypotheses: $1 \le r \le d-3$. Source: [attention-bounds, H2], [attention-bounds, H6].
    """
    d, r = check_rank(d, r, "H2")
    heads = exact_integer(heads, "heads", 1)
    return Sandwich(_best_floor(d, r, heads, values), _best_layer(d, heads, seed))


def sandwich_heads(
    d: int, r: int, error: int | float | str | Fraction, *, values: Values = "scalar"
) -> Sandwich:
    r"""The heads that error $\varepsilon$ takes at rank $r$, from below [H2] and from above [H6].

    Source: [attention-bounds, H2], [attention-bounds, H6].
    """
    return Sandwich(min_heads(d, r, error, values=values), rank_one_heads(d, error))


def _best_floor(d: int, r: int, heads: int, values: Values) -> Bound:
    floor = head_floor(d, r, heads, values=values)
    if values == "scalar":
        return floor
    try:
        other = context_floor(d, r, heads, 2, values=values)
        return other if _ball(other).lower > _ball(floor).upper else floor
    except (HypothesisError, UndecidedError):
        return floor


@lru_cache(maxsize=512)
def _best_layer(d: int, heads: int, seed: int) -> Bound:
    if heads > BUILD_LIMIT or d > BUILD_DIMENSION:
        return rank_one_error_bound(d, heads)
    layer = rank_one_layer(d, heads, seed=seed)
    return Bound(
        quantity="error",
        value=rank_one_error(layer),
        kind="upper",
        status="certified",
        sentence=f"the {layer.method} layer of {heads} rank-1 hard heads has error <= {{value}} on "
        f"nearest neighbor, d = {d}",
        statement=sympy.Le(sympy.Symbol("E"), sympy.Symbol("error")),
        hypotheses=("two orthonormal points, uniform among such frames, a uniform query",),
        model=MODEL,
        source="[attention-bounds, H6]",
        parameters={"d": d, "heads": heads, "seed": seed},
    )


def _ball(bound: Bound) -> Ball:
    assert isinstance(bound.value, Ball)
    return bound.value
