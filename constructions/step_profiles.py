r"""H5: sums of biased nearest-neighbour functions, and the full-rank heads that realise them.

$f_b(X, y) = x_1$ if $\langle x_1 - x_2, y\rangle > b$, else $x_2$; $f_\psi = \sum_i a_if_{b_i}$ with
$b_i = \sqrt2\,\tau_i$ has $\langle f_\psi, w\rangle = \psi(\langle w, y\rangle)/\sqrt2$ for
$w = (x_1-x_2)/\sqrt2$. What low-rank heads must pay for it is :func:`bounds.separation`.
"""

from __future__ import annotations

import numpy as np
import sympy
from numpy.typing import ArrayLike

from bounds.arithmetic import Ball, exact_integer, exact_rational
from bounds.errors import ArgumentError
from bounds.profiles import StepProfile
from constructions.attention import AttentionLayer, FloatArray, checked_array


def step_profile_target(profile: StepProfile, points: ArrayLike, query: ArrayLike) -> FloatArray:
    r"""$f_\psi(X, y) = \sum_i a_if_{b_i}(X, y)$, $b_i = \sqrt2\,\tau_i$ (as float64).

    ``points``: (2, d), rows $x_1, x_2$; ``query``: (d,). Returns (d,). Source: [attention-bounds, H5].
    """
    rows = checked_array(points, "points", 2)
    asked = checked_array(query, "query", 1)
    if rows.shape != (2, len(asked)):
        raise ArgumentError("points", rows.shape, f"of shape (2, {len(asked)})")
    lead = float((rows[0] - rows[1]) @ asked)
    total: FloatArray = np.zeros(len(asked))
    for bias, jump in _biases(profile):
        total += jump * rows[0 if lead > bias else 1]
    return total


def step_profile_tokens(points: ArrayLike) -> FloatArray:
    """Tokens (2, d + 1) of two points (2, d): the coordinates, and a marker 1 on the first.

    A query token is ``(y, 0)``.
    """
    rows = checked_array(points, "points", 2)
    if len(rows) != 2:
        raise ArgumentError("points", rows.shape, "of shape (2, d)")
    return np.hstack([rows, [[1.0], [0.0]]])


def step_profile_layer(d: int, profile: StepProfile, scale: float | None = None) -> AttentionLayer:
    r"""One full-rank head with a score bias for each step: $f_\psi$ on tokens (x, marker).

    Head i adds $-b_i$ to the score of the marked token, so the hard head picks $x_1$ exactly when
    $\langle x_1, y\rangle - b_i > \langle x_2, y\rangle$; at equality it takes the first token, where
    $f_{b_i}$ takes $x_2$ (an event of probability 0). $H$ = number of steps, $d_k = d+1$; the values
    are $a_iI$. ``scale``: the logit scale of a soft layer, ``None`` for hard.
    Source: [attention-bounds, H5].

    >>> layer = step_profile_layer(2, StepProfile(["1/2"], [1]))
    >>> layer.attend([[1.0, 0.0, 0.0]], step_profile_tokens([[0.6, 0.8], [0.0, 1.0]]))
    array([[0., 1.]])
    """
    d = exact_integer(d, "d", 2)
    if scale is not None and exact_rational(scale, "scale") <= 0:
        raise ArgumentError("scale", scale, "positive, or None for hard heads")
    steps = _biases(profile)
    point = np.eye(d + 1, d)  # (x, marker) -> x
    drop_marker = np.diag([*np.ones(d), 0.0])
    score_bias = [np.append(np.zeros(d), -bias) for bias, _ in steps]
    return AttentionLayer(
        w_q=[drop_marker] * len(steps),  # query (y, 0) + bias (0, -b): q = (y, -b)
        b_q=score_bias,
        w_k=[np.eye(d + 1)] * len(steps),  # key (x_i, marker_i): score <y, x_i> - b marker_i
        w_v=[point] * len(steps),
        w_o=[jump * np.eye(d) for _, jump in steps],  # the head's output is a_i times its point
        kind="hard" if scale is None else "soft",
        logit_scale=1.0 if scale is None else float(scale),
        blocks=[("point", 0, d), ("marker", d, d + 1)],
        method="step profile",
    )


def _biases(profile: StepProfile) -> list[tuple[float, float]]:
    """$(\\sqrt2\\,\\tau_i, a_i)$ as the nearest floats."""
    return [
        (float(Ball.of(sympy.sqrt(2) * place)), float(Ball.of(jump)))
        for place, jump in zip(profile.thresholds, profile.jumps, strict=True)
    ]
