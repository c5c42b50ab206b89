r"""What a verified layer pays, beside every lower bound that holds for its size, precision and margin.

The bounds of C1, C2 and C3 at the layer's own numbers: its heads, the bits of its weights, the
margin with which it was verified, the norms of its weights, queries and keys. See
docs/real-graphs.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from bounds.arithmetic import Ball, exact_integer
from bounds.bound import Bound
from bounds.errors import ArgumentError
from bounds.graph_families import Family, GraphFamily, graph_family, most_neighborhoods
from bounds.key_dimension import storage_efficiency
from bounds.key_dimension_best import KeyDimension, key_dimension
from bounds.key_dimension_margin import key_dimension_packing
from bounds.key_dimension_real import least_heads
from constructions.attention import AttentionLayer, FloatArray
from constructions.errors import RealizationError
from constructions.relations import Progress, RelationTarget
from constructions.screening import row_norms
from verification.certificate import Certificate
from verification.verify import verify

THRESHOLD_BITS = 64
"""Bits of the stored threshold, a float64."""


@dataclass(frozen=True, slots=True)
class LayerSize:
    r"""The total key dimension of a verified layer, and what bounds ask of layers like it.

    ``key_dimension``: the layer's $D_K$. ``family_bounds``: what it takes to realise *every* graph
    of the family with weights of ``bits`` bits and with the margin and norms of this layer; they
    say nothing about one graph. They are for at most as many heads as the layer has, unless that
    is below ``least_heads``, where no $D_K$ is enough: then for any number of heads.
    ``graph_bound``: the packing bound for this very graph at the margin and key norm of this
    very layer, never above ``key_dimension``. ``efficiency``: $\log_2G/(2d_{model}D_Kb)$.

    ``margin``: certified, in units of the scores; a layer that scores exactly $\tau$ has none, and
    nothing is said by C3. ``weight_norm`` $B$: $\|W_Q^k\|_F\|W_K^k\|_F \le B^2$ for embeddings
    scaled to norm at most 1. ``key_norm`` $R$: $\|q_i^k\|\|c_j^k\| \le R^2$. Both are upper
    bounds. ``certificate``: that the layer realises its target.
    """

    key_dimension: int
    bits: int
    family_bounds: KeyDimension
    least_heads: Bound
    graph_bound: Bound | None
    efficiency: Bound
    margin: float
    weight_norm: float
    key_norm: float
    certificate: Certificate

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready data."""
        return {
            "key_dimension": self.key_dimension,
            "bits": self.bits,
            "family_bounds": {name: b.to_dict() for name, b in self.family_bounds.candidates},
            "least_heads": self.least_heads.to_dict(),
            "graph_bound": None if self.graph_bound is None else self.graph_bound.to_dict(),
            "efficiency": self.efficiency.to_dict(),
            "margin": self.margin,
            "weight_norm": self.weight_norm,
            "key_norm": self.key_norm,
            "certificate": self.certificate.to_dict(),
        }

    def __str__(self) -> str:
        family = ", ".join(f"{name} {b.value_text()}" for name, b in self.family_bounds.candidates)
        own = "" if self.graph_bound is None else (
            f"; this graph at this margin: at least {self.graph_bound.value_text()}"
        )  # fmt: skip
        assert isinstance(self.efficiency.value, Ball)
        return (
            f"D_K = {self.key_dimension}; every graph of the family: at least {family}{own}; "
            f"storage efficiency {self.efficiency.value.decimal(3)} at {self.bits} bits"
        )


