"""Lower bounds below upper bounds wherever they may be compared."""

from dataclasses import replace
from fractions import Fraction

import pytest

from bounds import HypothesisError, head_floor, min_heads, rank_one_error_bound, rank_one_heads
from bounds.rank_one import least_heads
from verification.sandwich import sandwich, sandwich_heads


def test_floor_below_built_layers_over_thousands_of_points() -> None:
    """Every rank and both values against each built layer: rank-1 heads are heads of every rank."""
    points = 0
    for d in range(4, 17):
        for heads in (1, 2, 4, 8, 16, 32, 64, 128):
            for r in range(1, d - 2):
                for values in ("scalar", "general"):
                    pair = sandwich(d, r, heads, values=values)
                    assert pair.holds, (d, r, heads, values)
                    assert pair.lower.value > 0
                    points += 1
    assert points >= 1400


def test_floor_below_existence_over_thousands_of_points() -> None:
    points = 0
    for d in (4, 5, 6, 8, 12, 16, 33, 64):
        for step in range(16):
            heads = least_heads(d) * 3**step
            upper = rank_one_error_bound(d, heads)
            for r in sorted({1, 2, 3, 4, 6, 9, 13, 20, 40, d - 3} & set(range(1, d - 2))):
                for values in ("scalar", "general"):
                    assert head_floor(d, r, heads, values=values).is_below(upper), (d, r, heads)
                    points += 1
    assert points >= 1000


def test_heads_at_an_error() -> None:
    for d in (4, 8, 16, 40):
        for error in ("2/5", "1/4", "1/6", "1/10"):
            pair = sandwich_heads(d, 1, error)
            assert pair.holds
            assert pair.lower == min_heads(d, 1, error, values="scalar")
            assert pair.upper == rank_one_heads(d, error)


def test_a_broken_sandwich_is_seen() -> None:
    pair = sandwich(8, 1, 16)
    low = replace(pair.upper, value=Fraction(1, 100))
    assert not replace(pair, upper=low).holds


def test_beyond_the_build_limit_existence_is_used() -> None:
    pair = sandwich(8, 2, 10**9)
    assert pair.upper == rank_one_error_bound(8, 10**9)
    assert pair.holds


def test_hypotheses() -> None:
    with pytest.raises(HypothesisError, match="r <= d - 3"):
        sandwich(5, 3, 4)
