"""The judge of relation layers against exact rational scores of every pair, rounding and all."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import constructions.recognition as recognition
from bounds.errors import ArgumentError
from constructions import AttentionLayer, RelationTarget, relation_target
from constructions.recognition import RecognitionReport, recognition_report
from verification import verify


def fractions(array: Any) -> list[list[Fraction]]:
    return [[Fraction(float(v)) for v in row] for row in np.atleast_2d(array)]


def exact_scores(layer: AttentionLayer, embeddings: Any) -> list[list[Fraction]]:
    """max_h S_h(i, j), in rational arithmetic."""

    def project(weights: Any, bias: Any) -> list[list[Fraction]]:
        columns = list(zip(*fractions(weights), strict=True))
        shift = fractions(bias)[0] if bias is not None else [Fraction(0)] * len(columns)
        return [
            [
                sum(a * b for a, b in zip(row, c, strict=True)) + s
                for c, s in zip(columns, shift, strict=True)
            ]
            for row in fractions(embeddings)
        ]

    best: list[list[Fraction]] = []
    for h in range(layer.heads):
        q = project(layer.w_q[h], layer.b_q[h] if layer.b_q else None)
        k = project(layer.w_k[h], layer.b_k[h] if layer.b_k else None)
        scores = [
            [sum((a * b for a, b in zip(u, v, strict=True)), Fraction(0)) for v in k] for u in q
        ]
        best = (
            [list(map(max, *rows)) for rows in zip(best, scores, strict=True)] if best else scores
        )
    return best


def edges_of(scores: list[list[Fraction]], tau: float) -> list[tuple[int, int]]:
    return [(i, j) for i, row in enumerate(scores) for j, s in enumerate(row) if s > Fraction(tau)]


def assert_sound(
    report: RecognitionReport, scores: Any, target: RelationTarget, tau: float
) -> None:
    """A report on every pair against the exact scores."""
    wanted = {(int(i), int(j)) for i, j in target.edges}
    right = set(edges_of(scores, tau)) == wanted
    if report.wrong is None:
        assert right
        assert report.undecided == 0
        assert report.pairs == target.items**2
        gaps = [abs(s - Fraction(tau)) for row in scores for s in row]
        assert Fraction(report.margin) <= min(gaps)
        assert (
            min(gaps) - Fraction(report.margin) <= 3 * Fraction(report.rounding) + min(gaps) / 2**40
        )
    else:
        assert not right
        i, j = report.wrong
        assert report.wrong_score == scores[i][j]
        assert (scores[i][j] > Fraction(tau)) != ((i, j) in wanted)
        assert report.missing == ((i, j) in wanted)


@st.composite
def cases(draw: Any) -> tuple[AttentionLayer, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    m, d, heads = draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    sizes = [draw(st.integers(1, 4)) for _ in range(heads)]
    spread = draw(st.sampled_from([0, 1, 8, 60]))  # decades of the entries' sizes

    def some(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape) * 10.0 ** rng.uniform(-spread, spread, shape)

    biased = draw(st.booleans())
    layer = AttentionLayer(
        w_q=[some(d, k) for k in sizes],
        w_k=[some(d, k) for k in sizes],
        b_q=[some(k) for k in sizes] if biased else (),
        b_k=[some(k) for k in sizes] if biased else (),
        threshold=0.0,
    )
    return layer, some(m, d), rng


def with_threshold(layer: AttentionLayer, tau: float) -> AttentionLayer:
    return AttentionLayer(w_q=layer.w_q, w_k=layer.w_k, b_q=layer.b_q, b_k=layer.b_k, threshold=tau)


@given(cases(), st.sampled_from(["score", "above", "below", "float score", "random"]))
def test_verdict_is_that_of_exact_arithmetic(case: Any, place: str) -> None:
    """The threshold lies at a rounded exact score, beside one, at the float score, or anywhere."""
    layer, x, rng = case
    scores = exact_scores(layer, x)
    i, j = rng.integers(len(x), size=2)
    try:
        nearest = float(scores[i][j])
    except OverflowError:
        return
    floats = float(np.max([layer.scores(h, x, x) for h in range(layer.heads)], axis=0)[i, j])
    tau = {
        "score": nearest,
        "above": math.nextafter(nearest, math.inf),
        "below": math.nextafter(nearest, -math.inf),
        "float score": floats,
        "random": floats * rng.uniform(-2, 2),
    }[place]
    layer = with_threshold(layer, tau)
    edges = edges_of(scores, tau)
    if edges:
        target = relation_target(x, edges)
        report = recognition_report(layer, target)
        assert_sound(report, scores, target, tau)
        assert report.wrong is None
    flipped = {(int(i), int(j))} ^ set(edges)
    if flipped:
        target = relation_target(x, sorted(flipped))
        report = recognition_report(layer, target)
        assert_sound(report, scores, target, tau)
        assert report.wrong == (i, j)


@given(cases())
def test_the_rounding_bound_covers_the_true_rounding(case: Any) -> None:
    layer, x, _ = case
    scores = exact_scores(layer, x)
    got = np.max([layer.scores(h, x, x) for h in range(layer.heads)], axis=0)
    report = recognition_report(layer, relation_target(x, [[0, 0]]))
    prepared = [recognition._prepared(layer, h, x, np.abs(x)) for h in range(layer.heads)]
    best, bound = recognition._best_scores(prepared, 0, len(x))
    for i in range(len(x)):
        for j in range(len(x)):
            for computed in (best[i, j], got[i, j]):
                assert abs(Fraction(float(computed)) - scores[i][j]) <= Fraction(float(bound[i]))
    assert report.wrong is None or report.wrong_score == scores[report.wrong[0]][report.wrong[1]]


def test_the_rounding_bound_counts_sizes_not_sums() -> None:
    """Terms that cancel still round: flipping a coordinate with its weights changes nothing."""
    rng = np.random.default_rng(0)
    x = -np.abs(rng.standard_normal((30, 6)))
    weights = np.abs(rng.standard_normal((2, 2, 6, 3)))
    signs = np.array([1.0, -1.0, 1.0, -1.0, -1.0, 1.0])
    found = []
    for flip in (np.ones(6), -np.ones(6), signs):
        w_q, w_k = weights * flip[:, None]
        layer = AttentionLayer(w_q=list(w_q), w_k=list(w_k), threshold=1e6)
        report = recognition_report(layer, relation_target(x * flip, [[0, 0]]))
        errors = [recognition.projections_with_error(layer, h, x * flip)[2] for h in range(2)]
        assert report.rounding == max(float(error.max()) for error in errors) > 0
        found.append((report.rounding, [error.tolist() for error in errors]))
    assert found[0] == found[1]
    assert found[2][0] == found[0][0]
    sizes = [np.linalg.norm(np.abs(x) @ w, axis=1) for w in weights[0]]
    tallest = [np.linalg.norm(np.abs(x) @ w, axis=1).max() for w in weights[1]]
    for error, size, most in zip(found[0][1], sizes, tallest, strict=True):
        assert (np.array(error) >= 2 * (3 + 3 * 7) * 2.0**-53 * size * most * 0.999).all()


def test_a_score_at_the_threshold_is_not_recognised() -> None:
    x = np.array([[1.0, 0.0], [0.0, 1.0], [0.1, 0.3]])
    layer = AttentionLayer(w_q=[np.eye(2)], w_k=[np.eye(2)], threshold=1.0)
    below = with_threshold(layer, math.nextafter(1.0, 0.0))
    nothing = recognition_report(layer, relation_target(x, [[0, 0]]))
    assert (nothing.wrong, nothing.missing, nothing.wrong_score) == ((0, 0), True, 1)
    report = recognition_report(below, relation_target(x, [[0, 0], [1, 1]]))
    assert report.wrong is None
    assert report.exact_pairs == 2
    assert report.margin == 2.0**-53
    tie = recognition_report(
        with_threshold(layer, 0.0),
        relation_target(x, [[0, 0], [1, 1], [2, 0], [2, 1], [2, 2], [0, 2], [1, 2]]),
    )
    assert (tie.wrong, tie.margin, tie.exact_pairs) == (None, 0.0, 2)


def test_cancellation_that_float64_gets_wrong() -> None:
    """S = 1e16 + 1 - 1e16 - 1/2 = 1/2 exactly; float64 sums to 0 or less, on the wrong side of 1/4."""
    x = np.array([[1.0, 1.0, 1.0, 1.0]])
    layer = AttentionLayer(w_q=[np.diag([1e16, 1.0, -1e16, -0.5])], w_k=[np.eye(4)], threshold=0.25)
    report = recognition_report(layer, relation_target(x, [[0, 0]]))
    assert (report.wrong, report.exact_pairs, report.margin) == (None, 1, 0.25)
    assert report.rounding > 1
    wrong_order = AttentionLayer(
        w_q=[np.diag([1e16, 1.0, -1e16, -0.5])], w_k=[np.eye(4)], threshold=0.75
    )
    report = recognition_report(wrong_order, relation_target(x, [[0, 0]]))
    assert (report.wrong, report.wrong_score) == ((0, 0), Fraction(1, 2))


@given(st.integers(0, 2**32), st.integers(1, 30))
def test_block_sizes_do_not_matter(seed: int, entries: int) -> None:
    rng = np.random.default_rng(seed)
    x, w_q, w_k = (
        rng.standard_normal((7, 3)),
        rng.standard_normal((3, 2)),
        rng.standard_normal((3, 2)),
    )
    layer = AttentionLayer(w_q=[w_q], w_k=[w_k], threshold=0.5)
    scores = exact_scores(layer, x)
    edges = edges_of(scores, 0.5)
    if not edges:
        return
    target = relation_target(x, edges)
    seen: list[tuple[int, int]] = []
    small = recognition_report(
        layer, target, block_entries=entries, progress=lambda a, b: seen.append((a, b))
    )
    whole = recognition_report(layer, target)
    assert small.pairs == whole.pairs == 49
    assert small.margin == pytest.approx(whole.margin, rel=1e-9)
    assert small.rounding == pytest.approx(whole.rounding, rel=1e-9)
    assert seen[-1] == (7, 7)
    assert len(seen) == -(-7 // max(1, entries // 7))
    i, j = rng.integers(7, size=2)
    flipped = sorted({(int(i), int(j))} ^ set(edges))
    if flipped:
        wrong = recognition_report(layer, relation_target(x, flipped), block_entries=entries)
        assert wrong.wrong == (i, j)
        assert wrong.wrong_score == scores[i][j]


UNDERFLOW: dict[str, tuple[Any, Any, Any, float]] = {
    # embeddings, W_Q, W_K, tau
    "query below the least float": ([[1e-200], [1e50]], [[1e-200]], [[1e100]], 1e-260),
    "squares below the least float": (
        [[1.0, 1.0]],
        [[1e-170, -1e-170 * (1 - 2**-53)], [1e-178, 1e-187]],
        [[1e150] * 2, [1e149, 1e148]],
        0.0,
    ),
    "squares above the largest": ([[1.0]], [[1e200]], [[1e-190]], 5e9),
    "subnormal threshold": ([[1e-160], [1e-165]], [[1.0]], [[1.0]], 5e-324),
    "score above the largest threshold": ([[1e150], [-1e150]], [[1.0]], [[1.0]], -1e300),
}


@pytest.mark.parametrize("name", UNDERFLOW)
def test_underflow_is_part_of_the_bound(name: str) -> None:
    """A query that underflows to zero, times a large key, is not a score of zero."""
    x, w_q, w_k, tau = UNDERFLOW[name]
    layer = AttentionLayer(w_q=[w_q], w_k=[w_k], threshold=tau)
    scores = exact_scores(layer, x)
    edges = edges_of(scores, tau)
    assert edges
    target = relation_target(x, edges)
    report = recognition_report(layer, target)
    assert report.wrong is None
    assert report.undecided == 0
    assert Fraction(report.margin) <= min(abs(s - Fraction(tau)) for row in scores for s in row)


def test_overflow_is_undecided_and_never_a_verdict() -> None:
    """Products beyond float64, some of them cancelling: no report of a wrong pair may come of it."""
    for w_q, w_k in [
        ([[1e200]], [[1e200]]),
        ([[1.0, 1.0]], [[1.2e308, -1.1e308]]),
        ([[1.5e154, -1.5e154]], [[1.2e154, 1.2e154]]),
        ([[1e308, 1e308]], [[1.0, 1.0]]),
    ]:
        x = np.array([[1.0], [1.5]])
        layer = AttentionLayer(w_q=[w_q], w_k=[w_k], threshold=1.5e308)
        scores = exact_scores(layer, x)
        for edges in ([[0, 0]], [[0, 0], [0, 1], [1, 0], [1, 1]]):
            target = relation_target(x, edges)
            report = recognition_report(layer, target)
            if report.undecided:
                assert (report.wrong, report.undecided, report.pairs) == (None, 4, 0)
                assert "overflow" in report.reason
                certificate = verify(layer, target)
                assert certificate.verdict == "undecided"
                assert "Infinity" not in certificate.to_json()
            else:
                assert_sound(report, scores, target, 1.5e308)
    assert (
        recognition_report(
            AttentionLayer(w_q=[[[1e200]]], w_k=[[[1e200]]], threshold=0.0),
            relation_target([[1.0]], [[0, 0]]),
        ).undecided
        == 1
    )


def test_margin_is_a_lower_bound_beside_a_large_threshold() -> None:
    """1e10 - 1e-10 rounds to 1e10 in float64; the margin must not."""
    x = np.array([[1e-5], [2.0]])
    layer = AttentionLayer(w_q=[[[1.0]]], w_k=[[[1.0]]], threshold=-1e10)
    target = relation_target(x, [[0, 0], [0, 1], [1, 0], [1, 1]])
    report = recognition_report(layer, target)
    assert report.wrong is None
    assert Fraction(report.margin) <= 10**10 + Fraction(1e-5) ** 2
    assert report.margin > 1e10 * (1 - 1e-14)


def test_too_many_pairs_at_the_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognition, "_EXACT_LIMIT", 5)
    x = np.ones((3, 1))
    layer = AttentionLayer(w_q=[[[1.0]]], w_k=[[[1.0]]], threshold=math.nextafter(1.0, 0.0))
    target = relation_target(x, [[i, j] for i in range(3) for j in range(3)])
    report = recognition_report(layer, target)
    assert (report.wrong, report.undecided, report.exact_pairs) == (None, 4, 5)
    certificate = verify(layer, target)
    assert certificate.verdict == "undecided"
    assert "5 pairs" in certificate.reason
    monkeypatch.setattr(recognition, "_EXACT_LIMIT", 9)
    assert verify(layer, target).verdict == "verified"


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=4, max_size=4))
def test_integer_matrices_are_exact(values: list[float]) -> None:
    array = np.array(values).reshape(2, 2)
    matrix, exponent = recognition._integer_matrix(array)
    for entry, value in zip(matrix.entries(), values, strict=True):
        assert Fraction(int(entry)) * Fraction(2) ** exponent == Fraction(value)


def test_wrong_arguments() -> None:
    target = relation_target(np.eye(2), [[0, 1]])
    with pytest.raises(ArgumentError, match="threshold"):
        recognition_report(AttentionLayer(w_q=[np.eye(2)], w_k=[np.eye(2)]), target)
    with pytest.raises(ArgumentError, match="embeddings"):
        recognition_report(AttentionLayer(w_q=[np.eye(3)], w_k=[np.eye(3)], threshold=0.0), target)
