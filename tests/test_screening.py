"""Float32 screening of all pairs: the same verdicts and margins as exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import constructions.recognition as recognition
from constructions import AttentionLayer, relation_target
from constructions.recognition import RecognitionReport, recognition_report
from constructions.screening import Screen


@st.composite
def layers(draw: Any) -> tuple[AttentionLayer, np.ndarray]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    m, d, k, heads = (draw(st.integers(1, n)) for n in (7, 5, 4, 3))
    spread = draw(st.sampled_from([0, 1, 8, 60]))  # decades

    def some(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape) * 10.0 ** rng.uniform(-spread, spread, shape)

    x, w = some(m, d), [[some(d, k) for _ in range(heads)] for _ in range(2)]
    scores = sorted(np.max([(x @ q) @ (x @ v).T for q, v in zip(*w, strict=True)], axis=0).ravel())
    tau = float(scores[draw(st.integers(0, m * m - 1))])
    tau = draw(
        st.sampled_from([tau, tau * (1 - 1e-9), tau * (1 + 1e-4), math.nextafter(tau, -math.inf)])
    )
    return AttentionLayer(w_q=w[0], w_k=w[1], threshold=tau), x


def exact_graph(layer: AttentionLayer, x: np.ndarray) -> tuple[np.ndarray, Fraction]:
    """The recognised pairs, and the distance of the nearest score from the threshold."""

    def product(a: Any, b: Any) -> Any:
        return np.array(
            [
                [
                    sum((Fraction(u) * Fraction(v) for u, v in zip(r, c, strict=True)), Fraction(0))
                    for c in b.T
                ]
                for r in a
            ],
            dtype=object,
        )

    best = np.max(
        [
            product(product(x, q), product(x, k).T)
            for q, k in zip(layer.w_q, layer.w_k, strict=True)
        ],
        axis=0,
    )
    distance = best - Fraction(layer.threshold)
    return np.argwhere(distance > 0), np.abs(distance).min()


def screened(
    layer: AttentionLayer, x: np.ndarray, edges: Any, tile: tuple[int, int]
) -> RecognitionReport:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recognition, "_SCREENED_ITEMS", 1)
        patch.setattr(recognition, "_TILE", tile)
        return recognition_report(layer, relation_target(x, edges))


@given(layers(), st.integers(1, 4), st.integers(1, 4), st.integers(0, 48))
def test_screened_verdicts_are_exact(case: Any, rows: int, columns: int, flip: int) -> None:
    layer, x = case
    edges, nearest = exact_graph(layer, x)
    if len(edges):
        report = screened(layer, x, edges, (rows, columns))
        assert (report.wrong, report.undecided, report.pairs) == (None, 0, len(x) ** 2)
        assert Fraction(report.margin) <= nearest
        assert nearest - Fraction(report.margin) <= 3 * Fraction(report.rounding) + nearest / 2**40
    flipped = (flip // 7 % len(x), flip % len(x))
    wrong = sorted({tuple(edge) for edge in edges.tolist()} ^ {flipped})
    if wrong:
        assert screened(layer, x, wrong, (rows, columns)).wrong == flipped


@given(layers())
def test_the_float32_bound_holds(case: Any) -> None:
    layer, x = case
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for head in range(layer.heads):
            screen = Screen(*recognition._prepared(layer, head, x, np.abs(x)))
            got = screen.query @ screen.key.T
            one = AttentionLayer(w_q=[layer.w_q[head]], w_k=[layer.w_k[head]], threshold=0.0)
            exact = recognition._ExactScores(one, x)
            for i in range(len(x)):
                if np.isfinite(screen.error[i]):
                    for j in range(len(x)):
                        value = Fraction(float(got[i, j])) * Fraction(2) ** screen.exponent
                        assert abs(value - exact.best(i, j)) <= Fraction(screen.error[i])


@pytest.mark.parametrize("tied", [False, True])
def test_large_graphs_screened_or_tied(tied: bool) -> None:
    """Random scores are screened; the vertices of a cube tie at score 8 and are judged in float64."""
    m = 1 << 10
    rng = np.random.default_rng(0)
    if tied:
        x = np.array([[2.0 * (i >> b & 1) - 1 for b in range(10)] for i in range(m)])
        layer = AttentionLayer(w_q=[np.eye(10)], w_k=[np.eye(10)], threshold=8.5)
        edges, margin = np.stack([np.arange(m)] * 2, axis=1), 0.5
    else:
        x = rng.standard_normal((m, 40))
        w = rng.standard_normal((2, 2, 40, 8))
        layer = AttentionLayer(w_q=list(w[0]), w_k=list(w[1]), threshold=500.0)
        best = np.max([layer.scores(h, x, x) for h in range(2)], axis=0)
        edges, margin = np.argwhere(best > 500), float(np.abs(best - 500).min())
    report = recognition_report(layer, relation_target(x, edges))
    assert (report.wrong, report.pairs) == (None, m * m)
    assert report.margin == pytest.approx(margin, rel=1e-6)
    assert report.rounding < 1e-6
    one_less = recognition_report(layer, relation_target(x, np.delete(edges, 77, axis=0)))
    assert one_less.wrong == tuple(edges[77])
    absent = [edges[0, 0], (edges[0, 1] + 1) % m]
    one_more = recognition_report(layer, relation_target(x, np.vstack([edges, absent])))
    assert one_more.wrong == tuple(absent)
    assert one_more.missing
