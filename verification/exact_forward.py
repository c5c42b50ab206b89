"""A layer's output on given inputs in exact and ball arithmetic: the judge's own forward pass."""

from __future__ import annotations

from fractions import Fraction
from itertools import starmap

from flint import arb, arb_mat, fmpq, fmpq_mat

from bounds.arithmetic import square
from constructions.attention import AttentionLayer, FloatArray


def exact_matrix(array: FloatArray) -> fmpq_mat:
    """A float64 matrix as exact rationals."""
    entries = [fmpq(*value.as_integer_ratio()) for value in array.ravel().tolist()]
    return fmpq_mat(array.shape[0], array.shape[1], entries)


def exact_scores(points: fmpq_mat, query: fmpq_mat) -> list[fmpq]:
    r"""$\langle x_i, y\rangle$ for points (N, d) and a query (1, d)."""
    return list((query * points.transpose()).entries())


def first_maximum(scores: list[fmpq]) -> int:
    """The smallest index of a largest score."""
    return max(range(len(scores)), key=lambda index: (scores[index], -index))


class ExactLayer:
    """A layer with its weights as exact rationals."""

    def __init__(self, layer: AttentionLayer) -> None:
        self.layer = layer
        self.scale = fmpq(*layer.logit_scale.as_integer_ratio())
        self.matrices = {
            name: [exact_matrix(array) for array in getattr(layer, name)]
            for name in ("w_q", "w_k", "w_v", "w_o")
        }
        self.biases = {
            name: [exact_matrix(array[None, :]) for array in getattr(layer, name)]
            for name in ("b_q", "b_k", "b_v")
        }

    def head_scores(self, head: int, points: fmpq_mat, query: fmpq_mat) -> list[fmpq]:
        """$S_h(y, i)$ for every point, exactly."""
        queries = self._project("q", head, query)
        keys = self._project("k", head, points)
        return list((queries * keys.transpose()).entries())

    def output(self, points: fmpq_mat, query: fmpq_mat) -> arb_mat:
        """The layer's output (1, d_out) as balls: exact rationals for hard heads, rounded once."""
        total = None
        for head in range(self.layer.heads):
            values = self._project("v", head, points) * self.matrices["w_o"][head].transpose()
            scores = self.head_scores(head, points, query)
            if self.layer.kind == "hard":
                best = first_maximum(scores)
                part = arb_mat(
                    fmpq_mat(
                        1,
                        values.ncols(),
                        values.entries()[best * values.ncols() : (best + 1) * values.ncols()],
                    )
                )
            else:
                part = arb_mat(1, len(scores), self._softmax(scores)) * arb_mat(values)
            total = part if total is None else total + part
        assert total is not None
        return total

    def _softmax(self, scores: list[fmpq]) -> list[arb]:
        top = max(scores)
        shares = [arb(self.scale * (score - top)).exp() for score in scores]
        total = sum(shares, arb(0))
        return [share / total for share in shares]

    def _project(self, side: str, head: int, rows: fmpq_mat) -> fmpq_mat:
        product = rows * self.matrices[f"w_{side}"][head]
        bias = self.biases[f"b_{side}"]
        if not bias:
            return product
        ones = fmpq_mat(rows.nrows(), 1, [1] * rows.nrows())
        return product + ones * bias[head]


def squared_distance(output: arb_mat, target: list[fmpq]) -> arb:
    """$\\|g - f\\|^2$ as a ball."""
    parts = starmap(
        lambda value, wanted: square(value - arb(wanted)),
        zip(output.entries(), target, strict=True),
    )
    return sum(parts, arb(0))


def as_fraction(value: fmpq) -> Fraction:
    """A flint rational as a Fraction."""
    return Fraction(int(value.p), int(value.q))
