"""H1: the full-rank head against exact arithmetic, and the judge of nearest neighbour layers."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bounds import Ball, head_floor, softmax_error, softmax_scale
from bounds.errors import ArgumentError, HypothesisError
from constructions import AttentionLayer, full_rank_nearest_neighbor, nearest_neighbor
from verification import Certificate, verify
from verification.nearest_neighbor import random_frame

FLOATS = st.floats(-2, 2, allow_subnormal=False) | st.sampled_from([0.0, 0.5, 1.0, 1 + 2.0**-52])


def exact_nearest(points: Any, query: Any) -> int:
    scores = [
        sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x, query, strict=True))
        for x in points
    ]
    return scores.index(max(scores))


@given(st.data(), st.integers(1, 5), st.integers(1, 7), st.integers(1, 4))
def test_hard_head_is_the_target(data: Any, d: int, size: int, n: int) -> None:
    points = data.draw(arrays(np.float64, (size, d), elements=FLOATS))
    queries = data.draw(arrays(np.float64, (n, d), elements=FLOATS))
    wanted = nearest_neighbor(points, queries)
    np.testing.assert_array_equal(full_rank_nearest_neighbor(d).attend(queries, points), wanted)
    exact = [[Fraction(float(v)) for v in row] for row in points]
    for query, best in zip(queries, wanted, strict=True):
        y = [Fraction(float(v)) for v in query]
        scores = [sum(a * b for a, b in zip(row, y, strict=True)) for row in exact]
        found = sum(Fraction(float(a)) * b for a, b in zip(best, y, strict=True))
        # float scores of sizes below 4 d: the best may be missed by their rounding only
        assert max(scores) - found <= Fraction(8 * d * d) / 2**52


@given(st.data(), st.integers(1, 4), st.integers(1, 6))
def test_ties_are_exact_on_a_grid(data: Any, d: int, size: int) -> None:
    grid = st.integers(-2, 2).map(float)
    points = data.draw(arrays(np.float64, (size, d), elements=grid))
    query = data.draw(arrays(np.float64, (d,), elements=grid))
    best = points[exact_nearest(points, query)]
    np.testing.assert_array_equal(nearest_neighbor(points, query), best)
    layer = full_rank_nearest_neighbor(d)
    np.testing.assert_array_equal(layer.attend(query[None], points)[0], best)
    certificate = verify(layer, nearest_neighbor, points=points, queries=query)
    assert certificate.verdict == "verified"
    assert certificate.checked == 1


@given(
    st.integers(0, 2**32),
    st.sampled_from([1e-300, 1e-200, 1.0, 1e200, 1e300]),
    st.sampled_from([1e-300, 1e-200, 1.0, 1e200, 1e300]),
    st.integers(1, 40),
)
def test_huge_and_tiny_scales(seed: int, size: float, other: float, count: int) -> None:
    rng = np.random.default_rng(seed)
    points, queries = size * rng.uniform(-1, 1, (count, 3)), other * rng.uniform(-1, 1, (2, 3))
    wanted = nearest_neighbor(points, queries)
    np.testing.assert_array_equal(full_rank_nearest_neighbor(3).attend(queries, points), wanted)
    np.testing.assert_array_equal(wanted, points[[exact_nearest(points, y) for y in queries]])


@given(st.integers(0, 2**32), st.integers(2, 8), st.integers(1, 20))
def test_rotations_turn_the_answer(seed: int, d: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    points, query = rng.standard_normal((count, d)), rng.standard_normal(d)
    turn, _ = np.linalg.qr(rng.standard_normal((d, d)))
    scores = np.sort(points @ query)
    assume(count == 1 or scores[-1] - scores[-2] > 1e-9)
    turned = nearest_neighbor(points @ turn.T, turn @ query)
    np.testing.assert_allclose(turned, turn @ nearest_neighbor(points, query), atol=1e-12)
    order = rng.permutation(count)
    np.testing.assert_array_equal(
        nearest_neighbor(points[order], query), nearest_neighbor(points, query)
    )


@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(2, 9), st.floats(0.5, 200))
def test_softmax_error_within_the_margin_bound(seed: int, d: int, count: int, beta: float) -> None:
    """||f - g|| <= 2p, p = (N-1)/(N-1+e^(beta gamma)); <= sqrt2 p for orthonormal points."""
    rng = np.random.default_rng(seed)
    query = rng.standard_normal(d)
    query /= np.linalg.norm(query)
    points = rng.standard_normal((count, d))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    cases = [(points, 2.0)]
    if count <= d:
        cases.append((random_frame(rng, d, count), math.sqrt(2)))
    for rows, constant in cases:
        layer = full_rank_nearest_neighbor(d, beta)
        scores = np.sort(rows @ query)
        mass = (count - 1) / (count - 1 + math.exp(min(700, beta * (scores[-1] - scores[-2]))))
        error = np.linalg.norm(layer.attend(query[None], rows)[0] - nearest_neighbor(rows, query))
        assert error <= constant * mass * (1 + 1e-9) + 1e-12
        certificate = verify(layer, nearest_neighbor, points=rows, queries=query, error=4)
        assert certificate.verdict == "verified"
        bound = float(certificate.details["margin bound on ||f - g||"])
        assert bound == pytest.approx(2 * mass, rel=1e-5, abs=1e-12)
        assert isinstance(certificate.error, Ball)
        assert float(certificate.error) == pytest.approx(error**2, rel=1e-9, abs=1e-12)
        assert certificate.margin is not None
        assert certificate.margin == pytest.approx(scores[-1] - scores[-2], abs=1e-12)


@pytest.mark.parametrize("d", [1, 2, 7, 40])
def test_weights_are_a_proof(d: int) -> None:
    certificate = verify(full_rank_nearest_neighbor(d), nearest_neighbor)
    assert (certificate.verdict, certificate.scope) == ("verified", "all inputs")
    assert certificate.holds


def test_other_factorings_are_proved_too() -> None:
    """W_Q W_K^T = 6 I and W_V W_O^T = I, with no factor the identity."""
    a = np.array([[1.0, 1.0], [0.0, 1.0]])
    inverse = np.array([[1.0, -1.0], [0.0, 1.0]])
    layer = AttentionLayer(w_q=[2 * a], w_k=[3 * inverse.T], w_v=[a], w_o=[inverse.T])
    certificate = verify(layer, nearest_neighbor)
    assert certificate.verdict == "verified"
    assert certificate.details == {"W_Q W_K^T": "6 I"}
    for sign in (-1, 0):
        wrong = AttentionLayer(w_q=[sign * a], w_k=[inverse.T], w_v=[a], w_o=[inverse.T])
        assert verify(wrong, nearest_neighbor).verdict == "refuted"


def perturbed(d: int, group: str, place: tuple[int, int], size: float) -> AttentionLayer:
    weights = {name: np.eye(d) for name in ("w_q", "w_k", "w_v", "w_o")}
    weights[group][place] += size
    return AttentionLayer(**{name: [array] for name, array in weights.items()})


@given(
    st.sampled_from(["w_q", "w_k", "w_v", "w_o"]),
    st.integers(2, 5),
    st.data(),
    st.sampled_from([1e-12, -1e-6, 0.5, -1.0, -3.0]),
)
def test_perturbed_weights_are_refuted(group: str, d: int, data: Any, size: float) -> None:
    """The counterexample is evaluated here in exact arithmetic, away from the judge."""
    place = (data.draw(st.integers(0, d - 1)), data.draw(st.integers(0, d - 1)))
    layer = perturbed(d, group, place, size)
    certificate = verify(layer, nearest_neighbor)
    assert certificate.verdict == "refuted"
    assert certificate.counterexample is not None
    points, query = (np.array(certificate.counterexample[key]) for key in ("points", "query"))
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-15)

    def times(rows: Any, matrix: Any) -> list[list[Fraction]]:
        return [
            [
                sum(Fraction(r) * Fraction(float(m)) for r, m in zip(row, column, strict=True))
                for column in matrix.T
            ]
            for row in rows
        ]

    q = times([[Fraction(float(v)) for v in query]], layer.w_q[0])[0]
    rows = [[Fraction(float(v)) for v in row] for row in points]
    scores = [sum(a * b for a, b in zip(q, k, strict=True)) for k in times(rows, layer.w_k[0])]
    output = times(times(rows, layer.w_v[0]), layer.w_o[0].T)[scores.index(max(scores))]
    assert output != rows[exact_nearest(points, query)]


def test_unproved_layers_are_undecided_not_verified() -> None:
    half = AttentionLayer(
        w_q=[np.eye(3)] * 2, w_k=[np.eye(3)] * 2, w_v=[np.eye(3) / 2] * 2, w_o=[np.eye(3)] * 2
    )
    certificate = verify(half, nearest_neighbor)  # right, but of no form that is proved
    assert certificate.verdict == "undecided"
    assert certificate.reason
    assert not certificate.holds
    soft = AttentionLayer(
        w_q=[np.diag([1.0, 1.0, 2.0])],
        w_k=[np.eye(3)],
        w_v=[np.eye(3)],
        w_o=[np.eye(3)],
        kind="soft",
        logit_scale=50.0,
    )
    assert verify(soft, nearest_neighbor, error=0.5).verdict == "undecided"


def test_a_hard_layer_is_judged_against_the_allowed_error() -> None:
    """Shrunk values err by 1/4 of the point: refuted at 0, not at squared error 1/10."""
    layer = perturbed(3, "w_v", (0, 0), -0.25)
    assert verify(layer, nearest_neighbor).verdict == "refuted"
    assert verify(layer, nearest_neighbor, error="1/20").verdict == "refuted"
    certificate = verify(layer, nearest_neighbor, error="1/10")
    assert certificate.verdict == "undecided"
    assert "1/10" in certificate.claim


@pytest.mark.parametrize("beta", [0.5, 40.0, 1e6])
def test_soft_verdict_flips_at_the_certified_error(beta: float) -> None:
    layer = full_rank_nearest_neighbor(8, beta)
    value = softmax_error(8, beta, digits=20).value
    assert isinstance(value, Ball)
    above = verify(layer, nearest_neighbor, error=value.upper * (1 + Fraction(1, 10**25)))
    below = verify(layer, nearest_neighbor, error=value.lower * (1 - Fraction(1, 10**25)))
    inside = verify(layer, nearest_neighbor, error=value.midpoint)
    assert (above.verdict, below.verdict) == ("verified", "refuted")
    assert inside.verdict == "undecided" or value.is_exact
    with mpmath.workdps(30):
        density = mpmath.gamma(4) / (mpmath.sqrt(mpmath.pi) * mpmath.gamma(mpmath.mpf(7) / 2))
        truth = (
            4
            * density
            * mpmath.quad(
                lambda t: (
                    (1 - t * t) ** mpmath.mpf(2.5)
                    / (1 + mpmath.exp(mpmath.sqrt(2) * beta * t)) ** 2
                ),
                [0, 1 / mpmath.mpf(beta + 1), min(0.5, 40 / mpmath.mpf(beta + 80)), 1],
            )
        )
    assert float(value) == pytest.approx(float(truth), rel=1e-12)


@settings(max_examples=15)
@given(st.integers(3, 200), st.sampled_from(["1/3", "0.1", "1/1000", "1e-9"]))
def test_the_sufficient_scale_is_verified(d: int, error: str) -> None:
    bound = softmax_scale(d, error)
    assert isinstance(bound.value, Ball)
    layer = full_rank_nearest_neighbor(d, bound.value.upper_float())
    assert verify(layer, nearest_neighbor, error=error).verdict == "verified"


def test_scale_of_the_queries_counts() -> None:
    """W_Q = 3 I and logit scale 2 is the softmax scale 6."""
    layer = AttentionLayer(
        w_q=[3 * np.eye(5)],
        w_k=[np.eye(5)],
        w_v=[np.eye(5)],
        w_o=[np.eye(5)],
        kind="soft",
        logit_scale=2.0,
    )
    certificate = verify(layer, nearest_neighbor, error=1)
    assert certificate.error == softmax_error(5, 6, digits=20).value
    assert certificate.details["softmax scale"] == "6"


@pytest.mark.parametrize(("d", "beta"), [(3, 1.0), (8, 20.0)])
def test_sampled_interval_covers_the_certified_error(d: int, beta: float) -> None:
    truth = softmax_error(d, beta).value
    assert isinstance(truth, Ball)
    certificate = verify(
        full_rank_nearest_neighbor(d, beta), nearest_neighbor, samples=2500, error=1, seed=3
    )
    assert isinstance(certificate.error, tuple)
    low, high = certificate.error
    assert low <= float(truth) <= high
    assert high - low < 0.1
    assert certificate.details == {"interval": "empirical Bernstein"}


def test_sampled_selection_of_a_rank_one_head() -> None:
    """One hard head of rank 1 is right with probability 1/2 + E[arcsin|t|]/pi: the error is 1 - ..."""
    d = 5
    direction = np.eye(d)[:, :1]
    layer = AttentionLayer(w_q=[direction], w_k=[direction], w_v=[np.eye(d)], w_o=[np.eye(d)])
    certificate = verify(layer, nearest_neighbor, samples=4000, error=2, seed=1)
    assert certificate.verdict == "verified"
    assert certificate.details == {"interval": "Clopper-Pearson"}
    assert isinstance(certificate.error, tuple)
    low, high = certificate.error
    with mpmath.workdps(
        20
    ):  # P(w_1 y_1 w.y > 0) over independent uniform w, y, by the angle to e_1
        # Sheppard: given y, sgn(w_1 y_1) = sgn(w.y) with probability 1/2 + arcsin|y_1|/pi
        density = mpmath.gamma(2.5) / (mpmath.sqrt(mpmath.pi) * mpmath.gamma(2))
        right = mpmath.quad(
            lambda t: 2 * density * (1 - t * t) * (0.5 + mpmath.asin(t) / mpmath.pi), [0, 1]
        )
    assert low <= 2 * (1 - float(right)) <= high
    assert high - low < 0.15
    floor = head_floor(d, 1, 1).value
    assert isinstance(floor, Ball)
    assert float(floor) <= high
    refuted = verify(layer, nearest_neighbor, samples=1000, error="1/10", seed=1)
    assert refuted.verdict == "refuted"
    close = verify(layer, nearest_neighbor, samples=200, error=2 * (1 - float(right)), seed=1)
    assert close.verdict == "undecided"


def test_sampling_does_not_count_rounding_of_the_values() -> None:
    """W_V W_O^T = I exactly, but x W_V W_O^T rounds: the layer never errs, and no sample says so."""
    shear = np.eye(4)
    shear[0, 1] = 1.0
    layer = AttentionLayer(
        w_q=[np.eye(4)], w_k=[np.eye(4)], w_v=[shear], w_o=[np.linalg.inv(shear).T]
    )
    assert verify(layer, nearest_neighbor).verdict == "verified"
    certificate = verify(layer, nearest_neighbor, samples=500, error="1/10")
    assert certificate.verdict == "verified"
    assert isinstance(certificate.error, tuple)
    assert certificate.error[0] == 0.0


@pytest.mark.parametrize("context", [1, 2, 5])
def test_sampled_contexts(context: int) -> None:
    certificate = verify(
        full_rank_nearest_neighbor(5), nearest_neighbor, samples=300, error="1/10", context=context
    )
    assert certificate.verdict == "verified"
    again = verify(
        full_rank_nearest_neighbor(5), nearest_neighbor, samples=300, error="1/10", context=context
    )
    assert again == certificate


def test_random_frames_are_uniform() -> None:
    """Orthonormal rows; without the sign fix of QR the first coordinate is never positive."""
    rng = np.random.default_rng(0)
    frames = np.stack([random_frame(rng, 4, 3) for _ in range(2000)])
    np.testing.assert_allclose(
        frames @ frames.transpose(0, 2, 1), np.broadcast_to(np.eye(3), (2000, 3, 3)), atol=1e-14
    )
    assert np.abs(frames.mean(axis=0)).max() < 0.06  # standard error 0.011
    np.testing.assert_allclose((frames**2).mean(axis=0), 0.25, atol=0.04)


def test_inputs_in_exact_arithmetic_where_floats_choose_wrongly() -> None:
    """The two scores differ by 2^-104 only; float64 sees a tie and takes the first."""
    tiny = 2.0**-52
    points = np.array([[1.0, 0.0], [1.0, tiny]])
    query = np.array([1.0, tiny])
    layer = full_rank_nearest_neighbor(2)
    assert nearest_neighbor(points, query)[1] == 0.0
    assert exact_nearest(points, query) == 1
    certificate = verify(layer, nearest_neighbor, points=points, queries=query)
    assert certificate.verdict == "verified"
    assert certificate.margin == 2.0**-104
    tilted = AttentionLayer(
        w_q=[[[1.0, 0.0], [0.0, -1.0]]], w_k=[np.eye(2)], w_v=[np.eye(2)], w_o=[np.eye(2)]
    )
    certificate = verify(tilted, nearest_neighbor, points=points, queries=query)
    assert certificate.verdict == "refuted"
    assert certificate.counterexample is not None
    assert certificate.counterexample["nearest"] == 1
    assert certificate.error == Ball.of(Fraction(1, 2**104))


def test_inputs_stop_at_the_first_wrong_query() -> None:
    layer = perturbed(2, "w_q", (1, 1), -2.0)
    points, queries = np.eye(2), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    certificate = verify(layer, nearest_neighbor, points=points, queries=queries)
    assert (certificate.verdict, certificate.checked) == ("refuted", 2)
    assert certificate.counterexample is not None
    assert certificate.counterexample["query"] == 1
    allowed = verify(layer, nearest_neighbor, points=points, queries=queries, error=2)
    assert (allowed.verdict, allowed.checked) == ("verified", 3)


def test_soft_inputs_at_a_tie_and_at_the_allowed_error() -> None:
    """Two orthonormal points at equal scores: the output is their mean, squared error 1/2 exactly."""
    layer = full_rank_nearest_neighbor(2, 7.0)
    for error, verdict in [
        ("0.5", "verified"),
        ("0.4999999999999999999999", "refuted"),
        (1, "verified"),
    ]:
        certificate = verify(
            layer, nearest_neighbor, points=np.eye(2), queries=[1.0, 1.0], error=error
        )
        assert certificate.verdict in (verdict, "undecided" if error == "0.5" else verdict)
        assert certificate.margin == 0.0


BIG: dict[str, Any] = {"points": np.eye(3), "queries": np.eye(3)}
BAD_CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "soft without error": ({"scale": 1.0}, "error"),
    "soft inputs without error": ({"scale": 1.0} | BIG, "error"),
    "samples without error": ({"samples": 10}, "error"),
    "samples and points": ({"samples": 10, "error": 1} | BIG, "samples"),
    "samples and queries": ({"samples": 10, "error": 1, "queries": np.eye(3)}, "samples"),
    "points alone": ({"points": np.eye(3)}, "points, queries"),
    "queries alone": ({"queries": np.eye(3)}, "points, queries"),
    "no samples": ({"samples": 0, "error": 1}, "samples"),
    "one sample": ({"samples": 1, "error": 1}, "samples"),
    "half a sample": ({"samples": 2.5, "error": 1}, "samples"),
    "confidence 1": ({"samples": 10, "error": 1, "confidence": 1.0}, "confidence"),
    "confidence nan": ({"samples": 10, "error": 1, "confidence": np.nan}, "confidence"),
    "wide context": ({"samples": 10, "error": 1, "context": 4}, "context"),
    "no context": ({"samples": 10, "error": 1, "context": 0}, "context"),
    "negative seed": ({"samples": 10, "error": 1, "seed": -1}, "seed"),
    "negative error": ({"error": -1}, "error"),
    "negative soft error": ({"scale": 1.0, "error": -1}, "error"),
    "negative sampled error": ({"samples": 10, "error": "-1/2"}, "error"),
    "error nan": ({"error": np.nan}, "error"),
    "no points": ({"points": np.ones((0, 3)), "queries": np.eye(3)}, "points"),
    "no queries": ({"points": np.eye(3), "queries": np.ones((0, 3))}, "queries"),
    "wide points": ({"points": np.eye(4), "queries": np.eye(3)}, "points"),
    "wide queries": ({"points": np.eye(3), "queries": np.eye(4)}, "queries"),
    "ragged queries": ({"points": np.eye(3), "queries": [[1.0], [1.0, 2.0, 3.0]]}, "queries"),
    "deep queries": ({"points": np.eye(3), "queries": np.ones((1, 1, 3))}, "queries"),
    "number as query": ({"points": np.eye(3), "queries": 1.0}, "queries"),
    "nan query": ({"points": np.eye(3), "queries": [np.nan, 0, 0]}, "queries"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_name_the_argument(name: str) -> None:
    arguments, message = BAD_CALLS[name]
    layer = full_rank_nearest_neighbor(3, arguments.get("scale"))
    given_arguments = {key: value for key, value in arguments.items() if key != "scale"}
    with pytest.raises(ArgumentError) as failure:
        verify(layer, nearest_neighbor, **given_arguments)
    assert str(failure.value).startswith(message)


def test_wrong_targets_and_layers() -> None:
    layer = full_rank_nearest_neighbor(3)
    for target in (None, "nearest", lambda x, y: x[0], np.argmax):
        with pytest.raises(ArgumentError, match="target"):
            verify(layer, target)  # type: ignore[arg-type]
    scores_only = AttentionLayer(w_q=[np.eye(3)], w_k=[np.eye(3)])
    narrow = AttentionLayer(
        w_q=[np.eye(3)], w_k=[np.eye(3)], w_v=[np.eye(3)], w_o=[np.ones((2, 3))]
    )
    for wrong in (scores_only, narrow):
        for mode in ({}, BIG, {"samples": 10, "error": 1}):
            with pytest.raises(ArgumentError, match="layer"):
                verify(wrong, nearest_neighbor, **mode)
    with pytest.raises(HypothesisError, match="d >= 3"):
        verify(full_rank_nearest_neighbor(2, 1.0), nearest_neighbor, error=1)


@pytest.mark.parametrize(
    ("points", "query"),
    [
        (np.ones((0, 2)), [1.0, 0.0]),
        (np.ones((2, 0)), np.ones(0)),
        (np.eye(2), [1.0]),
        (np.eye(2), 1.0),
        (np.eye(2), np.ones((1, 1, 2))),
        (np.eye(2), [[1.0], [1.0, 2.0]]),
        (np.eye(2), np.ones((0, 2))),
        ([[np.inf, 0.0]], [1.0, 0.0]),
        (np.eye(2) * 1j, [1.0, 0.0]),
    ],
)
def test_the_target_refuses_what_is_not_a_search(points: Any, query: Any) -> None:
    with pytest.raises(ArgumentError):
        nearest_neighbor(points, query)


@pytest.mark.parametrize("bad", [0, -1, 2.0, True, "3", None])
def test_bad_dimensions(bad: Any) -> None:
    with pytest.raises(ArgumentError, match="d = "):
        full_rank_nearest_neighbor(bad)


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, "x"])
def test_bad_scales(bad: Any) -> None:
    with pytest.raises(ArgumentError, match="scale"):
        full_rank_nearest_neighbor(3, bad)


def test_certificates_are_json() -> None:
    hard, soft = full_rank_nearest_neighbor(3), full_rank_nearest_neighbor(3, 2.0)
    found = [
        verify(hard, nearest_neighbor),
        verify(hard, nearest_neighbor, **BIG),
        verify(soft, nearest_neighbor, error=1),
        verify(soft, nearest_neighbor, error=1, samples=10),
        verify(perturbed(3, "w_q", (0, 0), -2.0), nearest_neighbor),
    ]
    for certificate in found:
        data = json.loads(certificate.to_json())
        assert data["verdict"] == certificate.verdict
        assert certificate.verdict in str(certificate)
        assert isinstance(certificate, Certificate)
    ball = json.loads(found[2].to_json())["error"]["ball"]
    assert Ball.parse(ball) == found[2].error
    assert len({certificate.layer_digest for certificate in found}) == 3
