r"""One softmax head with any given positive attention matrix, on independent tokens.

The bound is :func:`bounds.low_rank_bottleneck.bottleneck_dimension`; the proof is in
docs/related-results.md. In rows, as all code: $A = P^\top$ is row-stochastic.
"""

from __future__ import annotations

import numpy as np
from flint import arb, arb_mat
from numpy.typing import ArrayLike

from bounds.arithmetic import Ball, exact_integer, precision
from bounds.errors import ArgumentError, HypothesisError
from constructions.attention import AttentionLayer, FloatArray, checked_array

_SUM_TOLERANCE = 1e-9


def stochastic_head(
    attention: ArrayLike, embeddings: ArrayLike, key_dim: int | None = None
) -> AttentionLayer:
    r"""A softmax head of $d_k \ge n - 1$ with attention matrix $A$ at logit scale $1/\sqrt{d_k}$.

    ``attention``: (n, n), positive, rows summing to 1 within 1e-9 (only the ratios within a row
    are used). ``embeddings``: (n, d_model) of rank n. ``key_dim``: ``None`` for $\max(1, n-1)$.
    Exact in real arithmetic; :func:`attention_error` certifies what the float weights do.
    Source: [attention-bounds, R1]; with $d_k \ge n$ it is [Bhojanapalli2020, Theorem 1].

    >>> head = stochastic_head([[0.5, 0.5], [0.75, 0.25]], np.eye(2))
    >>> attention_error(head, np.eye(2), [[0.5, 0.5], [0.75, 0.25]]).upper_float() < 1e-15
    True
    """
    rows, tokens = _arguments(attention, embeddings)
    n = len(rows)
    least = max(1, n - 1)
    size = least if key_dim is None else exact_integer(key_dim, "key_dim", 1)
    if size < least:
        raise HypothesisError(
            "R1", f"a head dimension of at least n - 1 = {least}", f"it is {size}"
        )
    if np.linalg.matrix_rank(tokens) < n:
        raise HypothesisError("R1", f"embeddings of rank {n}", "their rank is smaller")
    basis = np.zeros((n, size))
    basis[:, : n - 1] = _orthogonal_to_ones(n)
    logits = np.log(rows)
    inverse = np.linalg.pinv(tokens)  # X X^+ = I_n: the rank is n
    return AttentionLayer(
        w_q=[np.sqrt(size) * inverse @ (logits @ basis)],  # q_i = sqrt(d_k) (row i of L) B
        w_k=[inverse @ basis],  # k_j = row j of B, so <q_i, k_j> = sqrt(d_k) (L B B^T)_ij, and
        logit_scale=float(
            1 / np.sqrt(size)
        ),  # L B B^T is L less the mean of each row: same softmax
        kind="soft",
        method="stochastic matrix",
    )


def attention_error(layer: AttentionLayer, embeddings: ArrayLike, attention: ArrayLike) -> Ball:
    r"""$\max_{ij}|\hat A_{ij} - A_{ij}|$ for a head's attention $\hat A$, enclosed.

    The weights, embeddings and target are taken at their exact values, the softmax is evaluated in
    256-bit balls. Source: [attention-bounds, R1].
    """
    rows, tokens = _arguments(attention, embeddings)
    if layer.heads != 1 or layer.kind != "soft" or layer.b_q or layer.b_k:
        raise ArgumentError("layer", layer.method, "one softmax head without biases")
    with precision(256):
        x = arb_mat(tokens.tolist())
        queries, keys = x * arb_mat(layer.w_q[0].tolist()), x * arb_mat(layer.w_k[0].tolist())
        scores = queries * keys.transpose() * arb(layer.logit_scale)
        worst = arb(0)
        for i, row in enumerate(rows.tolist()):
            weights = [scores[i, j].exp() for j in range(len(row))]
            total = sum(weights, arb(0))
            for weight, wanted in zip(weights, row, strict=True):
                worst = worst.max(abs(weight / total - arb(wanted)))
        return Ball.from_arb(worst)


def _orthogonal_to_ones(n: int) -> FloatArray:
    """The n - 1 Helmert columns: orthonormal, each summing to zero."""
    columns: FloatArray = np.zeros((n, n - 1))
    for k in range(1, n):
        columns[:k, k - 1] = 1 / np.sqrt(k * (k + 1))
        columns[k, k - 1] = -k / np.sqrt(k * (k + 1))
    return columns


def _arguments(attention: ArrayLike, embeddings: ArrayLike) -> tuple[FloatArray, FloatArray]:
    rows = checked_array(attention, "attention", 2)
    tokens = checked_array(embeddings, "embeddings", 2)
    if rows.size == 0 or rows.shape[0] != rows.shape[1]:
        raise ArgumentError("attention", rows.shape, "a square matrix")
    if rows.min() <= 0 or np.abs(rows.sum(axis=1) - 1).max() > _SUM_TOLERANCE:
        raise ArgumentError("attention", attention, "positive, its rows summing to 1")
    if len(tokens) != len(rows):
        raise ArgumentError("embeddings", tokens.shape, f"one row for each of {len(rows)} tokens")
    return rows, tokens
