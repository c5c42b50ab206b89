r"""Which pairs a layer recognises, decided with certainty: floats, their rounding bound, then integers.

Scores are computed in float64 by blocks of rows. For $\hat S$ computed from float64 weights and
embeddings, $|\hat S_h(i,j) - S_h(i,j)| \le e_h(i)$ with
$e_h(i) = 2(\gamma_{d_k} + 3\gamma_{d+1})\,\|a_i\|\max_j\|c_j\|
+ 4\sqrt{d_k}\,\eta(\|a_i\| + \max_j\|c_j\|) + 4 d_k\eta$, where
$a_i = |x_i||W_Q| + |b_Q|$, $c_j = |x_j||W_K| + |b_K|$, $\gamma_n = nu/(1-nu)$, $u = 2^{-53}$: any
order of summation, with or without fused multiply-add [Higham2002, Section 3.1].
$\eta = 4(d+1)2^{-1022}$ bounds what underflow loses in an entry of a query, a key, $a_i$ or $c_j$,
even where subnormal numbers are flushed to zero. The factors 2 and 4 cover the rounding of the
bound itself. A pair whose largest score is within the bound of $\tau$ is decided by exact integer
arithmetic.

For 1024 items or more, float32 scores go first, with a rounding bound of their own
(:mod:`constructions.screening`): a pair that is no relation and is certainly farther below $\tau$ than
the nearest pair needs no more. Relations, and pairs that score high, are judged as above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from flint import fmpz_mat
from numpy.typing import NDArray

from bounds.arithmetic import Ball
from bounds.errors import ArgumentError
from constructions.attention import AttentionLayer, BoolArray, FloatArray
from constructions.screening import Screen, row_norms

if TYPE_CHECKING:
    from constructions.relations import Progress, RelationTarget

_UNIT = 2.0**-53
_BLOCK_ENTRIES = 1 << 24
_EXACT_LIMIT = 20_000
_TILE = (512, 4096)
_SCREENED_ITEMS = 1024
_LARGEST = float(np.finfo(np.float64).max)

IntArray = NDArray[np.int64]
_Head = tuple[FloatArray, FloatArray, FloatArray]


@dataclass(frozen=True)
class RecognitionReport:
    """What the check of all pairs found.

    ``wrong``: a pair on which the layer certainly errs, ``missing`` whether that pair is a
    relation; ``wrong_score``: its largest score, exactly. ``undecided``: pairs left open, with
    ``reason``. ``margin``: no decided pair's largest score is nearer to the threshold (a lower
    bound; exact pairs included); ``rounding``: the largest float64 rounding bound (what float32
    decides is farther away than the margin by its own, larger bound); ``exact_pairs``: how many
    pairs needed integers; ``pairs``: how many were checked.
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

    Stops at the first pair that is certainly wrong. Memory: about 20 bytes times ``block_entries``
    or $2^{21}$, whichever is less, beside the projections of all items.
    """
    if layer.threshold is None:
        raise ArgumentError("layer", layer.method, "one with a threshold, to recognise pairs")
    if layer.d_model != target.embeddings.shape[1]:
        raise ArgumentError(
            "embeddings", target.embeddings.shape, f"of width {layer.d_model}, the layer's d_model"
        )
    m = target.items
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        sizes = np.abs(target.embeddings)
        heads = [_prepared(layer, head, target.embeddings, sizes) for head in range(layer.heads)]
        del sizes
        screens = [Screen(*head) for head in heads] if m >= _SCREENED_ITEMS else []
    if not all(np.isfinite(array).all() for head in heads for array in head):
        return RecognitionReport(
            0, None, False, None, m * m, "the scores overflow float64", 0.0, np.inf, 0
        )
    tally = _Tally(layer.threshold, _ExactScores(layer, target.embeddings))
    rounding = max(float(error.max()) for _, _, error in heads)
    buffer = np.empty(0, dtype=np.float32)
    for start, stop in _blocks(m, block_entries):
        for tile in _tiles(start, stop, m):
            if screens:
                if not buffer.size:
                    buffer = np.empty(tile.rows * tile.columns, dtype=np.float32)
                if not _judge_screened(heads, screens, tile, target, tally, buffer):
                    screens = []  # scores tie: screening does not pay
            if not screens:
                _judge_tile(heads, tile, target, tally)
            if tally.wrong is not None:
                return RecognitionReport(
                    stop * m, tally.wrong, tally.missing, tally.wrong_score, tally.undecided, "",
                    0.0, rounding, tally.exact_pairs,
                )  # fmt: skip
        if progress is not None:
            progress(stop, m)
    reason = (
        f"more than {_EXACT_LIMIT} pairs are within rounding of the threshold"
        if tally.undecided
        else ""
    )
    return RecognitionReport(
        m * m, None, False, None, tally.undecided, reason, tally.margin, rounding, tally.exact_pairs
    )


def projections_with_error(
    layer: AttentionLayer, head: int, tokens: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Queries and keys of one head, and a rounding bound for the scores of each query.

    Shapes (N, d_k), (N, d_k) and (N,). Raises ``OverflowError`` where float64 does not hold them.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        query, key, error = _prepared(layer, head, tokens, np.abs(tokens))
    if not all(np.isfinite(array).all() for array in (query, key, error)):
        raise OverflowError("the scores overflow float64: scale the tokens down")
    return query, key, error


class _Tally:
    """What the judged pairs came to."""

    def __init__(self, tau: float, exact: _ExactScores) -> None:
        self.tau, self.exact = tau, exact
        self.margin, self.exact_pairs, self.undecided = np.inf, 0, 0
        self.wrong: tuple[int, int] | None = None
        self.wrong_score: Fraction | None = None
        self.missing = False

    def judge(
        self,
        best: FloatArray,
        error: FloatArray,
        wanted: BoolArray,
        place: Callable[[int], tuple[int, int]],
    ) -> None:
        """Judge pairs by their largest scores, rounding bounds and targets; stop at a wrong one.

        Arrays of one shape, or that broadcast to it; ``place`` turns a flat position into (i, j).
        """
        with np.errstate(over="ignore"):
            distance = np.where(wanted, best - self.tau, self.tau - best)  # negative: wrong side
        certain = np.abs(distance) > error
        errors = np.flatnonzero(certain & (distance < 0))
        if errors.size:
            self._settle(*place(int(errors[0])), bool(wanted.flat[errors[0]]))
            assert self.wrong is not None
            return
        # both differences were rounded, and the first may have overflowed
        gaps = (np.minimum(distance, _LARGEST) - error) * (1 - 2.0**-50)
        self.margin = min(self.margin, float(np.where(certain, gaps, np.inf).min(initial=np.inf)))
        for position in np.flatnonzero(~certain).tolist():
            if self.exact_pairs >= _EXACT_LIMIT:
                self.undecided += 1
                continue
            self.exact_pairs += 1
            self._settle(*place(position), bool(wanted.flat[position]))
            if self.wrong is not None:
                return

    def _settle(self, i: int, j: int, wanted: bool) -> None:
        score = self.exact.best(i, j)
        if (score > Fraction(self.tau)) != wanted:
            self.wrong, self.wrong_score, self.missing = (i, j), score, wanted
        else:
            self.margin = min(self.margin, Ball.of(abs(score - Fraction(self.tau))).lower_float())


@dataclass(frozen=True)
class _Tile:
    """Pairs of the items ``start`` to ``stop`` with the items ``left`` to ``right``."""

    start: int
    stop: int
    left: int
    right: int

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def columns(self) -> int:
        return self.right - self.left

    def place(self, position: int) -> tuple[int, int]:
        """The pair at a flat position of the tile."""
        row, column = divmod(position, self.columns)
        return self.start + row, self.left + column


def _judge_tile(heads: list[_Head], tile: _Tile, target: RelationTarget, tally: _Tally) -> None:
    """Judge all pairs of a tile in float64, and in integers where that is too close."""
    best, error = _best_scores(heads, tile.start, tile.stop, tile.left, tile.right)
    wanted = np.zeros(best.shape, dtype=bool)
    i, j = _tile_edges(tile, target)
    wanted[i - tile.start, j - tile.left] = True
    tally.judge(best, error[:, None], wanted, tile.place)


def _judge_screened(
    heads: list[_Head],
    screens: list[Screen],
    tile: _Tile,
    target: RelationTarget,
    tally: _Tally,
    buffer: NDArray[np.float32],
) -> bool:
    r"""Judge all pairs of a tile; only relations and pairs that score high in float64.

    A pair that is no relation needs $\max_hS_h(i,j) \le \tau$. Where every head's float32 score is
    certainly below $\tau$ - ``level``, it is right, by more than ``level``; ``level`` is as large as
    the margin found so far, or that of the tile. False, with nothing judged, when too many pairs
    score near that level.
    """
    i, j = _tile_edges(tile, target)
    everything = buffer[: tile.rows * tile.columns].reshape(tile.rows, tile.columns)
    best, error = _pair_scores(heads, i, j)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        known = float(np.min(best - tally.tau, initial=min(tally.margin, _LARGEST)))
        level, found = max(known, 0.0), []
        for screen in screens:
            queries, keys = screen.query[tile.start : tile.stop], screen.key[tile.left : tile.right]
            np.matmul(queries, keys.T, out=everything)
            everything[i - tile.start, j - tile.left] = -np.inf
            top = everything.max(axis=1)
            gaps = tally.tau - np.ldexp(top.astype(np.float64), screen.exponent)
            nearest = float((gaps + 2 * screen.error[tile.start : tile.stop]).min())
            level = max(min(level, nearest), 0.0)
            limit = screen.limits(tally.tau, level, tile.start, tile.stop)
            rows = np.flatnonzero(top > limit)
            row, column = np.nonzero(everything[rows] > limit[rows, None])
            found.append(rows[row] * tile.columns + column)
            if sum(map(len, found)) > max(1000, everything.size >> 7):
                return False
    tally.margin = min(tally.margin, level)
    tally.judge(best, error, np.ones(len(i), dtype=bool), lambda e: (int(i[e]), int(j[e])))
    near = np.unique(np.concatenate(found))
    row, column = near // tile.columns + tile.start, near % tile.columns + tile.left
    if tally.wrong is None and near.size:
        best, error = _pair_scores(heads, row, column)
        tally.judge(
            best, error, np.zeros(len(near), dtype=bool), lambda e: (int(row[e]), int(column[e]))
        )
    return True


def _tile_edges(tile: _Tile, target: RelationTarget) -> tuple[IntArray, IntArray]:
    """Sources and targets of the relations in a tile."""
    low, high = np.searchsorted(target.edges[:, 0], [tile.start, tile.stop])
    edges = target.edges[low:high]
    inside = edges[(edges[:, 1] >= tile.left) & (edges[:, 1] < tile.right)]
    return inside[:, 0], inside[:, 1]


def _prepared(layer: AttentionLayer, head: int, embeddings: FloatArray, sizes: FloatArray) -> _Head:
    """Queries, keys and the rounding bound of each query's scores, for one head.

    ``sizes``: the absolute values of the embeddings, (N, d_model).
    """
    query, key = layer.projections(head, embeddings, embeddings)
    query_size = sizes @ np.abs(layer.w_q[head]) + (np.abs(layer.b_q[head]) if layer.b_q else 0.0)
    key_size = sizes @ np.abs(layer.w_k[head]) + (np.abs(layer.b_k[head]) if layer.b_k else 0.0)
    d, d_k = layer.w_q[head].shape
    factor = 2 * (rounding_factor(d_k) + 3 * rounding_factor(d + 1))
    lost = 4.0 * (d + 1) * 2.0**-1022
    norms, tallest = row_norms(query_size), row_norms(key_size).max()
    # norms * tallest bounds every partial sum of a score: if it is finite, no score overflows
    error = factor * (4.0 * norms * tallest) / 4.0
    error = error + 4.0 * np.sqrt(d_k) * lost * (norms + tallest) + 4.0 * d_k * lost
    return query, key, error


def _best_scores(
    heads: list[_Head], start: int, stop: int, left: int = 0, right: int | None = None
) -> tuple[FloatArray, FloatArray]:
    """The largest score over heads, (rows, columns), and its rounding bound a row, (rows,)."""
    best: FloatArray | None = None
    for query, key, _ in heads:
        scores = query[start:stop] @ key[left:right].T
        best = scores if best is None else np.maximum(best, scores, out=best)
    assert best is not None
    return best, np.max([error[start:stop] for _, _, error in heads], axis=0)


def _pair_scores(
    heads: list[_Head], sources: IntArray, targets: IntArray
) -> tuple[FloatArray, FloatArray]:
    """The largest score over heads of so many pairs, and its rounding bound, both (pairs,)."""
    best = np.full(len(sources), -np.inf)
    for query, key, _ in heads:
        step = max(1, _TILE[0] * _TILE[1] // (4 * query.shape[1]))
        for low in range(0, len(sources), step):
            i, j = sources[low : low + step], targets[low : low + step]
            scores = np.einsum("ek,ek->e", query[i], key[j])
            best[low : low + step] = np.maximum(best[low : low + step], scores)
    return best, np.max([error[sources] for _, _, error in heads], axis=0)


def _blocks(m: int, entries: int) -> Iterator[tuple[int, int]]:
    rows = max(1, entries // m)
    for start in range(0, m, rows):
        yield start, min(m, start + rows)


def _tiles(start: int, stop: int, m: int) -> Iterator[_Tile]:
    """Tiles of a block of rows, small enough for the processor's cache."""
    rows, columns = _TILE
    for top in range(start, stop, rows):
        for left in range(0, m, columns):
            yield _Tile(top, min(stop, top + rows), left, min(m, left + columns))


