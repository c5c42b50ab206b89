"""Part C of the check: relation graphs in the key-query channel."""

from __future__ import annotations

from typing import Any

import numpy as np

from bounds import key_dimension_bits, storage_efficiency
from constructions import (
    AttentionLayer,
    RelationTarget,
    relation_layer,
    relation_target,
    round_weights,
)
from verification.certificate import Certificate
from verification.finding import Finding
from verification.reading import token_example
from verification.verify import verify

THRESHOLD_BITS = 64
"""Bits of the stored threshold, a float64."""


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
