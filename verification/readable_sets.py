"""C6: which sets of items a given readout names from the sum of their embeddings, whatever the graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from bounds.errors import ArgumentError
from constructions.attention import checked_array, checked_float
from constructions.recognition import rounding_factor
from verification.readout_outputs import (
    COLUMNS,
    cross_products,
    lost_to_underflow,
    upper_norms,
)


def readable_degree(
    embeddings: ArrayLike, readout: ArrayLike, threshold: object, deviation: object = 0
) -> int:
    r"""The largest $D$ such that *every* set of at most $D$ items is named from the sum of its embeddings.

    Certified for the given ``readout`` vectors, (m, d), and ``threshold`` $\theta$, a float64, even
    when outputs are off by as much as ``deviation``: $u_{jj}$ plus the $D-1$ most negative $u_{lj}$ is above
    $\theta$, the sum of the $D$ largest is not, for all $j$. 0 when single items fail. A graph of
    out-degree at most $D$ is then read in every context. Source: [attention-bounds, C6].

    >>> readable_degree(np.eye(3), np.eye(3), 0.5)
    3
    """
    x, vectors = checked_array(embeddings, "embeddings", 2), checked_array(readout, "readout", 2)
    if vectors.shape != x.shape or 0 in x.shape:
        raise ArgumentError("readout", vectors.shape, f"of shape {x.shape}, not empty")
    theta = checked_float(threshold, "threshold")
    off = checked_float(deviation, "deviation") * (1 + 2.0**-52)
    if off < 0:
        raise ArgumentError("deviation", deviation, "at least 0")
    m, d = x.shape
    sizes, lengths = upper_norms(x), upper_norms(vectors)
    degree: int = m
    counts = np.arange(1, m + 1)
    for start in range(0, m, COLUMNS):
        part = np.arange(start, min(start + COLUMNS, m))
        cross = cross_products(x, vectors[part])
        own = cross[part, part - start].copy()
        cross[part, part - start] = 0.0
        cross.sort(axis=0)
        # sums of k + 1 terms, the diagonal's 0 among them
        high = np.cumsum(np.maximum(cross[::-1], 0.0), axis=0)
        low = own + np.cumsum(np.vstack([np.zeros(len(part)), np.minimum(cross[:-1], 0.0)]), axis=0)
        slack = 2 * rounding_factor(d + m + 8) * np.outer(counts + 1, lengths[part]) * sizes.max()
        slack = slack + 2.0**-50 * abs(theta) + lost_to_underflow(d, m) + off
        holds = (low - slack > theta) & (high + slack <= theta)
        readable = np.logical_and.accumulate(holds.all(axis=1))
        degree = min(degree, int(readable.sum()))
    return degree
