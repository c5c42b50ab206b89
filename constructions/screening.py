"""Scores in float32, twice as fast as float64, with a rounding bound: what is certainly low."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from constructions.attention import FloatArray

_TINY = 2.0**-1020


class Screen:
    r"""Scores of one head in float32, of queries and keys scaled by powers of two to size 1.

    In units of $2^{-e}$, with float64 queries $q$ and keys $k$, and $u = 2^{-24}$: two roundings
    to float32 and the sum of $d_k$ products change $\langle q_i,k_j\rangle$ by at most
    $\gamma_{d_k+2}\|q_i\|\max_j\|k_j\|$, and by at most $4d_k2^{-126}$ through underflow, even
    where subnormal numbers are flushed. ``error`` adds that, twice, to the float64 bound.
    """

    def __init__(self, query: FloatArray, key: FloatArray, error: FloatArray) -> None:
        d_k = query.shape[1]
        sizes, tallest = row_norms(np.abs(query)), row_norms(np.abs(key)).max()
        scaled = []
        self.exponent = 0
        for array in (query, key):
            exponent = int(np.frexp(np.abs(array).max())[1])
            scaled.append(np.ldexp(array, -exponent).astype(np.float32))
            self.exponent += exponent
        self.query, self.key = scaled
        gamma = (d_k + 2) * 2.0**-24 / (1 - (d_k + 2) * 2.0**-24) if d_k < 2**20 else np.inf
        lost = np.ldexp(4 * d_k * 2.0**-126, self.exponent)
        self.error = error + 2 * (gamma * (sizes * tallest) + lost) + _TINY

    def limits(self, tau: float, level: float, start: int, stop: int) -> NDArray[np.float32]:
        r"""Scores at most this, a row, are certainly at most $\tau$ - ``level``; rounded down."""
        error = self.error[start:stop]
        limit = tau - level - error - (abs(tau) + level + error) * 2.0**-50
        low = np.ldexp(limit, -self.exponent).astype(np.float32)
        return np.asarray(np.nextafter(low, np.float32(-np.inf)), dtype=np.float32)


def row_norms(rows: FloatArray) -> FloatArray:
    """Norms of the rows; scaled by powers of two, so that no square overflows or underflows."""
    _, exponent = np.frexp(rows.max(axis=1))
    scaled = np.ldexp(rows, -exponent[:, None])
    norms: FloatArray = np.ldexp(np.sqrt((scaled**2).sum(axis=1)), exponent)
    return norms
