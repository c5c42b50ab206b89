r"""H1: nearest neighbour search, and the one full-rank head that does it.

The bounds are :func:`bounds.softmax_scale`, :func:`bounds.softmax_error` (this head) and
:func:`bounds.head_floor` (heads of small rank); the proof is in docs/H1-full-rank-head.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from bounds.arithmetic import exact_integer, exact_rational
from bounds.errors import ArgumentError
from constructions.attention import AttentionLayer, FloatArray, checked_array, scaled_scores


def nearest_neighbor(points: ArrayLike, query: ArrayLike) -> FloatArray:
    r"""The target $f(X, y) = x_{i^*}$, $i^* = \arg\max_i \langle x_i, y\rangle$.

    ``points``: (N, d), N >= 1, rows of unit norm for the nearest to be the one of largest score;
    ``query``: (d,) or (n, d). Returns (d,) or (n, d). Ties go to the smallest index. The scores
    are those that float64 gives, without overflow. Source: [AmselYehudaiBruna2024].

    >>> nearest_neighbor([[1.0, 0.0], [0.0, 1.0]], [0.6, 0.8])
    array([0., 1.])
    """
    rows = checked_array(points, "points", 2)
    asked = checked_array(query, "query", None)
    if asked.ndim not in (1, 2):
        raise ArgumentError("query", asked.shape, "an array with 1 or 2 axes")
    if 0 in rows.shape:
        raise ArgumentError("points", rows.shape, "at least one point of at least one coordinate")
    if 0 in asked.shape or asked.shape[-1] != rows.shape[1]:
        raise ArgumentError("query", asked.shape, f"of last axis {rows.shape[1]}, as the points")
    scores, _ = scaled_scores(np.atleast_2d(asked), rows)
    best: FloatArray = rows[scores.argmax(axis=1)].reshape(asked.shape)
    return best


def full_rank_nearest_neighbor(d: int, scale: float | None = None) -> AttentionLayer:
    r"""One head with $W_Q = W_K = W_V = W_O = I_d$: hard, or softmax at a given ``scale``.

    The score of $x_i$ is $\langle y, x_i\rangle$, so the hard head attends to $x_{i^*}$ and
    outputs it: $f$ exactly, for any number of points. The softmax head at scale $\beta$ puts at most
    $(N-1)/(N-1+e^{\beta\gamma})$ off $x_{i^*}$ when its score leads by $\gamma$;
    :func:`bounds.softmax_scale` gives a sufficient $\beta$. Source: [attention-bounds, H1].

    >>> full_rank_nearest_neighbor(2).attend([[0.6, 0.8]], [[1.0, 0.0], [0.0, 1.0]])
    array([[0., 1.]])
    """
    d = exact_integer(d, "d", 1)
    if scale is not None and exact_rational(scale, "scale") <= 0:
        raise ArgumentError("scale", scale, "positive, or None for a hard head")
    identity = np.eye(d)
    return AttentionLayer(
        w_q=[identity],  # q = y
        w_k=[identity],  # k_i = x_i, so that S(y, i) = <y, x_i>
        w_v=[identity],
        w_o=[identity],  # the output is the attended x_i itself
        kind="hard" if scale is None else "soft",
        logit_scale=1.0 if scale is None else float(scale),
        blocks=[("point", 0, d)],
        method="full-rank nearest neighbor",
    )