def rounding_factor(n: int) -> float:
    r"""$\gamma_n = nu/(1-nu)$ of float64: n roundings, one after the other [Higham2002]."""
    return n * _UNIT / (1 - n * _UNIT)


class _ExactScores:
    """Scores of single pairs as exact rationals."""

    def __init__(self, layer: AttentionLayer, embeddings: FloatArray) -> None:
        self.layer, self.embeddings = layer, embeddings
        self._vectors: dict[tuple[int, int, str], tuple[fmpz_mat, int]] = {}
        self._weights: dict[tuple[int, str], tuple[fmpz_mat, int]] = {}

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
            right, right_exponent = self._matrix(head, side)
            row = self.embeddings[item]
            if right.nrows() > len(row):
                row = np.append(row, 1.0)
            left, left_exponent = _integer_matrix(row[None, :])
            self._vectors[place] = left * right, left_exponent + right_exponent
        return self._vectors[place]

    def _matrix(self, head: int, side: str) -> tuple[fmpz_mat, int]:
        """$W_Q$ or $W_K$; a bias is the weight of one more coordinate, constant 1."""
        place = (head, side)
        if place not in self._weights:
            weights, biases = getattr(self.layer, f"w_{side}"), getattr(self.layer, f"b_{side}")
            rows = [weights[head], biases[head][None, :]] if biases else [weights[head]]
            self._weights[place] = _integer_matrix(np.concatenate(rows))
        return self._weights[place]


def _integer_matrix(array: FloatArray) -> tuple[fmpz_mat, int]:
    """Integers $A$ and an exponent with ``array`` $= A\\,2^e$, exactly."""
    mantissa, exponent = np.frexp(array)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    exponent = np.where(whole == 0, 0, exponent - 53)
    low = int(exponent[whole != 0].min()) if (whole != 0).any() else 0
    shift = np.where(whole == 0, 0, exponent - low)
    entries = [int(w) << int(s) for w, s in zip(whole.ravel(), shift.ravel(), strict=True)]
    return fmpz_mat(array.shape[0], array.shape[1], entries), low
