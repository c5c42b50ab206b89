r"""C6: softmax layers whose output names the neighbours of each item.

A routing layer sends item $i$ the sum $g_i$ of its neighbours' embeddings. With $W_O = R$, one row
$r_j$ for each item, its output at $i$ is $\langle g_i, r_j\rangle$ for all $j$ at once, and $j$ is
named when that is above a threshold. When $R$ can do that, and how well, is docs/C6-identities.md;
the judge of the stored weights, routing errors included, is :mod:`verification.identities`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from bounds.errors import ArgumentError
from constructions.attention import (
    AttentionLayer,
    BoolArray,
    FloatArray,
    checked_array,
    checked_float,
)
from constructions.errors import RealizationError
from constructions.neighbor_sums import NeighborSums, decoding_range
from constructions.relations import IntArray, RelationTarget
from constructions.routing import RoutingLayer

Readout = Literal["tied", "dual", "fitted"]
Rule = Literal["threshold", "largest"]

_MARGINS = (0.25, 0.0625)  # fitted: present >= 1/2 + margin, absent <= 1/2 - margin
_COLUMNS = 512


@dataclass(frozen=True, eq=False)
class IdentityLayer:
    r"""A routing layer with one output for each item, and the threshold above which it is named.

    ``routing``: its layer has $W_O$ = ``readout``, (m, d_model), in every head. ``threshold``:
    $\theta$, inf for a readout by the largest output alone.
    """

    routing: RoutingLayer
    threshold: float

    @property
    def layer(self) -> AttentionLayer:
        """The softmax layer, on tokens of width d_model + 1, with outputs of width m."""
        return self.routing.layer

    @property
    def readout(self) -> FloatArray:
        """The readout vectors $r_j$, (m, d_model)."""
        return self.layer.w_o[0]

    def read(self, embeddings: ArrayLike) -> BoolArray:
        """Which items each item of a context names, (rows, m), in float64.

        ``embeddings``: (rows, d_model), the context. Where :func:`verification.verify_identities`
        says verified, this is the adjacency matrix, restricted to the context.
        """
        return self.routing.route(embeddings) > self.threshold

    def read_one(self, embeddings: ArrayLike) -> IntArray:
        """The item with the largest output at each item of a context, (rows,).

        The neighbour, where there is exactly one; anything, where there is none.
        """
        return np.asarray(self.routing.route(embeddings).argmax(axis=1), dtype=np.int64)


def dual_readout(embeddings: ArrayLike, items: ArrayLike | None = None) -> FloatArray:
    r"""Readout vectors with $\langle x_j, r_j\rangle = 1$ and the least cross-talk, (m, d_model).

    $r_j$ minimises $\sum_l\langle x_l, r_j\rangle^2$ over ``items`` $l$ (``None``: all), those that
    can be anyone's neighbour; others get 0. $r_j = M^+x_j/\langle x_j, M^+x_j\rangle$ with
    $M = \sum_lx_lx_l^\top$. Linearly independent embeddings have $\langle x_l, r_j\rangle = 0$ for
    $l \ne j$. Embeddings that are 0 get 0. Source: [attention-bounds, C6].

    >>> dual_readout([[1.0, 0.0], [1.0, 1.0]]).round(9) + 0.0
    array([[ 1., -1.],
           [ 0.,  1.]])
    """
    x = checked_array(embeddings, "embeddings", 2)
    chosen = np.arange(len(x)) if items is None else np.unique(np.asarray(items))
    if chosen.dtype.kind not in "iu" or not chosen.size or chosen[0] < 0 or chosen[-1] >= len(x):
        raise ArgumentError("items", items, f"items in [0, {len(x)}), at least one")
    whitening = _whitening(x[chosen])
    readout = np.zeros(x.shape)
    readout[chosen] = _dual(x[chosen] @ whitening) @ whitening.T
    return readout


def fitted_readout(target: RelationTarget) -> FloatArray:
    r"""Readout vectors for the neighbours in one graph and all its contexts, (m, d_model).

    Starts from :func:`dual_readout` of the items that are neighbours. Where that leaves item $j$ less
    than 1/4 around the threshold 1/2, $r_j$ is fitted (squared hinge, L-BFGS), so that every sum of
    a subset of a neighbour set is read; items that this leaves wrong get the vector of largest margin
    (linear programming). The problem is convex for each item, so in exact arithmetic vectors that
    read the graph would be found whenever there are any; what is found is judged as it is. Stops at
    an item that has none. Source: [attention-bounds, C6].
    """
    x, graph = target.embeddings, NeighborSums(target.edges, target.items)
    items = np.unique(target.edges[:, 1])
    whitening = _whitening(x[items])
    white = x @ whitening
    weights = np.zeros(white.shape)
    weights[items] = _dual(white[items])
    for margin in _MARGINS:
        low, high = decoding_range(graph, white, weights)
        weak = items[(low - high)[items] < 2 * margin * (low + high)[items]]
        for start in range(0, len(weak), _COLUMNS):
            part = weak[start : start + _COLUMNS]
            solve: Any = minimize  # scipy's stubs reject this valid call
            found = solve(
                graph.loss,
                weights[part].ravel(),
                args=(white, part, margin),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": 500, "maxfun": 1000, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-9},
            )
            weights[part] = found.x.reshape(len(part), -1)
    low, high = decoding_range(graph, white, weights)
    for j in items[low[items] <= high[items]].tolist():
        vector, margin = graph.best_vector(white, j)
        if margin <= 0:
            break
        weights[j] = vector
    return weights @ whitening.T


def _whitening(rows: FloatArray) -> FloatArray:
    """(d, rank), so that the rows times it have orthonormal columns."""
    _, values, right = np.linalg.svd(rows, full_matrices=False)
    rank = int((values > values[0] * max(rows.shape) * 2.0**-52).sum())
    return np.asarray(right[:rank].T / values[:rank])


def _dual(white: FloatArray) -> FloatArray:
    """The rows of an isometry over their leverage, their squared norm."""
    leverage = (white**2).sum(axis=1, keepdims=True)
    return np.asarray(white / np.where(leverage > 0, leverage, 1.0))


def identity_layer(
    routing: RoutingLayer,
    target: RelationTarget,
    *,
    readout: Readout | ArrayLike = "dual",
    rule: Rule = "threshold",
    threshold: float | None = None,
) -> IdentityLayer:
    r"""The routing heads with a readout as their $W_O$: the output at $i$ names the neighbours of $i$.

    ``readout``: ``"tied"``, the embeddings themselves, as in a language model's unembedding;
    ``"dual"``, :func:`dual_readout` of the items that are neighbours; ``"fitted"``,
    :func:`fitted_readout`; or vectors, (m, d_model). Dual and fitted vectors are scaled so that
    the threshold 1/2 lies in the middle for each item. ``threshold``: for tied or given vectors;
    ``None``: the middle. ``rule="largest"``: vectors as they are and no threshold, for items with one
    neighbour, who is named by the largest output. A share of ``routing`` is dropped: it is a factor of
    the readout.

    Raises ``RealizationError`` when, by the threshold, exact sums are not read right for every subset
    of every neighbour set, in float64. The layer that is returned is not judged with its routing
    errors: :func:`verification.verify_identities` and, for the largest output,
    :func:`verification.verify_single_identities` do. Source: [attention-bounds, C6].
    """
    x, old = target.embeddings, routing.layer
    if old.d_model != x.shape[1] + 1:
        raise ArgumentError("embeddings", x.shape, f"of width {old.d_model - 1}")
    if rule not in ("threshold", "largest"):
        raise ArgumentError("rule", rule, "'threshold' or 'largest'")
    scaled = isinstance(readout, str) and readout != "tied"
    if threshold is not None and (scaled or rule == "largest"):
        raise ArgumentError("threshold", threshold, "absent, but for tied or given vectors")
    vectors, theta = _vectors(target, readout), np.inf
    if rule == "threshold":
        vectors, theta = _with_threshold(target, vectors, scaled, threshold)
    layer = AttentionLayer(
        w_q=old.w_q,
        w_k=old.w_k,
        b_q=old.b_q,
        b_k=old.b_k,
        # the sum of neighbours' embeddings, times R^T: coordinate j is <g, r_j>
        w_v=[np.eye(old.d_model, old.d_model - 1)] * old.heads,
        w_o=[vectors] * old.heads,
        kind="soft",
        logit_scale=old.logit_scale,
        blocks=old.blocks,
        method=f"{readout if isinstance(readout, str) else 'given'} readout of ({old.method})",
        seed=old.seed,
    )
    heads = RoutingLayer(layer, routing.edge_heads, routing.margin, routing.null_score)
    return IdentityLayer(heads, theta)


def _with_threshold(
    target: RelationTarget, vectors: FloatArray, scaled: bool, threshold: float | None
) -> tuple[FloatArray, float]:
    """The vectors, scaled item by item if that is asked for, and the threshold in the middle."""
    graph = NeighborSums(target.edges, target.items)
    low, high = decoding_range(graph, target.embeddings, vectors)
    if scaled:
        worst = int((low - high).argmin())
        _require_gap(target, low, high, worst, worst, None)
        # alpha_j low_j and alpha_j high_j have their middle at 1/2
        return vectors / np.where(np.isinf(low), 1.0, low + high)[:, None], 0.5
    theta = float((low.min() + high.max()) / 2)
    if threshold is not None:
        theta = checked_float(threshold, "threshold")
    _require_gap(target, low, high, int(low.argmin()), int(high.argmax()), theta)
    return vectors, theta


def _vectors(target: RelationTarget, readout: Readout | ArrayLike) -> FloatArray:
    """The readout that was asked for, (m, d_model)."""
    x = target.embeddings
    if not isinstance(readout, str):
        vectors = checked_array(readout, "readout", 2)
        if vectors.shape != x.shape:
            raise ArgumentError("readout", vectors.shape, f"of shape {x.shape}")
        return vectors
    if readout == "tied":
        return x
    if readout == "dual":
        return dual_readout(x, np.unique(target.edges[:, 1]))
    if readout == "fitted":
        return fitted_readout(target)
    raise ArgumentError("readout", readout, "'tied', 'dual', 'fitted', or vectors")


def _require_gap(
    target: RelationTarget,
    low: FloatArray,
    high: FloatArray,
    one: int,
    other: int,
    threshold: float | None,
) -> None:
    """Refuse a readout whose least output at a neighbour is not above the largest at another item."""
    least, largest = float(low[one]), float(high[other])
    if least > largest and (threshold is None or least > threshold >= largest):
        return
    where = "" if threshold is None else f" by the threshold {threshold:.4g}"
    raise RealizationError(
        f"the readout does not tell neighbors from other items{where}: the output for "
        f"{target.name(one)} is as low as {least:.4g} in rows where it is a neighbor, and the one "
        f"for {target.name(other)} as high as {largest:.4g} in rows where it is none; try "
        + (
            "a threshold between the two"
            if least > largest
            else "readout='fitted', or embeddings of more dimensions"
        )
    )
