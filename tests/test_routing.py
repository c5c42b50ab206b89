"""C6: softmax layers that route the sum of an item's neighbours, and two of them stacked."""

from __future__ import annotations

import importlib.util
import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from bounds import ArgumentError
from bounds.softmax_leakage import leakage_scale
from constructions import AttentionLayer, RealizationError, relation_target
from constructions.routing import RoutingLayer, routing_heads, routing_layer
from verification.leakage import leakage_report, verify_leakage


def unit(m: int, d: int, seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((m, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def random_edges(m: int, count: int, seed: int) -> np.ndarray:
    flat = np.random.default_rng(seed).choice(m * m, size=count, replace=False)
    return np.stack(np.divmod(flat, m), axis=1)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "biases"])
def case(request: pytest.FixtureRequest) -> tuple[AttentionLayer, object]:
    x, edges = unit(24, 10, 0), random_edges(24, 40, 1)
    edges = np.unique(np.concatenate([edges, [[3, 3], [3, 4], [3, 5]]]), axis=0)
    layer = routing_heads(x, edges, key_dim=7, block=12, bias=request.param)
    return layer, relation_target(x, edges)


def test_each_relation_in_one_head_and_one_relation_a_row(case: tuple) -> None:
    layer, target = case
    x = target.embeddings
    above = np.array([layer.scores(h, x, x) > layer.threshold for h in range(layer.heads)])
    assert (above.sum(axis=0) == target.rows(0, target.items)).all()  # exactly the graph, each once
    assert above.sum(axis=2).max() == 1
    assert bool(layer.b_q) == bool(layer.b_k)


@pytest.mark.parametrize("null", ["threshold", "balanced"])
def test_the_output_is_the_sum_of_the_neighbours(case: tuple, null: str) -> None:
    layer, target = case
    routing = routing_layer(layer, target, "1/10000", null=null)  # type: ignore[arg-type]
    wanted = target.rows(0, target.items) @ target.embeddings
    off = np.linalg.norm(routing.route(target.embeddings) - wanted, axis=1).max()
    report = leakage_report(routing, target)
    assert report.leakage[1] <= 1e-4
    assert report.routing_error is not None
    assert (
        off <= report.routing_error <= 1e-4 * (layer.heads + np.bincount(target.edges[:, 0]).max())
    )
    assert verify_leakage(routing, target, "1/10000").holds
    rng = np.random.default_rng(0)
    for size in (1, 2, 7):
        items = rng.choice(target.items, size, replace=False)
        inside = target.rows(0, target.items)[np.ix_(items, items)]
        got = routing.route(target.embeddings[items])
        off = np.linalg.norm(got - inside @ target.embeddings[items], axis=1).max()
        assert off <= report.routing_error


def test_the_null_token_scores_the_threshold_in_every_row(case: tuple) -> None:
    """Exactly, biases or not; and items score as they did."""
    layer, target = case
    routing = routing_layer(layer, target, "1/100")
    tokens = routing.tokens(target.embeddings)
    for head in range(layer.heads):
        query, key = routing.layer.projections(head, tokens[:-1], tokens)
        assert (key[-1, :-1] == 0).all()
        assert (query[:, -1] == 1).all()
        assert (key[:-1, -1] == 0).all()
        assert key[-1, -1] == layer.threshold == routing.null_score
        old = layer.scores(head, target.embeddings, target.embeddings)
        assert np.allclose(query @ key[:-1].T, old, rtol=0, atol=1e-12)
    assert routing.layer.key_dimension == layer.key_dimension + layer.heads


def test_the_scale_is_the_least_one_for_the_certified_margin(case: tuple) -> None:
    layer, target = case
    routing = routing_layer(layer, target, "1/100")
    x = target.embeddings
    gaps = [np.abs(layer.scores(h, x, x) - layer.threshold).min() for h in range(layer.heads)]
    assert routing.margin <= min(gaps) <= routing.margin + 1e-9
    least = float(leakage_scale(target.items, routing.margin, "1/100").value)  # type: ignore[arg-type]
    assert least <= routing.layer.logit_scale <= least * 1.00001
    small = routing_layer(layer, target, "1/100", context=3)
    assert small.layer.logit_scale < routing.layer.logit_scale
    contexts = [np.array(c) for c in ([0, 1, 2], [3, 4, 5], [23, 3, 11])]
    assert verify_leakage(small, target, "1/100", contexts=contexts).holds


def test_a_row_without_a_relation_gets_almost_nothing() -> None:
    x = unit(10, 5, 3)
    target = relation_target(x, [[0, 1], [2, 3]])
    routing = routing_layer(routing_heads(x, target.edges, key_dim=3), target, "1/1000000")
    out = routing.route(x)
    assert np.abs(out[[1, 3, 4, 5, 6, 7, 8, 9]]).max() < 2e-6
    assert np.abs(out[[0, 2]] - x[[1, 3]]).max() < 2e-6


def test_the_mean_of_two_neighbours() -> None:
    x = unit(12, 8, 4)
    edges = [[i, (i + s) % 12] for i in range(12) for s in (1, 5)]
    target = relation_target(x, edges)
    routing = routing_layer(routing_heads(x, edges, key_dim=7), target, "1/100000", share=0.5)
    mean = (x[(np.arange(12) + 1) % 12] + x[(np.arange(12) + 5) % 12]) / 2
    error = leakage_report(routing, target).routing_error
    assert error is not None
    assert np.linalg.norm(routing.route(x) - mean, axis=1).max() <= error < 1e-4


def test_too_small_a_scale_is_refuted(case: tuple) -> None:
    layer, target = case
    good = routing_layer(layer, target, "1/1000")
    fields = {n: getattr(good.layer, n) for n in ("w_q", "w_k", "w_v", "w_o", "b_q", "b_k")}
    cold = AttentionLayer(**fields, kind="soft", logit_scale=good.layer.logit_scale / 10)
    weak = RoutingLayer(cold, good.edge_heads, good.margin, good.null_score)
    assert verify_leakage(weak, target, "1/1000").verdict == "refuted"
    other = good.edge_heads.copy()
    sources = target.edges[:, 0]
    alone = np.flatnonzero(np.bincount(sources)[sources] == 1)[0]
    other[alone] = (other[alone] + 1) % layer.heads
    misplaced = RoutingLayer(good.layer, other, good.margin, good.null_score)
    assert verify_leakage(misplaced, target, "1/1000").verdict == "refuted"


def test_layers_that_do_not_route_are_refused() -> None:
    x = np.eye(3)
    edges = [[0, 1], [1, 2]]
    target = relation_target(x, edges)
    w = [np.eye(3), np.roll(np.eye(3), 1, axis=1)]
    shift = np.roll(np.eye(3), -1, axis=1)
    one = AttentionLayer(w_q=[np.diag([1.0, 1, 0])], w_k=[shift], threshold=0.5)
    assert routing_layer(one, target, "1/10").layer.heads == 1
    both = AttentionLayer(w_q=[np.diag([1.0, 1, 0])] * 2, w_k=[shift] * 2, threshold=0.5)
    with pytest.raises(ArgumentError, match="2 heads"):
        routing_layer(both, target, "1/10")
    none = AttentionLayer(w_q=[np.diag([1.0, 0, 0])], w_k=[shift], threshold=0.5)
    with pytest.raises(ArgumentError, match="0 heads"):
        routing_layer(none, target, "1/10")
    row = AttentionLayer(w_q=[[[1.0], [0], [0]]], w_k=[[[0.0], [1], [1]]], threshold=0.5)
    with pytest.raises(ArgumentError, match="two relations of item 0"):
        routing_layer(row, relation_target(x, [[0, 1], [0, 2]]), "1/10")
    with pytest.raises(ArgumentError, match="other pairs"):
        routing_layer(one, relation_target(x, [[0, 1]]), "1/10")
    with pytest.raises(ArgumentError, match="routes no values"):
        routing_layer(AttentionLayer(w_q=w, w_k=w), target, "1/10")
    with pytest.raises(RealizationError):
        routing_heads([[1.0, 0.0], [1.0, 0.0]], [[0, 1]], key_dim=1)
    with pytest.raises(ArgumentError, match="embeddings"):
        routing_layer(one, target, "1/10").tokens(np.eye(4))


def example() -> ModuleType:
    path = Path(__file__).parents[1] / "examples" / "two_hop.py"
    spec = importlib.util.spec_from_file_location("two_hop", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["two_hop"] = module
    spec.loader.exec_module(module)
    return module


def test_two_hops() -> None:
    two_hop = example()
    target, successor = two_hop.random_successors(20, 8, seed=1)
    heads = routing_heads(target.embeddings, target.edges, key_dim=5, block=10)
    found = two_hop.two_hops(routing_layer(heads, target, Fraction(1, 10**6)), target)
    error = np.linalg.norm(found.output - target.embeddings[successor[successor]], axis=1).max()
    assert error <= found.errors[1] < 1e-4
    assert ((found.output @ target.embeddings.T).argmax(axis=1) == successor[successor]).all()
    assert found.layers[0].attend(np.eye(25), np.eye(25)).shape == (25, 25)


def test_two_hops_of_a_graph_with_ends() -> None:
    """Where the first hop finds nobody, the second finds nobody."""
    two_hop = example()
    x = unit(9, 5, 2)
    target = relation_target(x, [[0, 1], [1, 2], [3, 4]])
    routing = routing_layer(routing_heads(x, target.edges, key_dim=3), target, "1/1000000")
    found = two_hop.two_hops(routing, target)
    wanted = np.zeros((9, 5))
    wanted[0] = x[2]
    assert np.linalg.norm(found.output - wanted, axis=1).max() <= found.errors[1] < 1e-4
    hot = routing_layer(routing_heads(x, target.edges, key_dim=3), target, "1/2")
    with pytest.raises(ValueError, match="eats the margin"):
        two_hop.two_hops(hot, target)