def layer_size(
    layer: AttentionLayer,
    target: RelationTarget,
    family: Family | GraphFamily | None = None,
    *,
    degree: int | None = None,
    bits: int = 64,
    progress: Progress | None = None,
) -> LayerSize:
    r"""A layer's $D_K$ beside the bounds of C1, C2 and C3 at the layer's own numbers.

    The layer is verified on all pairs first. ``family``: one that holds the target's graph;
    ``None``: permutations if it is one, else digraphs with as many relations; ``degree`` where the
    family has one; ``"relabelings"`` are those of the target. ``bits`` $b$ a weight: weights must
    have at most $2^b$ values (64 for floats); the threshold counts 64 bits more. Scores stay as they
    are when $W_Q$ is scaled and $W_K$ by the inverse, or embeddings and weights so: norms are
    those of balanced weights on embeddings of norm at most 1.

    Raises ``RealizationError`` for a layer that is not verified, ``ArgumentError`` for one with more
    values than its bits allow. Source: [attention-bounds, C1, C2, C3].

    >>> from constructions import relation_target
    >>> target = relation_target(np.eye(3), [[0, 1], [1, 2], [2, 0]])
    >>> layer = AttentionLayer(w_q=[np.eye(3)], w_k=[np.roll(np.eye(3), 1, 0)], threshold=0.5)
    >>> found = layer_size(layer, target, bits=1)
    >>> found.key_dimension, found.graph_bound.value, found.efficiency.value.decimal(3)
    (3, 1, '0.144')
    """
    bits = exact_integer(bits, "bits", 1)
    certificate = verify(layer, target, progress=progress)
    if not certificate.holds:
        raise RealizationError(str(certificate))
    weights = (*layer.w_q, *layer.w_k, *layer.b_q, *layer.b_k)
    values = len(np.unique(np.concatenate([array.ravel() for array in weights])))
    if values > 1 << min(bits, 64):
        raise ArgumentError(
            "bits", bits, f"at least {(values - 1).bit_length()}, for {values} different values"
        )
    m, graphs = target.items, _family(target, family, degree)
    biases = bool(layer.b_q or layer.b_k)
    enough = least_heads(m, layer.d_model, family=graphs, biases=biases)
    assert certificate.margin is not None
    assert isinstance(enough.value, int)
    weight_norm, key_norm = _weight_norm(layer, target), _key_norm(layer, target)
    margin = Fraction(certificate.margin) or None
    return LayerSize(
        key_dimension=layer.key_dimension,
        bits=bits,
        family_bounds=key_dimension(
            m,
            layer.d_model,
            graphs,
            bits=bits,
            threshold_bits=THRESHOLD_BITS,
            heads=layer.heads if layer.heads >= enough.value else None,
            biases=biases,
            margin=margin,
            weight_norm=Fraction(weight_norm) if margin else None,
            key_norm=Fraction(key_norm) if margin else None,
        ),
        least_heads=enough,
        graph_bound=key_dimension_packing(m, margin, Fraction(key_norm), family=_this_graph(target))
        if margin
        else None,
        efficiency=storage_efficiency(
            m, layer.d_model + biases, layer.key_dimension, bits, family=graphs
        ),
        margin=certificate.margin,
        weight_norm=weight_norm,
        key_norm=key_norm,
        certificate=certificate,
    )


def _family(
    target: RelationTarget, family: Family | GraphFamily | None, degree: int | None
) -> GraphFamily:
    """The family, by name, from what the target says; the target's graph must be one of it."""
    m = target.items
    after, before = (np.bincount(side, minlength=m) for side in target.edges.T)
    if family is None:
        family = "permutation" if (after == 1).all() and (before == 1).all() else "digraph"
    relations = target.relations if family == "digraph" else None
    edges = map(tuple, target.edges.tolist()) if family == "relabelings" else None
    graphs = graph_family(m, family, relations, degree=degree, edges=edges)
    wanted = 1 if graphs.name in ("permutation", "functional") else graphs.degree
    holds = graphs.relations in (None, target.relations)
    if wanted is not None:
        high, low = int(after.max()), int(after.min())
        holds = high <= wanted and (low == wanted or graphs.name == "out-degree")
        if graphs.name in ("permutation", "regular"):
            holds = holds and bool((before == wanted).all())
    if not holds:
        raise ArgumentError("family", str(graphs), "one that holds the target's graph")
    return graphs


def _this_graph(target: RelationTarget) -> GraphFamily:
    """The target's graph as the packing bound sees it: by its number of distinct neighbourhoods."""
    pairs = set(map(tuple, target.edges.tolist()))
    return GraphFamily(
        "relabelings",
        target.items,
        relations=target.relations,
        columns=most_neighborhoods(target.items, pairs),
    )


def _weight_norm(layer: AttentionLayer, target: RelationTarget) -> float:
    reach = float(row_norms(np.abs(target.embeddings)).max())

    def norm(weights: FloatArray, bias: FloatArray | None) -> float:
        entries = np.append(
            np.abs(weights).ravel() * reach, np.abs(bias) if bias is not None else []
        )
        return float(row_norms(entries[None])[0]) * (1 + (len(entries) + 8) * 2.0**-52)

    products = [
        norm(layer.w_q[h], layer.b_q[h] if layer.b_q else None)
        * norm(layer.w_k[h], layer.b_k[h] if layer.b_k else None)
        for h in range(layer.heads)
    ]
    return _root(max(products), layer.d_model)


def _key_norm(layer: AttentionLayer, target: RelationTarget) -> float:
    products, slack = [], (layer.d_model + max(layer.key_dims) + 8) * 2.0**-52
    sizes = np.abs(target.embeddings)
    for head in range(layer.heads):
        sides = zip(
            layer.projections(head, target.embeddings, target.embeddings),
            (layer.w_q[head], layer.w_k[head]),
            (layer.b_q, layer.b_k),
            strict=True,
        )
        longest = []
        for computed, weights, biases in sides:
            # what rounding can add to an entry is a share of the sum of absolute values
            whole = sizes @ np.abs(weights) + (np.abs(biases[head]) if biases else 0.0)
            longest.append(
                (row_norms(np.abs(computed)) + slack * row_norms(whole)).max() * (1 + slack)
            )
        products.append(float(longest[0] * longest[1]))
    return _root(max(products), layer.d_model)


def _root(product: float, d_model: int) -> float:
    """The square root from above; positive, as an upper bound may be."""
    return max(float(np.sqrt(product)) * (1 + (d_model + 8) * 2.0**-50), 2.0**-500)
