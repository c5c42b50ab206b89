"""C6: leakage formulas and the certified leakage of weights, against mpmath on every small context."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bounds import ArgumentError, Ball, Bound
from bounds.softmax_leakage import balanced_null_shift, leakage_scale, softmax_leakage
from constructions import AttentionLayer, relation_target
from constructions.routing import RoutingLayer
from verification.exponential import exp_lower, exp_upper
from verification.leakage import (
    attention_off_sum,
    checked_contexts,
    leakage_report,
    verify_leakage,
)

mp = mpmath.mp.clone()
mp.dps = 60


def mpf(value: Any) -> Any:
    exact = Fraction(value)
    return mp.mpf(exact.numerator) / exact.denominator


def off_mass(logits: list[Any], null: Any, neighbours: list[int]) -> Any:
    """Softmax mass off the neighbours (null included), or off the null token without neighbours."""
    masses = [mp.exp(value) for value in [*logits, null]]
    on = set(neighbours) or {len(logits)}
    away = sum((mass for j, mass in enumerate(masses) if j not in on), mp.mpf(0))
    return away / sum(masses)


def ball(bound: Bound) -> Ball:
    assert isinstance(bound.value, Ball)
    return bound.value


def agrees(value: Ball, truth: Any, relative: float = 1e-14) -> bool:
    return mpf(value.lower) <= truth <= mpf(value.upper) and value.radius <= abs(
        value.midpoint
    ) * Fraction(relative)


rows = st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
positive = st.fractions(Fraction(1, 100), 5, max_denominator=100)
errors = st.fractions(Fraction(1, 1000), Fraction(9, 10), max_denominator=1000)


@given(rows, positive, positive, st.fractions(-1, 1, max_denominator=20), st.randoms())
def test_leakage_is_the_largest(row: Any, margin: Any, scale: Any, shift: Any, random: Any) -> None:
    (n, k), neighbours = row, list(range(row[1]))
    value = ball(softmax_leakage(n, margin, scale, neighbours=k, null_shift=shift))
    extreme = [scale * margin] * k + [-scale * margin] * (n - k)
    assert agrees(value, off_mass([mpf(s) for s in extreme], mpf(scale * shift), neighbours))
    inside = [s + (1 if s > 0 else -1) * Fraction(random.randint(0, 50), 10) for s in extreme]
    leak = off_mass([mpf(s) for s in inside], mpf(scale * shift), neighbours)
    assert leak <= mpf(value.upper)


@given(rows, positive, errors)
def test_scale_is_the_least(row: Any, margin: Any, error: Any) -> None:
    n, k = row
    for neighbours in (None, k):
        bound = leakage_scale(n, margin, error, neighbours=neighbours)
        counts = range(n + 1) if neighbours is None else [k]

        def worst(beta: Fraction, counts: Any = counts) -> Fraction:
            return max(
                ball(softmax_leakage(n, margin, beta, neighbours=c)).midpoint for c in counts
            )

        beta = ball(bound).midpoint
        if bound.status == "vacuous":
            assert beta == 0
            assert worst(Fraction(0)) <= error * (1 + Fraction(1, 10**12))
        else:
            assert abs(worst(beta) - error) < Fraction(1, 10**11)
            assert worst(beta * Fraction(999, 1000)) > error


@given(st.integers(2, 10**6), positive, st.fractions(Fraction(1, 10**6), Fraction(1, 3)))
def test_balanced_null_is_best(n: int, margin: Any, error: Any) -> None:
    beta = ball(leakage_scale(n, margin, error, null="balanced")).midpoint
    best = balanced_null_shift(n, margin, beta).midpoint

    def worst(shift: Fraction, scale: Fraction) -> Fraction:
        # rows with no and with one neighbour are the worst ones
        return max(
            ball(softmax_leakage(n, margin, scale, neighbours=k, null_shift=shift)).midpoint
            for k in (0, 1)
        )

    assert abs(worst(best, beta) - error) < error / 10**9
    for step in (Fraction(-1, 100), Fraction(1, 100)):
        assert worst(best + step * margin, beta) > error
    assert beta < ball(leakage_scale(n, margin, error)).midpoint


@given(st.integers(1, 10**9), positive, st.fractions(Fraction(1, 10**9), Fraction(99, 100)))
def test_the_plain_scale_is_enough(n: int, margin: Any, error: Any) -> None:
    """beta = ln((N+1)/epsilon)/gamma suffices; the exact one is smaller."""
    enough = mp.log(mpf((n + 1) / error)) / mpf(margin)
    assert mpf(ball(leakage_scale(n, margin, error)).upper) < enough


def test_reference_values() -> None:
    assert ball(leakage_scale(1000, 1, "1/100")).decimal(10) == mp.nstr(mp.log(99000), 10)
    assert ball(softmax_leakage(3, 1, 0, neighbours=0)).midpoint == pytest.approx(3 / 4)
    assert leakage_scale(1, 1, "1/2").status == "vacuous"
    assert leakage_scale(4, 1, "1/5", neighbours=4).status == "vacuous"
    bound = leakage_scale(7, "1/3", "1/10", neighbours=2)
    assert Bound.from_json(bound.to_json()) == bound
    assert "7 tokens" in str(bound)


@pytest.mark.parametrize(
    "call",
    [
        lambda: leakage_scale(0, 1, "1/2"),
        lambda: leakage_scale(5, 0, "1/2"),
        lambda: leakage_scale(5, 1, 1),
        lambda: leakage_scale(5, 1, 0),
        lambda: leakage_scale(5, 1, "1/2", neighbours=6),
        lambda: leakage_scale(5, 1, "1/2", neighbours=1, null="balanced"),
        lambda: leakage_scale(5, 1, "1/2", null="free"),  # type: ignore[arg-type]
        lambda: softmax_leakage(5, 1, -1),
        lambda: softmax_leakage(5, 1, 1, neighbours=-1),
        lambda: balanced_null_shift(5, 1, 0),
    ],
)
def test_wrong_arguments(call: Any) -> None:
    with pytest.raises(ArgumentError):
        call()


@given(st.lists(st.floats(-900, 900), min_size=1, max_size=30))
def test_directed_exponentials(values: list[float]) -> None:
    x = np.array(values)
    for value, low, high in zip(values, exp_lower(x), exp_upper(x), strict=True):
        truth = mp.exp(mpf(value))
        assert mp.mpf(float(low)) <= truth <= mp.mpf(float(high))
        if abs(value) <= 700:
            assert high <= low * (1 + 2.0**-42)


def random_routing(seed: int, scale: float, bias: bool) -> tuple[RoutingLayer, Any]:
    """Random weights on five items; the first relations of each source go to head 0, 1."""
    rng = np.random.default_rng(seed)
    m, d, k = 5, 3, 2
    x = rng.standard_normal((m, d))
    pairs = [(i, j) for i in range(m) for j in rng.permutation(m)[: rng.integers(0, 3)]] or [(0, 1)]
    target = relation_target(x, np.array(pairs))
    sources = target.edges[:, 0]
    heads = np.arange(len(sources)) - np.searchsorted(sources, sources)
    layer = AttentionLayer(
        w_q=list(rng.standard_normal((2, d + 1, k))),
        w_k=list(rng.standard_normal((2, d + 1, k))),
        b_q=list(rng.standard_normal((2, k))) if bias else (),
        b_k=list(rng.standard_normal((2, k))) if bias else (),
        w_v=[np.eye(d + 1, d)] * 2,
        w_o=[0.5 * np.eye(d)] * 2,
        kind="soft",
        logit_scale=scale,
    )
    return RoutingLayer(layer, heads, margin=0.0, null_score=0.0), target


def exact_rows(
    routing: RoutingLayer, target: Any, items: list[int]
) -> dict[tuple[int, int], tuple[Any, Any]]:
    """For each head and item: the exact leakage, and the softmax weights, in a context."""
    layer, tokens = routing.layer, routing.tokens(target.embeddings)
    found = {}
    for head in range(layer.heads):

        def project(row: Any, weights: Any, bias: Any) -> list[Fraction]:
            sums = [
                sum((Fraction(a) * Fraction(b) for a, b in zip(row, c, strict=True)), Fraction(0))
                for c in weights.T
            ]
            return (
                sums if bias is None else [s + Fraction(b) for s, b in zip(sums, bias, strict=True)]
            )

        queries = [
            project(tokens[i], layer.w_q[head], layer.b_q[head] if layer.b_q else None)
            for i in items
        ]
        keys = [
            project(tokens[j], layer.w_k[head], layer.b_k[head] if layer.b_k else None)
            for j in [*items, -1]
        ]
        for place, i in enumerate(items):
            logits = [
                mpf(
                    Fraction(layer.logit_scale)
                    * sum((a * b for a, b in zip(queries[place], key, strict=True)), Fraction(0))
                )
                for key in keys
            ]
            held = [
                items.index(j)
                for (s, j), h in zip(target.edges.tolist(), routing.edge_heads, strict=True)
                if s == i and h == head and j in items
            ]
            masses = [mp.exp(v - max(logits)) for v in logits]
            found[head, i] = (
                off_mass(logits[:-1], logits[-1], held),
                [w / sum(masses) for w in masses[:-1]],
            )
    return found


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 7.0, 60.0]), st.booleans())
def test_reports_contain_the_exact_leakage(seed: int, scale: float, bias: bool) -> None:
    routing, target = random_routing(seed, scale, bias)
    contexts = [list(c) for r in range(1, 6) for c in itertools.combinations(range(5), r)]
    worst, furthest = mp.mpf(0), mp.mpf(0)
    for number, items in enumerate(contexts):
        exact = exact_rows(routing, target, items)
        largest = max(leak for leak, _ in exact.values())
        worst = max(worst, largest)
        for i in items:
            output = sum(
                (np.array(exact[h, i][1]) @ target.embeddings[items] for h in range(2)), np.zeros(3)
            )
            wanted = target.embeddings[[j for s, j in target.edges if s == i and j in items]].sum(
                axis=0
            )
            furthest = max(furthest, mp.sqrt(sum((v * v for v in output - wanted), mp.mpf(0))) / 2)
        if number % 7 == 0:
            report = leakage_report(routing, target, contexts=[np.array(items)])
            low, high = report.leakage
            assert low <= largest <= high <= low + 1e-11
            assert exact[report.head, report.row][0] >= low
    report = leakage_report(routing, target)
    assert report.leakage[0] <= worst <= report.leakage[1] <= report.leakage[0] + 1e-11
    assert report.routing_error is not None
    assert furthest <= report.routing_error
    many = leakage_report(routing, target, contexts=[np.array(c) for c in contexts])
    assert many.leakage == pytest.approx(report.leakage, rel=1e-9)
    assert many.rows == 2 * sum(map(len, contexts))


@settings(max_examples=6)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 7.0, 60.0]))
def test_attention_off_the_sum(seed: int, scale: float) -> None:
    """In every context, and over all of them: what neighbours lack, and what others get."""
    routing, target = random_routing(seed, scale, False)
    lack_all, stray_all = attention_off_sum(routing, target)
    worst = np.zeros(5)
    for items in (list(c) for r in range(1, 6) for c in itertools.combinations(range(5), r)):
        lack, stray = attention_off_sum(routing, target, np.array(items))
        exact = exact_rows(routing, target, items)
        wandering = dict.fromkeys(items, mp.mpf(0))
        for head in range(2):
            for i in items:
                own = [
                    e
                    for e, ((s, j), h) in enumerate(
                        zip(target.edges.tolist(), routing.edge_heads, strict=True)
                    )
                    if s == i and h == head and j in items
                ]
                shares = dict(zip(items, exact[head, i][1], strict=True))
                wandering[i] += sum(shares.values())
                for e in own:
                    share = shares[int(target.edges[e, 1])]
                    wandering[i] -= share
                    assert 1 - share <= lack[e] <= lack_all[e] * (1 + 1e-9)
                    assert lack[e] <= 1 - share + 1e-11
        for place, i in enumerate(items):
            assert wandering[i] <= stray[place] <= wandering[i] + 1e-11
            worst[i] = max(worst[i], stray[place])
        absent = ~np.isin(target.edges, items).all(axis=1)
        assert not lack[absent].any()
    assert (worst <= stray_all * (1 + 1e-9)).all()


def simple_routing(scale: float, size: float = 1.0) -> tuple[RoutingLayer, Any]:
    """Two items, 0 -> 1, with scores size, 0 and null at size / 2."""
    w_q, w_k = np.zeros((3, 2)), np.zeros((3, 2))
    w_q[0, 0], w_k[1, 0], w_k[2, 1] = 1.0, size, size / 2
    layer = AttentionLayer(
        w_q=[w_q],
        w_k=[w_k],
        b_q=[[0.0, 1.0]],
        w_v=[np.eye(3, 2)],
        w_o=[np.eye(2)],
        kind="soft",
        logit_scale=scale,
    )
    return RoutingLayer(layer, np.array([0]), size / 2, size / 2), relation_target(
        np.eye(2), [[0, 1]]
    )


def test_verdicts() -> None:
    routing, target = simple_routing(20.0)
    exact = ball(softmax_leakage(2, "1/2", 20))
    report = leakage_report(routing, target)
    assert report.leakage == pytest.approx((float(exact), float(exact)), rel=1e-12)
    assert report.row == 1
    assert verify_leakage(routing, target, "1/1000").verdict == "verified"
    refuted = verify_leakage(routing, target, "1/100000")
    assert refuted.verdict == "refuted"
    assert refuted.counterexample is not None
    assert refuted.counterexample["row"] == "item 1"
    assert (
        verify_leakage(routing, target, Fraction(report.leakage[0]) + Fraction(1, 10**25)).verdict
        == "undecided"
    )
    assert verify_leakage(routing, target, "1/100000", contexts=[[0]]).verdict == "refuted"
    cold, _ = simple_routing(1.0)
    assert verify_leakage(cold, target, "1/1000").verdict == "refuted"


def test_rounding_that_hides_the_logits_is_undecided() -> None:
    """A scale at which the rounding of the scores decides the softmax: a wide interval, no verdict."""
    w_q, w_k = np.zeros((3, 2)), np.zeros((3, 2))
    w_q[0, 0], w_k[1, 0], w_k[2, 1] = 1 / 3, 3.0, 1.0  # float(1/3) * 3 = 1 - 2^-54: below the null
    layer = AttentionLayer(w_q=[w_q], w_k=[w_k], b_q=[[0.0, 1.0]], kind="soft", logit_scale=2.0**60)
    routing, target = (
        RoutingLayer(layer, np.array([0]), 1.0, 1.0),
        relation_target(np.eye(2), [[0, 1]]),
    )
    report = leakage_report(routing, target, contexts=[[0, 1]])
    assert report.leakage[0] < 0.01
    assert report.leakage[1] == 1.0
    assert report.routing_error is None
    certificate = verify_leakage(routing, target, "1/2")
    assert certificate.verdict == "undecided"
    assert "contains" in certificate.reason


def test_wrong_routings() -> None:
    routing, target = simple_routing(20.0)
    with pytest.raises(ArgumentError, match="contexts"):
        leakage_report(routing, target, contexts=[])
    with pytest.raises(ArgumentError, match="contexts"):
        leakage_report(routing, target, contexts=[[0, 0]])
    with pytest.raises(ArgumentError, match="contexts"):
        leakage_report(routing, target, contexts=[[2]])
    with pytest.raises(ArgumentError, match="edge_heads"):
        leakage_report(RoutingLayer(routing.layer, np.array([1]), 1.0, 1.0), target)
    two = relation_target(np.eye(2), [[0, 0], [0, 1]])
    with pytest.raises(ArgumentError, match="edge_heads"):
        leakage_report(RoutingLayer(routing.layer, np.array([0, 0]), 1.0, 1.0), two)
    hard = AttentionLayer(w_q=[np.eye(3)], w_k=[np.eye(3)])
    with pytest.raises(ArgumentError, match="soft"):
        leakage_report(RoutingLayer(hard, np.array([0]), 1.0, 1.0), target)


@pytest.mark.parametrize("contexts", [7, [], "", np.empty((0, 2), dtype=int)])
def test_contexts_that_are_none_at_all(contexts: Any) -> None:
    with pytest.raises(ArgumentError, match="contexts = "):
        checked_contexts(contexts, relation_target(np.eye(3), [[0, 1]]))
