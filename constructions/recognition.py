r"""Which pairs a layer recognises, decided with certainty: floats, their rounding bound, then integers.

Scores are computed in float64 by blocks of rows. For $\hat S$ computed from float64 weights and
embeddings, $|\hat S_h(i,j) - S_h(i,j)| \le e_h(i)$ with
$e_h(i) = 2(\gamma_{d_k} + 3\gamma_{d+1})\,\|a_i\|\max_j\|c_j\|$ plus an underflow term, where
$a_i = |x_i||W_Q| + |b_Q|$, $c_j = |x_j||W_K| + |b_K|$, $\gamma_n = nu/(1-nu)$, $u = 2^{-53}$: any
order of summation, with or without fused multiply-add [Higham2002, Section 3.1]. The factor 2
covers the rounding of the bound itself. A pair whose largest score is within the bound of $\tau$ is
decided by exact integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from flint import fmpz_mat

from bounds.errors import ArgumentError
from constructions.attention import AttentionLayer, FloatArray

if TYPE_CHECKING:
    from constructions.relations import Progress, RelationTarget

_UNIT = 2.0**-53
_BLOCK_ENTRIES = 1 << 24
_EXACT_LIMIT = 20_000


@dataclass(frozen=True)
class RecognitionReport:
    """What the check of all pairs found.

    ``wrong``: a pair on which the layer certainly errs, ``missing`` whether that pair is a
    relation; ``wrong_score``: its largest score, exactly. ``undecided``: pairs left open, with
    ``reason``. ``margin``: no decided pair's largest score is nearer to the threshold (a lower
    bound; exact pairs included); ``rounding``: the largest rounding bound used; ``exact_pairs``:
    how many pairs needed integers; ``pairs``: how many were checked.
    """

    pairs: int
    wrong: tuple[int, int] | None
    missing: bool
    wrong_score: Fraction | None
    undecided: int
    reason: str
    margin: float
    rounding: float
    exact_pairs: int


def recognition_report(
    layer: AttentionLayer,
    target: RelationTarget,
    *,
    block_entries: int = _BLOCK_ENTRIES,
    progress: Progress | None = None,
) -> RecognitionReport:
    """Check a layer's recognised pairs against a target on all $m^2$ pairs.

    Stops at the first block with a pair that is certainly wrong. Memory: about 20 bytes times
    ``block_entries`` beside the projections of all items.
    """
    if layer.threshold is None:
        raise ArgumentError("layer", layer.method, "one with a threshold, to recognise pairs")
    if layer.d_model != target.embeddings.shape[1]:
        raise ArgumentError(
            "embeddings", target.embeddings.shape, f"of width {layer.d_model}, the layer's d_model"
        )
    tau, m = layer.threshold, target.items
    with np.errstate(over="ignore", invalid="ignore"):
        heads = [_prepared(layer, head, target.embeddings) for head in range(layer.heads)]
    if not all(np.isfinite(array).all() for head in heads for array in head):
        return RecognitionReport(
            0, None, False, None, m * m, "the scores overflow float64", 0.0, np.inf, 0
        )
    exact = _ExactScores(layer, target.embeddings)
    margin, rounding, exact_pairs, undecided = np.inf, 0.0, 0, 0
    for start, stop in _blocks(m, block_entries):
        best, error = _best_scores(heads, start, stop)
        wanted = target.rows(start, stop)
        distance = np.where(wanted, best - tau, tau - best)  # negative: on the wrong side
        certain = np.abs(distance) > error[:, None]
        errors = np.argwhere(certain & (distance < 0))
        if errors.size:
            i, j = int(errors[0, 0]), int(errors[0, 1])
            score = exact.best(start + i, j)
            return RecognitionReport(
                stop * m, (start + i, j), bool(wanted[i, j]), score, undecided, "", 0.0,
                max(rounding, float(error.max())), exact_pairs,
            )  # fmt: skip
        rounding = max(rounding, float(error.max()))
        margin = min(margin, float(np.where(certain, distance - error[:, None], np.inf).min()))
        for i, j in np.argwhere(~certain).tolist():
            if exact_pairs >= _EXACT_LIMIT:
                undecided += 1
                continue
            exact_pairs += 1
            score = exact.best(start + i, j)
            if (score > Fraction(tau)) != bool(wanted[i, j]):
                return RecognitionReport(
                    stop * m, (start + i, j), bool(wanted[i, j]), score, undecided, "", 0.0,
                    rounding, exact_pairs,
                )  # fmt: skip
            gap = abs(score - Fraction(tau))
            margin = min(margin, float(gap) * (1 - 2.0**-50))
        if progress is not None:
            progress(stop, m)
    reason = (
        f"more than {_EXACT_LIMIT} pairs are within rounding of the threshold" if undecided else ""
    )
    return RecognitionReport(
        m * m, None, False, None, undecided, reason, margin, rounding, exact_pairs
    )


def _prepared(
    layer: AttentionLayer, head: int, embeddings: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Queries, keys and the rounding bound of each query's scores, for one head."""
    query, key = layer.projections(head, embeddings, embeddings)
    size = np.abs(embeddings)
    query_size = size @ np.abs(layer.w_q[head]) + (np.abs(layer.b_q[head]) if layer.b_q else 0.0)
    key_size = size @ np.abs(layer.w_k[head]) + (np.abs(layer.b_k[head]) if layer.b_k else 0.0)
    d, d_k = layer.w_q[head].shape
    factor = 2 * (_gamma(d_k) + 3 * _gamma(d + 1))
    tallest = np.sqrt((key_size**2).sum(axis=1)).max()
    error = factor * np.sqrt((query_size**2).sum(axis=1)) * tallest
    return query, np.ascontiguousarray(key.T), error + 8.0 * (d + d_k) ** 2 * 2.0**-1022


