r"""Two hops by stacking two routing layers (C6): each item finds the successor of its successor.

Residual stream of width 3d + 1: ``item`` (d), ``null`` (1), ``one`` (d), ``two`` (d). Layer 1 reads
queries and keys from ``item`` and writes the successor's embedding to ``one``; layer 2 has the same
heads, reads queries from ``one`` and keys from ``item``, and writes to ``two``. The first layer's
error moves a score of the second by at most that error times $\max_j\|W_Q k_j\|$; while this is below
the margin $\gamma$, layer 2 routes with what is left of it. Works for graphs in which an item has at
most one successor (a sum of several embeddings is not a query).

    python examples/two_hop.py
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bounds import Ball
from bounds.softmax_leakage import softmax_leakage
from constructions import AttentionLayer, relation_target
from constructions.attention import FloatArray
from constructions.relations import IntArray, RelationTarget
from constructions.routing import RoutingLayer, routing_heads, routing_layer
from verification.leakage import leakage_report


@dataclass(frozen=True)
class TwoHops:
    """Two layers, what each may be off by, and the output at each item, (m, d)."""

    layers: tuple[AttentionLayer, AttentionLayer]
    errors: tuple[float, float]
    output: FloatArray


def two_hops(routing: RoutingLayer, target: RelationTarget) -> TwoHops:
    """Stack a routing layer on itself and bound the error of both hops."""
    first, second = _placed(routing, "item", "one"), _placed(routing, "one", "two")
    d = target.embeddings.shape[1]
    stream = np.zeros((target.items + 1, 3 * d + 1))
    stream[:, : d + 1] = routing.tokens(target.embeddings)
    for layer in (first, second):
        stream = stream + layer.attend(stream, stream)  # the residual connection
    one = leakage_report(routing, target).routing_error
    assert one is not None
    return TwoHops((first, second), (one, _second_error(routing, target, one)), stream[:-1, -d:])


def _placed(routing: RoutingLayer, read: str, write: str) -> AttentionLayer:
    """The heads with queries from one block and output to another; keys from item and null."""
    layer, d = routing.layer, routing.layer.d_model - 1
    first = {"item": 0, "one": d + 1, "two": 2 * d + 1}

    def rows(weights: FloatArray, start: int) -> FloatArray:
        placed = np.zeros((3 * d + 1, weights.shape[1]))
        placed[start : start + len(weights)] = weights
        return placed

    return AttentionLayer(
        w_q=[rows(w[:d], first[read]) for w in layer.w_q],
        w_k=[rows(w, 0) for w in layer.w_k],
        w_v=[rows(w, 0) for w in layer.w_v],
        w_o=[rows(w, first[write]) for w in layer.w_o],
        b_q=layer.b_q,
        b_k=layer.b_k,
        kind="soft",
        logit_scale=layer.logit_scale,
        blocks=[
            ("item", 0, d),
            ("null", d, d + 1),
            ("one", d + 1, 2 * d + 1),
            ("two", 2 * d + 1, 3 * d + 1),
        ],
        method=f"{layer.method}, from {read} to {write}",
    )


def _second_error(routing: RoutingLayer, target: RelationTarget, first: float) -> float:
    """R (h + 1) p, with the leakage p at the margin that the first layer's error leaves.

    For a null token at the threshold; in float64, with room for its rounding.
    """
    layer, x = routing.layer, target.embeddings
    tokens = routing.tokens(x)
    steepest, idle = 0.0, -np.inf
    for w_q, w_k, b_q, b_k in zip(
        layer.w_q, layer.w_k, layer.b_q, layer.b_k or [0.0] * layer.heads, strict=True
    ):
        keys = tokens @ w_k + b_k
        steepest = max(steepest, float(np.linalg.norm(keys @ w_q[:-1].T, axis=1).max()))
        idle = max(idle, float((keys[:-1] @ b_q).max()))
    # a row whose first hop found nobody has the query b_q: it must score below the threshold too
    margin = min(routing.margin, routing.null_score - idle)
    left = margin - first * steepest * (1 + 1e-9)
    if left <= 0:
        raise ValueError(f"the first hop's error {first:.2g} eats the margin {margin:.2g}")
    leakage = softmax_leakage(target.items, left, layer.logit_scale).value
    assert isinstance(leakage, Ball)
    radius = float(np.linalg.norm(x, axis=1).max())
    return radius * (layer.heads + 1) * leakage.upper_float() * (1 + 1e-9)


def random_successors(items: int, d_model: int, seed: int) -> tuple[RelationTarget, IntArray]:
    """Unit embeddings, and a random permutation as the successors."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((items, d_model))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    successor = rng.permutation(items)
    return relation_target(x, np.stack([np.arange(items), successor], axis=1)), successor


def main() -> None:
    """Build, run and check two hops on 64 items in 16 dimensions."""
    target, successor = random_successors(64, 16, seed=0)
    heads = routing_heads(target.embeddings, target.edges, key_dim=6, block=22)
    found = two_hops(routing_layer(heads, target, "1/1000000"), target)
    wanted = target.embeddings[successor[successor]]
    error = np.linalg.norm(found.output - wanted, axis=1).max()
    nearest = (found.output @ target.embeddings.T).argmax(axis=1)
    print(
        f"{heads.heads} heads, D_K = {heads.key_dimension + heads.heads} with the null coordinates"
    )
    print(
        f"certified error of the first hop: {found.errors[0]:.2g}, of the second: {found.errors[1]:.2g}"
    )
    print(f"measured error after two hops: {error:.2g}")
    print(
        f"items that find the successor of their successor: {(nearest == successor[successor]).sum()} of 64"
    )


if __name__ == "__main__":
    main()
