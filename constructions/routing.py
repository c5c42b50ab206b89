r"""C6: softmax heads that route each item's neighbours, with a null token for rows that have none.

Tokens are $(x_i, 0) \in \mathbb R^{d+1}$ for the items and $(0, 1)$ for the null token. Each head has
one key dimension more than the recognising head that it is made from: queries $(q_i, 1)$ (the 1 is a
bias), keys $(k_j, 0)$ for the items and $(0, \tau+\delta)$ for the null token. So items score as
before, and the null token scores $\tau+\delta$ in every row. Its value is 0. Sizes and leakage are in
:mod:`bounds.softmax_leakage`, the certified leakage of the weights is
:func:`verification.leakage.leakage_report`; the page is docs/C6-softmax-routing.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from bounds.arithmetic import Ball, exact_integer
from bounds.errors import ArgumentError
from bounds.softmax_leakage import Null, balanced_null_shift, leakage_scale
from constructions.attention import AttentionLayer, FloatArray, checked_array, checked_float
from constructions.compact import fit_compact
from constructions.errors import RealizationError
from constructions.recognition import recognition_report
from constructions.relations import IntArray, RelationTarget, relation_target


@dataclass(frozen=True, eq=False)
class RoutingLayer:
    r"""A softmax layer that sends each item the sum of its neighbours' embeddings.

    ``layer``: heads on tokens of width d_model + 1. ``edge_heads``: (m',) the one head that holds
    each relation of the target, in the target's order; no head holds two relations of one item.
    ``margin``: $\gamma$ as certified for the recognising heads. ``null_score``: $\tau+\delta$.
    """

    layer: AttentionLayer
    edge_heads: IntArray = field(repr=False)
    margin: float
    null_score: float

    def tokens(self, embeddings: ArrayLike) -> FloatArray:
        """Items (m, d_model) as tokens (m + 1, d_model + 1), the null token last."""
        items = checked_array(embeddings, "embeddings", 2)
        if items.shape[1] != self.layer.d_model - 1:
            raise ArgumentError(
                "embeddings", items.shape, f"of shape (m, {self.layer.d_model - 1})"
            )
        tokens = np.zeros((len(items) + 1, self.layer.d_model))
        tokens[:-1, :-1] = items
        tokens[-1, -1] = 1.0
        return tokens

    def route(self, embeddings: ArrayLike) -> FloatArray:
        """The layer's output at each item, (m, d_model), on the context of all of them."""
        tokens = self.tokens(embeddings)
        return self.layer.attend(tokens[:-1], tokens)


def routing_heads(
    embeddings: ArrayLike,
    edges: ArrayLike,
    *,
    key_dim: int,
    block: int | None = None,
    bias: bool = False,
    seed: int = 0,
) -> AttentionLayer:
    r"""A recognising layer fit for routing: each relation in one head, one relation a row and head.

    The relations are split by their rank within their source, so that a part is a partial function;
    parts into blocks of at most ``block`` relations (``None``: all), one head each, fitted alone
    to be above the threshold on its block and below on *all* other pairs, relations of other heads
    included. A block that does not fit is halved. ``key_dim``: $d_k$ of each head.
    Raises ``RealizationError`` when single relations do not fit. Source: [attention-bounds, C6].

    >>> layer = routing_heads(np.eye(4), [[0, 1], [0, 2], [3, 0]], key_dim=2)
    >>> layer.heads, layer.recognize(np.eye(4)).sum().item()
    (2, 3)
    """
    target = relation_target(embeddings, edges)
    key_dim = exact_integer(key_dim, "key_dim", 1)
    most = exact_integer(block if block is not None else target.relations, "block", 1)
    seed = exact_integer(seed, "seed", 0)
    order = np.random.default_rng(seed).permutation(target.relations)
    sources = target.edges[:, 0]
    rank = np.arange(target.relations) - np.searchsorted(sources, sources)
    todo = [
        part[low : low + most]
        for value in range(int(rank.max()) + 1)
        for part in [order[rank[order] == value]]
        for low in range(0, len(part), most)
    ]
    fits = []
    while todo:
        part = todo.pop(0)
        try:
            pairs = target.edges[part]
            fits.append(
                fit_compact(
                    target.embeddings, pairs, key_dim=key_dim, heads=1, bias=bias, seed=seed
                )
            )
        except RealizationError as failure:
            if len(part) == 1:
                i, j = (target.name(int(item)) for item in target.edges[part[0]])
                raise RealizationError(f"the relation ({i}, {j}) alone: {failure}") from None
            todo[:0] = [part[: len(part) // 2], part[len(part) // 2 :]]
    biases = [(fit.b_q, fit.b_k) for fit in fits]
    return AttentionLayer(
        w_q=[fit.w_q[0] for fit in fits],
        w_k=[fit.w_k[0] for fit in fits],
        b_q=[b_q[0] for b_q, _ in biases if b_q is not None],
        b_k=[b_k[0] for _, b_k in biases if b_k is not None],
        threshold=fits[0].threshold,
        method="compact, one relation a row and head",
        seed=seed,
    )


def routing_layer(
    layer: AttentionLayer,
    target: RelationTarget,
    error: int | float | str | Fraction,
    *,
    context: int | None = None,
    share: float = 1.0,
    null: Null = "threshold",
) -> RoutingLayer:
    r"""Softmax heads with a null token, from a recognising layer whose heads are fit for routing.

    Every context of at most ``context`` items (``None``: m) then has leakage at most ``error``
    $\varepsilon$ in every row of every head, so that the output at $i$ is
    ``share`` $\cdot\sum_{j\in N(i)}x_j$, up to the routing error of docs/C6-softmax-routing.md.
    ``share``: what each neighbour counts; $1/r$ for the mean in a graph of out-degree $r$.
    ``null``: the null token's score, $\tau$ or the best one.

    The margin $\gamma$ is certified here, head by head, on all pairs. Raises ``ArgumentError`` when
    a relation is held by no head or by several, or a head holds two relations of one item: such
    layers do not route a sum (:func:`routing_heads` makes ones that do).
    Source: [attention-bounds, C6].
    """
    if layer.threshold is None or layer.w_v:
        raise ArgumentError("layer", layer.method, "one that recognises pairs and routes no values")
    items = target.items if context is None else exact_integer(context, "context", 1, target.items)
    weight = checked_float(share, "share")
    edge_heads, margin = _certified_heads(layer, target)
    tau = layer.threshold
    bound = leakage_scale(items, margin, error, null=null)
    assert isinstance(bound.value, Ball)
    # a little above the least scale: room for the rounding of the scores and of the null score
    scale = max(bound.value.upper_float() * (1 + 2.0**-20), 2.0**-20 / margin)
    shift = float(balanced_null_shift(items, margin, scale)) if null == "balanced" else 0.0
    d, sizes = layer.d_model, layer.key_dims
    return RoutingLayer(
        AttentionLayer(
            # the last coordinate of each query is 1, and of each item's key 0
            w_q=[_bordered(w, np.zeros(k + 1)) for w, k in zip(layer.w_q, sizes, strict=True)],
            b_q=[np.append(bias, 1.0) for bias in _biases(layer.b_q, sizes)],
            # the null token's key is (0, tau + delta), its bias cancelled
            w_k=[
                _bordered(w, np.append(-bias, tau + shift))
                for w, bias in zip(layer.w_k, _biases(layer.b_k, sizes), strict=True)
            ],
            b_k=[np.append(bias, 0.0) for bias in layer.b_k],
            # items have their own embedding as value, the null token 0
            w_v=[np.eye(d + 1, d)] * layer.heads,
            w_o=[weight * np.eye(d)] * layer.heads,
            kind="soft",
            logit_scale=scale,
            blocks=[("item", 0, d), ("null", d, d + 1)],
            method=f"softmax routing of ({layer.method})",
            seed=layer.seed,
        ),
        edge_heads,
        margin,
        tau + shift,
    )


def _bordered(weights: FloatArray, last: FloatArray) -> FloatArray:
    """The weights with a column of zeros, and a last row for the null token's coordinate."""
    return np.vstack([np.pad(weights, ((0, 0), (0, 1))), last])


def _biases(biases: tuple[FloatArray, ...], sizes: tuple[int, ...]) -> tuple[FloatArray, ...]:
    return biases or tuple(np.zeros(size) for size in sizes)


def _certified_heads(layer: AttentionLayer, target: RelationTarget) -> tuple[IntArray, float]:
    """The one head of each relation, and the least certified margin of a head."""
    sources, targets = target.edges.T
    held = np.array(
        [
            np.einsum("ek,ek->e", query[sources], key[targets]) > layer.threshold
            for query, key in (
                layer.projections(h, target.embeddings, target.embeddings)
                for h in range(layer.heads)
            )
        ]
    )
    many = np.flatnonzero(held.sum(axis=0) != 1)
    if many.size:
        i, j = target.edges[many[0]]
        raise ArgumentError(
            "layer",
            f"the relation ({target.name(int(i))}, {target.name(int(j))}) in "
            f"{int(held[:, many[0]].sum())} heads",
            "one that holds each relation in exactly one head (see routing_heads)",
        )
    margin = np.inf
    for head in range(layer.heads):
        own = target.edges[held[head]]
        twice = np.flatnonzero(own[1:, 0] == own[:-1, 0])
        if not len(own) or twice.size:
            problem = (
                f"head {head} with two relations of {target.name(int(own[twice[0], 0]))}"
                if twice.size
                else f"head {head} without a relation"
            )
            raise ArgumentError("layer", problem, "one relation a row and head (see routing_heads)")
        alone = AttentionLayer(
            w_q=[layer.w_q[head]],
            w_k=[layer.w_k[head]],
            b_q=layer.b_q[head : head + 1],
            b_k=layer.b_k[head : head + 1],
            threshold=layer.threshold,
        )
        report = recognition_report(alone, relation_target(target.embeddings, own))
        if report.wrong is not None or report.undecided or report.margin <= 0:
            i, j = report.wrong or (0, 0)
            raise ArgumentError(
                "layer",
                f"head {head} at the pair ({target.name(i)}, {target.name(j)})",
                "above the threshold on its relations and below it on all other pairs",
            )
        margin = min(margin, report.margin)
    return held.argmax(axis=0), margin