def _best_scores(
    heads: list[tuple[FloatArray, FloatArray, FloatArray]], start: int, stop: int
) -> tuple[FloatArray, FloatArray]:
    """The largest score over heads, (rows, m), and its rounding bound a row, (rows,)."""
    best: FloatArray | None = None
    for query, key, _ in heads:
        scores = query[start:stop] @ key
        best = scores if best is None else np.maximum(best, scores, out=best)
    assert best is not None
    return best, np.max([error[start:stop] for _, _, error in heads], axis=0)


def _blocks(m: int, entries: int) -> Iterator[tuple[int, int]]:
    rows = max(1, entries // m)
    for start in range(0, m, rows):
        yield start, min(m, start + rows)


def _gamma(n: int) -> float:
    return n * _UNIT / (1 - n * _UNIT)


class _ExactScores:
    """Scores of single pairs as exact rationals."""

    def __init__(self, layer: AttentionLayer, embeddings: FloatArray) -> None:
        self.layer, self.embeddings = layer, embeddings
        self._vectors: dict[tuple[int, int, str], tuple[fmpz_mat, int]] = {}

    def best(self, i: int, j: int) -> Fraction:
        """$\\max_h S_h(i,j)$, exactly."""
        return max(self._score(head, i, j) for head in range(self.layer.heads))

    def _score(self, head: int, i: int, j: int) -> Fraction:
        query, query_exponent = self._vector(head, i, "q")
        key, key_exponent = self._vector(head, j, "k")
        product = int((query * key.transpose())[0, 0])
        return Fraction(product) * Fraction(2) ** (query_exponent + key_exponent)

    def _vector(self, head: int, item: int, side: str) -> tuple[fmpz_mat, int]:
        place = (head, item, side)
        if place not in self._vectors:
            weights, biases = getattr(self.layer, f"w_{side}"), getattr(self.layer, f"b_{side}")
            matrix, row = weights[head], self.embeddings[item]
            if biases:  # a bias is the weight of a constant coordinate 1
                matrix = np.vstack([matrix, biases[head]])
                row = np.append(row, 1.0)
            left, left_exponent = _integer_matrix(row[None, :])
            right, right_exponent = _integer_matrix(matrix)
            self._vectors[place] = left * right, left_exponent + right_exponent
        return self._vectors[place]


def _integer_matrix(array: FloatArray) -> tuple[fmpz_mat, int]:
    """Integers $A$ and an exponent with ``array`` $= A\\,2^e$, exactly."""
    mantissa, exponent = np.frexp(array)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    exponent = np.where(whole == 0, 0, exponent - 53)
    low = int(exponent[whole != 0].min()) if (whole != 0).any() else 0
    shift = np.where(whole == 0, 0, exponent - low)
    entries = [int(w) << int(s) for w, s in zip(whole.ravel(), shift.ravel(), strict=True)]
    return fmpz_mat(array.shape[0], array.shape[1], entries), low
