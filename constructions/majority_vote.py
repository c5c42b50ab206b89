r"""H7: two layers of rank-1 heads: the first takes a vote, the second reads it.

Tokens of $d+2$ coordinates: $(x_i; \pm1; 0)$ for the two points (the marker tells them apart) and
$(y; 0; 0)$ for the query. The error and the heads that suffice are in
:mod:`bounds.majority_vote`; the proof is in docs/H7-majority-vote.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from bounds.arithmetic import exact_integer
from bounds.errors import ArgumentError
from constructions.attention import AttentionLayer, BoolArray, FloatArray, checked_array


@dataclass(frozen=True, eq=False, kw_only=True)
class MajorityVote:
    r"""The two layers, run as self-attention over the three tokens.

    The residual stream is updated after the first layer, and the result is what the second layer
    gives the query token. No token attends to the query token (``mask``): the softmax of a query
    runs over the points, as in $\varphi(K^\top X, y)$.
    """

    vote: AttentionLayer
    selection: AttentionLayer

    @property
    def d(self) -> int:
        """The dimension of a point."""
        return self.vote.d_model - 2

    @property
    def mask(self) -> BoolArray:
        """Booleans of shape (3, 3): every token may attend to the two points only."""
        return np.array([[True, True, False]] * 3)

    def tokens(self, points: ArrayLike, query: ArrayLike) -> FloatArray:
        """The tokens $(x_1;1;0)$, $(x_2;-1;0)$, $(y;0;0)$ of ``points`` (2, d), ``query`` (d,)."""
        rows, asked = checked_array(points, "points", 2), checked_array(query, "query", 1)
        if rows.shape != (2, self.d):
            raise ArgumentError("points", rows.shape, f"of shape (2, {self.d})")
        if asked.shape != (self.d,):
            raise ArgumentError("query", asked.shape, f"of shape ({self.d},)")
        markers = [[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]
        return np.hstack([np.vstack([rows, asked]), markers])

    def votes(self, points: ArrayLike, query: ArrayLike) -> float:
        """Votes for $x_1$ minus votes for $x_2$: the query's vote coordinate."""
        tokens = self.tokens(points, query)
        return float(self.vote.attend(tokens, tokens, self.mask)[2, -1])

    def select(self, points: ArrayLike, query: ArrayLike) -> FloatArray:
        """The network's output, (d,): the point with the more votes; $x_1$ when they are equal.

        Soft layers give a mixture of the two points.
        """
        stream = self.tokens(points, query)
        stream = stream + self.vote.attend(stream, stream, self.mask)
        output: FloatArray = self.selection.attend(stream, stream, self.mask)[2]
        return output


def majority_vote(
    d: int,
    heads: int,
    *,
    seed: int,
    kind: Literal["hard", "soft"] = "hard",
    logit_scale: float = 1.0,
) -> MajorityVote:
    r"""A majority vote of $H$ rank-1 heads with independent keys $k_h$, uniform on the sphere.

    Hard heads: the output is $x_1$ when at least half of the signs
    $\langle k_h, x_1-x_2\rangle\langle k_h, y\rangle$ are positive (or zero), else $x_2$, and the
    expected error on $\mathcal D_2$ is :func:`bounds.majority_vote.majority_vote_error`. Soft
    heads of scale ``logit_scale`` tend to it as the scale grows. $d \ge 2$, $H \ge 1$; ``seed``
    of the keys. Source: [attention-bounds, H7].

    >>> network = majority_vote(2, 5, seed=1)
    >>> network.votes([[1.0, 0.0], [0.0, 1.0]], [0.6, 0.8])
    -1.0
    >>> network.select([[1.0, 0.0], [0.0, 1.0]], [0.6, 0.8])
    array([0., 1.])
    """
    d, heads = exact_integer(d, "d", 2), exact_integer(heads, "heads", 1)
    seed = exact_integer(seed, "seed", 0)
    keys = np.random.default_rng(seed).standard_normal((heads, d))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    read = np.hstack([keys, np.zeros((heads, 2))])[:, :, None]
    marker, ballot = np.eye(d + 2)[:, [d]], np.eye(d + 2)[:, [d + 1]]
    point = np.eye(d + 2, d)
    blocks = [("point", 0, d), ("marker", d, d + 1), ("vote", d + 1, d + 2)]
    return MajorityVote(
        vote=AttentionLayer(
            w_q=list(read),  # q = <k_h, y>
            w_k=list(read),  # k_i = <k_h, x_i>, so that S(y, i) = <k_h, x_i><k_h, y>
            w_v=[marker] * heads,  # the marker of the better point, +1 or -1,
            w_o=[ballot] * heads,  # is added to the vote: weight 1, so that the count is exact
            kind=kind,
            logit_scale=logit_scale,
            blocks=blocks,
            method="majority vote, first layer",
            seed=seed,
        ),
        selection=AttentionLayer(
            w_q=[ballot],  # q = votes for x_1 minus votes for x_2
            w_k=[marker],  # k_i = +1, -1, so that S(y, 1) - S(y, 2) = 2 votes
            w_v=[point],  # the output is the attended x_i itself,
            w_o=[np.eye(d)],  # which the first layer did not touch
            kind=kind,
            logit_scale=logit_scale,
            blocks=blocks,
            method="majority vote, second layer",
            seed=seed,
        ),
    )
