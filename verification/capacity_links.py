r"""The claims of both versions of the capacity paper, each with what this package's results say of it.

A claim stays a claim: it is recorded without numbers in :mod:`bounds.capacity_claims`. A link says
what is proved or computed here beside it: ``"implied"`` (in the form that ``ours`` states, with
constants), ``"consistent"``, or ``"open"``; ``check`` computes it at stated parameters.
docs/related-results.md has the table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bounds import key_dimension
from bounds.capacity_claims import TITLES, CapacityClaim, Version, capacity_claims
from bounds.key_dimension_real import least_heads
from constructions import (
    circle_codes,
    coded_layer,
    relation_layer,
    relation_target,
    routing_heads,
    routing_layer,
)
from verification.claims import Relation
from verification.finding import Finding
from verification.leakage import verify_leakage
from verification.relation_checks import random_permutation
from verification.verify import verify


@dataclass(frozen=True)
class CapacityLink:
    """What our results say of one claim, named by its version and name."""

    version: Version
    name: str
    relation: Relation
    ours: str
    check: Callable[[], tuple[bool, str]] | None

    @property
    def claim(self) -> CapacityClaim:
        """The claim itself."""
        (found,) = (c for c in capacity_claims(self.version) if c.name == self.name)
        return found


def check_bits_from_below() -> tuple[bool, str]:
    r"""C1 has the claimed order $m'\log m'/d_{model}$ at fixed bits; a fitted layer lies above.

    $\log_2 m! \ge m\log_2(m/e)$, so the least $D_K$ is at least $m\log_2(m/e)/(2d_{model}b)$.
    """
    bits, holds, shown = 8, True, []
    for m, d in ((128, 16), (1024, 64), (16384, 512)):
        bound = dict(key_dimension(m, d, bits=bits).candidates)["C1"].value
        assert isinstance(bound, int)
        holds = holds and 2 * d * bits * bound >= m * math.log2(m / math.e)
        shown.append(f"({m}, {d}): {bound}")
    target = random_permutation(128, 16, seed=0)
    layer = relation_layer(target.embeddings, target.edges, key_dim=4, heads=8)
    certificate = verify(layer, target)
    holds = holds and certificate.holds
    text = (
        f"C1 at 8 bits, (m, d_model): {', '.join(shown)}; built at (128, 16): {layer.key_dimension}"
    )
    return holds, text


def check_one_head() -> tuple[bool, str]:
    """One head with $D_K = 2$ has a permutation of $m = d_{model}$ independent embeddings."""
    rng = np.random.default_rng(0)
    gaussian = rng.standard_normal((64, 64))
    edges = np.stack([np.arange(64), np.roll(np.arange(64), -1)], axis=1)
    verdicts = []
    for x in (np.eye(64), gaussian / np.linalg.norm(gaussian, axis=1, keepdims=True)):
        certificate = verify(coded_layer(x, edges, circle_codes(64)), relation_target(x, edges))
        verdicts.append(certificate.verdict)
    text = f"m = d_model = 64, one head, D_K = 2: orthonormal {verdicts[0]}, Gaussian {verdicts[1]}"
    return verdicts == ["verified", "verified"], text


def check_real_from_below() -> tuple[bool, str]:
    """C2 needs no precision: at least m'/(8 d_model), for permutations of these sizes."""
    holds, shown = True, []
    for m, d in ((128, 16), (1024, 64), (16384, 512)):
        value = key_dimension(m, d).value
        holds = holds and 8 * value * d >= m
        shown.append(f"({m}, {d}): {value} beside {m // d}")
    return holds, f"C2 beside m'/d_model, (m, d_model): {', '.join(shown)}"


def check_softmax() -> tuple[bool, str]:
    """Softmax with a null token: a built layer, its leakage certified in every context."""
    target = random_permutation(32, 16, seed=0)
    heads = routing_heads(target.embeddings, target.edges, key_dim=8)
    routing = routing_layer(heads, target, "1/1000")
    certificate = verify_leakage(routing, target, "1/1000")
    text = (
        f"m = 32, d_model = 16: leakage at most 1/1000 {certificate.verdict}, {certificate.scope}"
    )
    return certificate.holds, text


def check_advantage() -> tuple[bool, str]:
    r"""Too few heads fail for some permutation at any $D_K$; $m$ heads of rank one have each of them."""
    m, d = 128, 4
    least = least_heads(m, d).value
    assert isinstance(least, int)
    target = random_permutation(m, d, seed=0)
    layer = relation_layer(target.embeddings, target.edges, method="rank-one")
    certificate = verify(layer, target)
    text = (
        f"permutations, m = {m}, d_model = {d}: {least - 1} heads of any size are too few for some, "
        f"{layer.heads} heads of rank one, D_K = {layer.key_dimension}: {certificate.verdict}"
    )
    return 1 < least <= layer.heads and certificate.holds, text


CAPACITY_LINKS: tuple[CapacityLink, ...] = (
    CapacityLink(
        "v1", "total key dimension", "consistent",
        "C1: the order m' log m' / d_model is needed at a fixed number of bits a weight; C4, C5 build "
        "layers above it; the upper half of Theta is not proved here", check_bits_from_below,
    ),
    CapacityLink(
        "v1", "permutations without superposition", "implied",
        "C4: for independent embeddings, m = d_model, one head with D_K = 2", check_one_head,
    ),
    CapacityLink(
        "current", "total key dimension", "consistent",
        "C2: real weights need m' / (8 d_model), for permutations of the sizes computed; C4, C5 build "
        "layers above it", check_real_from_below,
    ),
    CapacityLink(
        "current", "scaled softmax", "consistent",
        "C6: the logit scale and the leakage, certified for each layer that is built", check_softmax,
    ),
    CapacityLink(
        "current", "multi-head advantage", "implied",
        "C2, C4a: for m well above d_model a few heads fail for some permutation whatever D_K is, and m "
        "heads of rank one have every permutation of distinct unit embeddings", check_advantage,
    ),
    CapacityLink(
        "current", "phase transitions", "open",
        "the phase diagrams here are of constructions; no network is trained", None,
    ),
    CapacityLink(
        "current", "robustness of the advantage", "open",
        "C6 certifies softmax and routing for built layers; no network is trained", None,
    ),
)  # fmt: skip
"""One link for each claim of both versions, in the order of ``CAPACITY_CLAIMS``."""


def check_capacity_claims() -> Finding:
    """Both versions' claims on capacity: each link with our results, computed."""
    outcomes = {link: link.check() for link in CAPACITY_LINKS if link.check is not None}
    counts = Counter((link.version, link.relation) for link in CAPACITY_LINKS)
    relations = "; ".join(
        f"{version}: " + ", ".join(f"{n} {r}" for (own, r), n in counts.items() if own == version)
        for version in TITLES
    )
    return Finding(
        "C1-C6", "claims of both versions of the paper on capacity", "constants unknown: no number is given",
        relations, all(holds for holds, _ in outcomes.values()),
        {
            f"{link.version}: {link.name}": {
                "relation": link.relation, "ours": link.ours,
                "computed": outcomes[link][1] if link in outcomes else None,
            }
            for link in CAPACITY_LINKS
        },
    )  # fmt: skip
