"""Part C of the check: relation graphs in the key-query channel."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from bounds import (
    bottleneck_dimension,
    key_dimension,
    key_dimension_bits,
    key_dimension_packing,
    storage_efficiency,
)
from bounds.identity_readout import readout_dimension
from constructions import (
    AttentionLayer,
    RelationTarget,
    RoutingLayer,
    circle_codes,
    coded_layer,
    identity_layer,
    relation_layer,
    relation_target,
    round_weights,
    routing_heads,
    routing_layer,
    stochastic_head,
    superposed_layer,
)
from constructions.relations import IntArray
from constructions.stochastic_matrix import attention_error
from verification.certificate import Certificate
from verification.finding import Finding
from verification.identities import verify_identities
from verification.layer_size import THRESHOLD_BITS, layer_size
from verification.leakage import verify_leakage
from verification.readable_sets import readable_degree
from verification.reading import token_example
from verification.verify import verify


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


def check_real_weights() -> Finding:
    """C2, C3: real weights and margins, and the best lower bound for a model; the circle code beside."""
    best = key_dimension(1024, 64, "permutation", bits=16)
    packing = key_dimension_packing(64, Fraction(1, 500))
    layer = coded_layer(np.eye(64), _shift(64), circle_codes(64))
    certificate = verify(layer, relation_target(np.eye(64), _shift(64)))
    least = packing.value
    return Finding(
        "C2, C3", "permutations of 1024 items, d_model = 64; circle code for 64 items",
        f"D_K ≥ {best.value} ({best.winner} wins); at margin 1/500: ≥ {packing.value_text()}",
        f"circle code, D_K = {layer.key_dimension}: {certificate.verdict}",
        certificate.holds and isinstance(least, int) and least <= layer.key_dimension,
        {"best": best.best.to_dict(), "packing": packing.to_dict(), "certificate": certificate.to_dict()},
    )  # fmt: skip


def check_margins() -> Finding:
    """C3: the packing bound at the margin and the norms that each layer's own weights certify."""
    shift = relation_target(np.eye(64), _shift(64))
    fitted = random_permutation(64, 16, seed=0)
    layers = (
        (coded_layer(shift.embeddings, shift.edges, circle_codes(64)), shift),
        (coded_layer(shift.embeddings, shift.edges, np.eye(64)), shift),
        (relation_layer(fitted.embeddings, fitted.edges, key_dim=4, heads=4), fitted),
    )
    sizes = [layer_size(layer, target) for layer, target in layers]
    packing = [0 if size.graph_bound is None else size.graph_bound.value for size in sizes]
    volume = [dict(size.family_bounds.candidates)["C3"].value_text() for size in sizes]
    used = ", ".join(f"{size.key_dimension} (margin {size.margin:.3g})" for size in sizes)
    return Finding(
        "C3", "permutations of 64 items: circle code, orthonormal code, compact layer",
        f"D_K ≥ {', '.join(map(str, packing))} at their margins; every permutation: ≥ {', '.join(volume)}",
        f"D_K = {used}: {', '.join(size.certificate.verdict for size in sizes)}",
        all(
            size.certificate.holds and isinstance(least, int) and 1 <= least <= size.key_dimension
            for size, least in zip(sizes, packing, strict=True)
        ),
        {name: size.to_dict() for name, size in zip(("circle", "orthonormal", "compact"), sizes, strict=True)},
    )  # fmt: skip


def check_superposition() -> Finding:
    """C4c: one head a block of a matching, sizes explicit, what was drawn verified."""
    target = random_permutation(128, 64, seed=0)
    layer = superposed_layer(target.embeddings, target.edges, delta="1/100")
    return relation_finding(
        "C4", "random permutation, m = 128, d_model = 64, superposed", layer, target
    )


def check_routing() -> Finding:
    """C6: softmax heads with a null token route the plural; the leakage is certified."""
    target, routing = _plural_routing()
    certificate = verify_leakage(routing, target, "1/1000")
    return Finding(
        "C6", f"{target.items} real tokens, softmax with a null token, leakage ≤ 1/1000",
        f"logit scale ≤ {routing.layer.logit_scale:.6g} is enough",
        f"{routing.layer.heads} head, {certificate.scope}: {certificate.verdict}", certificate.holds,
        {"certificate": certificate.to_dict()},
    )  # fmt: skip


def check_identities() -> Finding:
    """C6: the same heads name the plural in their output, and two plurals at once could be read."""
    target, routing = _plural_routing()
    identity = identity_layer(routing, target, readout="dual")
    certificate = verify_identities(identity, target)
    plurals = np.unique(target.edges[:, 1])
    read = readable_degree(
        target.embeddings[plurals], identity.readout[plurals], identity.threshold
    )
    bound, width = readout_dimension(len(plurals), max(read, 1)), target.embeddings.shape[1]
    return Finding(
        "C6", f"names of the neighbors, {target.items} real tokens, {len(plurals)} of them neighbors",
        f"any {read} of {len(plurals)}: d_model ≥ {bound.value_text()}",
        f"d_model = {width}, any {read}; the graph, {certificate.scope}: {certificate.verdict}",
        certificate.holds and read >= 1 and isinstance(bound.value, int) and bound.value <= width,
        {"bound": bound.to_dict(), "degree": read, "certificate": certificate.to_dict()},
    )  # fmt: skip


@cache
def _plural_routing() -> tuple[RelationTarget, RoutingLayer]:
    """The shipped tokens, and softmax heads that route the plural of each."""
    target = token_example()
    heads = routing_heads(target.embeddings, target.edges, key_dim=8)
    return target, routing_layer(heads, target, "1/1000")


def check_bottleneck() -> Finding:
    """R1: a positive attention matrix of size n from d_k = n - 1."""
    n = 6
    rng = np.random.default_rng(0)
    matrix = rng.uniform(0.05, 1.0, (n, n))
    matrix /= matrix.sum(axis=1, keepdims=True)
    tokens = np.linalg.qr(rng.standard_normal((n, n)))[0]
    head = stochastic_head(matrix, tokens)
    error = attention_error(head, tokens, matrix)
    return Finding(
        "R1", f"any positive attention matrix of {n} tokens", f"d_k ≥ {bottleneck_dimension(n).value_text()}",
        f"d_k = {head.key_dimension}: within {error.upper_float():.1e}",
        error < Fraction(1, 10**12) and head.key_dimension == n - 1,
        {"error": error.exact()},
    )  # fmt: skip


def _shift(items: int) -> IntArray:
    """The cyclic permutation i -> i + 1."""
    return np.stack([np.arange(items), (np.arange(items) + 1) % items], axis=1)


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
