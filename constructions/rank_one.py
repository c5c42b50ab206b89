r"""H6: a layer of rank-1 hard heads with scalar values that approximates the nearest neighbour.

Head $h$ scores $\langle k_h, x_i\rangle\langle q_h, y\rangle$, takes the better of the two points, and
adds $a_h$ times it. The error of the layer is $1 - 2b^\top a + a^\top Ca$ with the entries of
:mod:`bounds.rank_one`; :func:`verification.rank_one.rank_one_error` certifies it for the weights
as stored.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from bounds.arithmetic import exact_integer
from bounds.errors import ArgumentError, HypothesisError
from constructions.attention import AttentionLayer
from constructions.head_directions import search_directions, unit_rows
from constructions.head_weights import Floats, optimal_weights, uniform_weights

Weights = Literal["optimal", "uniform"]
Directions = Literal["optimized", "symmetric", "random"]


def rank_one_layer(
    d: int,
    heads: int,
    *,
    seed: int = 0,
    weights: Weights = "optimal",
    directions: Directions = "optimized",
) -> AttentionLayer:
    r"""$H$ rank-1 hard heads $x \mapsto a_h x_{sel}$ for the nearest neighbour of two points.

    ``directions``: ``"optimized"`` (orbits of a group of signed permutations, one head of each
    found by L-BFGS on the error with the best weights), ``"symmetric"`` (the same orbits, not
    optimised) or ``"random"`` (independent and uniform). ``weights``: ``"optimal"``
    ($a = C^{-1}b$, up to the tolerance of the solver) or ``"uniform"`` (the best common weight,
    with $q_h$ turned so that $\langle q_h, k_h\rangle \ge 0$). The same arguments give the same layer.

    Shapes: ``w_q[h]``, ``w_k[h]`` $(d, 1)$ of length 1 up to rounding, ``w_v[h]`` $= a_hI$,
    ``w_o[h]`` $= I$. $d \ge 2$, $H \ge 1$. The error of what is returned is
    :func:`verification.rank_one.rank_one_error`; an error that some $H$ heads reach is
    :func:`bounds.rank_one.rank_one_error_bound`. Source: [attention-bounds, H6].

    >>> rank_one_layer(4, 6, directions="random").key_dims
    (1, 1, 1, 1, 1, 1)
    """
    d = exact_integer(d, "d", 2)
    heads = exact_integer(heads, "heads", 1)
    seed = exact_integer(seed, "seed", 0)
    if weights not in ("optimal", "uniform"):
        raise ArgumentError("weights", weights, "'optimal' or 'uniform'")
    if directions not in ("optimized", "symmetric", "random"):
        raise ArgumentError("directions", directions, "'optimized', 'symmetric' or 'random'")
    rng = np.random.default_rng(seed)
    if directions == "random":
        q, k = unit_rows(rng.standard_normal((2, heads, d)))
        orbits, size = heads, 1
    else:
        iterations = None if directions == "optimized" else 0
        q, k, orbits, size = search_directions(d, heads, rng, iterations)
    if weights == "uniform":
        q = q * np.where(np.einsum("hi,hi->h", q, k) < 0, -1.0, 1.0)[:, None]
        a = uniform_weights(q, k)
    else:
        a = optimal_weights(q, k, orbits, size)
    # scores <k_h, x_i> <q_h, y>: the better point is x_1 exactly when <k_h, x_1 - x_2> <q_h, y> > 0
    identity = np.eye(d)
    return AttentionLayer(
        w_q=list(q[:, :, None]),
        w_k=list(k[:, :, None]),
        w_v=[weight * identity for weight in a],
        w_o=[identity] * heads,
        kind="hard",
        method=f"rank_one_layer(weights={weights!r}, directions={directions!r})",
        seed=seed,
    )


def head_weights(layer: AttentionLayer) -> tuple[Floats, Floats, Floats]:
    """(q, k, a) of shapes (H, d), (H, d), (H,) of a layer of rank-1 hard heads with values a_h I.

    A ``HypothesisError`` for any other layer; one of ``w_v[h]``, ``w_o[h]`` must be exactly I.
    """
    if layer.kind != "hard":
        raise HypothesisError("H6", "hard heads", f"the heads are {layer.kind}")
    if set(layer.key_dims) != {1}:
        raise HypothesisError("H6", "rank-1 heads", f"d_k is up to {max(layer.key_dims)}")
    if any(bias.any() for group in (layer.b_q, layer.b_k, layer.b_v) for bias in group):
        raise HypothesisError("H6", "heads without bias", "a bias is not zero")
    if not layer.w_v:
        raise HypothesisError("H6", "values a_h I", "the layer has no values")
    identity = np.eye(layer.d_model)
    a = np.empty(layer.heads)
    for head, (value, out) in enumerate(zip(layer.w_v, layer.w_o, strict=True)):
        scaled, other = (value, out) if np.array_equal(out, identity) else (out, value)
        if not (
            np.array_equal(other, identity) and np.array_equal(scaled, scaled[0, 0] * identity)
        ):
            raise HypothesisError(
                "H6", "values a_h I", f"W_V and W_O of head {head} are not a I and I"
            )
        a[head] = scaled[0, 0]
    return np.stack(layer.w_q)[:, :, 0], np.stack(layer.w_k)[:, :, 0], a
