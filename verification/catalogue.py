"""The main job: every result at its standard parameters, lower bound beside construction, judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from bounds import (
    Ball,
    Bound,
    head_floor,
    key_dimension_bits,
    min_heads,
    softmax_scale,
    storage_efficiency,
)
from constructions import (
    AttentionLayer,
    RelationTarget,
    full_rank_nearest_neighbor,
    nearest_neighbor,
    relation_layer,
    relation_target,
    round_weights,
)
from verification.certificate import Certificate
from verification.reading import token_example
from verification.verify import verify

THRESHOLD_BITS = 64
"""Bits of the stored threshold, a float64."""


@dataclass(frozen=True)
class Finding:
    """One line of the check: a result, its bound, what was built, and whether both hold."""

    result: str
    subject: str
    bound: str
    built: str
    holds: bool
    evidence: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON-ready data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def check_full_rank_hard() -> Finding:
    """H1: one hard head is nearest neighbour exactly, on all inputs."""
    certificate = verify(full_rank_nearest_neighbor(64), nearest_neighbor)
    return Finding(
        "H1", "nearest neighbor, d = 64, one hard head", "rank 64 is enough",
        f"1 head of rank 64, {certificate.scope}: {certificate.verdict}", certificate.holds,
        {"certificate": certificate.to_dict()},
    )  # fmt: skip


def check_full_rank_soft() -> Finding:
    """H1: the sufficient softmax scale, and the certified error of the head that uses it."""
    bound = softmax_scale(64, "1/100")
    layer = full_rank_nearest_neighbor(64, scale=upper_float(bound))
    certificate = verify(layer, nearest_neighbor, error="1/100")
    assert isinstance(certificate.error, Ball)
    return Finding(
        "H1", "nearest neighbor, d = 64, one softmax head, error ≤ 1/100",
        f"scale ≤ {bound.value_text()} is enough",
        f"1 head of rank 64, certified error {certificate.error.decimal(6, 'up')}", certificate.holds,
        {"bound": bound.to_dict(), "certificate": certificate.to_dict()},
    )  # fmt: skip


def check_head_floor() -> Finding:
    """H2: the heads forced at rank 8, bracketed by the floor; one full-rank head does it."""
    error = Fraction(1, 10)
    bound = min_heads(64, 8, error)
    heads = bound.value
    assert isinstance(heads, int)
    at, before = head_floor(64, 8, heads), head_floor(64, 8, heads - 1)
    certificate = verify(
        full_rank_nearest_neighbor(64, scale=upper_float(softmax_scale(64, error))),
        nearest_neighbor, error=error,
    )  # fmt: skip
    bracketed = _ball(at) <= error < _ball(before)
    return Finding(
        "H2", "nearest neighbor, d = 64, rank-8 heads, error ≤ 1/10", f"≥ {bound.value_text()} heads",
        f"1 softmax head of rank 64: {certificate.verdict}", bracketed and certificate.holds,
        {"bound": bound.to_dict(), "floor": at.to_dict(), "certificate": certificate.to_dict()},
    )  # fmt: skip


def check_floor_below_layer() -> Finding:
    """H2: the floor lies below what a layer of random rank-1 hard heads attains (a sample)."""
    d, heads = 8, 16
    rng = np.random.default_rng(0)
    keys = rng.standard_normal((heads, d, 1))
    share = [np.eye(d) / heads] * heads
    layer = AttentionLayer(
        w_q=list(keys),
        w_k=list(keys),
        w_v=share,
        w_o=[np.eye(d)] * heads,
        method="random rank-1 heads",
    )
    floor = head_floor(d, 1, heads, values="scalar")
    certificate = verify(layer, nearest_neighbor, samples=4000, error=_ball(floor).upper)
    assert isinstance(certificate.error, tuple)
    low, high = certificate.error
    return Finding(
        "H2", "nearest neighbor, d = 8, 16 rank-1 heads, V = aI", f"error ≥ {floor.value_text()}",
        f"random heads: error in [{low:.3f}, {high:.3f}] at 99.9 %", _ball(floor) <= Fraction(high),
        {"bound": floor.to_dict(), "certificate": certificate.to_dict()},
    )  # fmt: skip


def check_rank_one_relations() -> Finding:
    """C4: one dimension a relation, the baseline, on a random permutation."""
    target = random_permutation(64, 16, seed=0)
    layer = relation_layer(target.embeddings, target.edges, method="rank-one")
    return relation_finding(
        "C4", "random permutation, m = 64, d_model = 16, rank-one", layer, target
    )


def check_compact_relations() -> Finding:
    """C5: fitted heads on a random permutation in superposition."""
    target = random_permutation(128, 16, seed=0)
    layer = relation_layer(target.embeddings, target.edges)
    return relation_finding(
        "C5", "random permutation, m = 128, d_model = 16, compact", layer, target
    )


def check_tokens() -> Finding:
    """C5 on real input: every singular→plural relation of the shipped tokens in one head."""
    target = token_example()
    layer = relation_layer(target.embeddings, target.edges, key_dim=8, heads=1)
    subject = f"{target.items} real tokens, {target.relations} singular→plural relations"
    return relation_finding("C5", subject, layer, target, family="digraph")


def relation_finding(
    result: str,
    subject: str,
    layer: AttentionLayer,
    target: RelationTarget,
    family: Any = "permutation",
) -> Finding:
    """Judge a relation layer on all pairs, round it to few bits, and set its size beside C1.

    The weights judged last are the rounded ones, so that the count of C1 is about this layer. A
    bias is the weight of one more coordinate, constant 1.
    """
    certificate = verify(layer, target)
    bits, rounded = fewest_bits(layer, target)
    width, total = layer.d_model + bool(layer.b_q), layer.key_dimension
    relations = target.relations if family == "digraph" else None
    bound = key_dimension_bits(
        target.items, width, bits, family=family, relations=relations, threshold_bits=THRESHOLD_BITS
    )
    used = storage_efficiency(target.items, width, total, bits, family=family, relations=relations)
    shape = f"{layer.heads} head{'s' if layer.heads > 1 else ''}"
    return Finding(
        result,
        subject,
        f"D_K ≥ {bound.value_text()} at {bits} bits a weight",
        f"D_K = {total} in {shape} of {bits}-bit weights, {rounded.checked:,} pairs: {rounded.verdict}",
        certificate.holds
        and rounded.holds
        and isinstance(bound.value, int)
        and bound.value <= total,
        {
            "bound": bound.to_dict(),
            "storage_efficiency": used.to_dict(),
            "certificate": certificate.to_dict(),
            "rounded certificate": rounded.to_dict(),
        },
    )


def fewest_bits(layer: AttentionLayer, target: RelationTarget) -> tuple[int, Certificate]:
    """The first of 4, 6, ..., 32 bits at which the rounded weights are verified, or the last try."""
    for bits in range(4, 33, 2):
        certificate = verify(round_weights(layer, bits), target)
        if certificate.holds:
            break
    return bits, certificate


def random_permutation(items: int, d_model: int, seed: int) -> RelationTarget:
    """Uniform unit embeddings and a uniform permutation of the items."""
    rng = np.random.default_rng(seed)
    embeddings = rng.standard_normal((items, d_model))
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    return relation_target(embeddings, np.stack([np.arange(items), rng.permutation(items)], axis=1))


CATALOGUE: tuple[Callable[[], Finding], ...] = (
    check_full_rank_hard,
    check_full_rank_soft,
    check_head_floor,
    check_floor_below_layer,
    check_rank_one_relations,
    check_compact_relations,
    check_tokens,
)
"""Every check of ``attention-bounds check``, in the order of the table."""


def _ball(bound: Bound) -> Ball:
    assert isinstance(bound.value, Ball)
    return bound.value


def upper_float(bound: Bound) -> float:
    """A float no smaller than the number that a bound encloses."""
    return _ball(bound).upper_float()
