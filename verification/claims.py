r"""The papers' claims on heads against rank (P1-P6), and what this package's results say of each.

A claim is a record: no number is invented for it. ``relation`` says what our results do: ``"implied"``
(with constants of our own where the claim has none), ``"consistent"`` or ``"open"``. ``check``
computes the link at stated parameters; docs/claims.md has the reasoning.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Literal

from bounds import (
    Ball,
    closed_form_heads,
    head_floor,
    majority_vote_error,
    majority_vote_heads,
    min_heads,
    orthonormal_scale,
    separation,
)
from bounds.arithmetic import log2_text
from constructions import full_rank_nearest_neighbor, nearest_neighbor
from verification.verify import verify

Relation = Literal["implied", "consistent", "open"]


@dataclass(frozen=True)
class Claim:
    """One statement of a paper as public abstracts and reviews record it."""

    name: str
    source: str
    version: str
    statement: str
    constants: str
    relation: Relation
    ours: str
    check: Callable[[], tuple[bool, str]] | None


def check_p1() -> tuple[bool, str]:
    """One hard full-rank head, all inputs; and a softmax scale for sixteen points."""
    certificate = verify(full_rank_nearest_neighbor(16), nearest_neighbor)
    scale = orthonormal_scale(64, 16, "1/100")
    holds = certificate.holds and scale.kind == "upper"
    return (
        holds,
        f"hard: {certificate.verdict} on all inputs; soft, N = 16: scale {scale.value_text()}",
    )


def check_p2() -> tuple[bool, str]:
    r"""High accuracy: $\log_2 H \ge d - r\log_2(d/r) - \log_2(10d)$, $\varepsilon = 1/(12\sqrt d)$.

    High dimension: $\varepsilon\log H/\log(d/r)$ stays above a constant as $\varepsilon$ falls.
    """
    holds = True
    for d in (16, 64, 256):
        error = Fraction(1, 12 * math.isqrt(d))
        for r in {1, d // 16, d // 4, d // 2}:
            heads = closed_form_heads(d, r, error).value
            assert isinstance(heads, int)
            wanted = d - r * math.log2(d / r) - math.log2(10 * d)
            holds = holds and float(log2_text(max(heads, 1))) >= wanted
    fitted = min(_exponent(4096, r, n) / n for r in (8, 64) for n in (5, 10, 20, 40))
    return holds and fitted > 0, f"fitted: H >= (d/r)^({fitted:.3f}/eps) over the grid checked"


def check_p3() -> tuple[bool, str]:
    """H5 at d = 64, r = 16: more heads than 2^100 at constant relative error, no norm."""
    bound = separation(64, 16, 4, "1/2")
    assert isinstance(bound.value, int)
    text = f"{bound.parameters['full_rank_heads']} full-rank heads, or 2^{log2_text(bound.value, 2)} of rank 16"
    return bound.value > 2**100, text


def check_p4() -> tuple[bool, str]:
    """H7: d/eps^2 heads suffice in two layers, certified on both sides of the count."""
    bound = majority_vote_heads(64, "1/10")
    heads = bound.value
    assert isinstance(heads, int)
    at, before = majority_vote_error(64, heads).value, majority_vote_error(64, heads - 2).value
    assert isinstance(at, Ball)
    assert isinstance(before, Ball)
    one_layer = min_heads(64, 1, "1/10").value
    assert isinstance(one_layer, int)
    holds = at <= Fraction(1, 10) < before and heads < one_layer
    return (
        holds,
        f"d = 64, error 1/10: {heads} rank-1 heads in two layers, at least {one_layer} in one",
    )


def check_p6() -> tuple[bool, str]:
    """With heads = d / rank, the floor rises as heads are added (two orthonormal points)."""
    floors = []
    for heads in (2, 4, 8, 16, 32, 64):
        value = head_floor(64, 64 // heads, heads).value
        assert isinstance(value, Ball)
        floors.append(value)
    rising = all(low < high for low, high in pairwise(floors))
    shown = ", ".join(floor.decimal(3, "down") for floor in floors)
    return rising, f"d = 64, floors at 2, 4, ..., 64 heads: {shown}"


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "P1", "[AmselYehudaiBruna2024]", "arXiv 2407.16153 and ICLR 2025",
        "one full-rank head represents (hard) or approximates (soft) nearest neighbor at any context length",
        "none claimed in what is public", "implied",
        "H1 and the softmax scales for any N, with explicit constants", check_p1,
    ),
    Claim(
        "P2", "[AmselYehudaiBruna2024]", "ICLR 2025, Theorem 2",
        "N = 2, orthonormal points: high accuracy needs exp(Omega(d - r log(d/r))) heads; in high dimension, "
        "d >= 5, (d/r)^Omega(1/eps) heads",
        "unknown to us; so is the range of eps of either regime", "implied",
        "H2 and H4: for eps < 0.089/sqrt(d) and r <= d/2 at least 2^(d - r log2(d/r) - log2(10 d)) heads; "
        "(d/r)^Omega(1/eps^2) while 1/eps^2 is far below d",
        check_p2,
    ),
    Claim(
        "P3", "[AmselYehudaiBruna2024]", "ICLR 2025, Theorem 3",
        "a sum of 2 d^2 + 1 biased nearest-neighbor functions, Gaussian y: O(d^2) full-rank heads suffice; "
        "rank-r heads keep error > 1/40 unless d H max |V|^2 >= exp(c (d - r))",
        "1/40; c unknown to us", "consistent",
        "H5 is a statement of this kind without norms, for another target and law of y; it does not imply P3",
        check_p3,
    ),
    Claim(
        "P4", "[AmselYehudaiBruna2024]", "ICLR 2025, Theorem 5",
        "N = 2: two layers with polynomially many rank-1 heads suffice",
        "unknown to us", "implied",
        "H7: error < c_d sqrt(2 pi / (H + 1/2)), so d/eps^2 heads suffice", check_p4,
    ),
    Claim(
        "P5", "[AmselYehudaiBruna2024]", "ICLR 2025, Conjecture 6",
        "no fixed-size low-rank multi-layer transformer works for all N",
        "a conjecture: never a bound", "open",
        "H8 is about one layer and N <= d - r - 1; it says nothing of depth", None,
    ),
    Claim(
        "P6", "[AmselYehudaiBruna2024]", "ICLR 2025, experiments",
        "with heads = d / rank, more heads hurt: d = 64, N = 16, 1, 3 and 5 layers, independent uniform points",
        "empirical", "consistent",
        "the floor of one layer on two orthonormal points rises in the same way", check_p6,
    ),
)  # fmt: skip
"""P1 to P6 in order."""


def _exponent(d: int, r: int, n: int) -> float:
    r"""$\log H / \log(d/r)$ for $H$ = min_heads at error 1/n."""
    heads = min_heads(d, r, Fraction(1, n)).value
    assert isinstance(heads, int)
    return float(log2_text(max(heads, 1))) / math.log2(d / r)
