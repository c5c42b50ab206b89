"""C6: layers that name the neighbours of each item, against exact softmax in every context."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.optimize import linprog

from bounds import ArgumentError
from constructions import AttentionLayer, RealizationError, relation_target
from constructions.identity_readout import (
    IdentityLayer,
    dual_readout,
    fitted_readout,
    identity_layer,
)
from constructions.neighbor_sums import NeighborSums, decoding_range
from constructions.routing import RoutingLayer, routing_heads, routing_layer
from verification.identities import verify_identities
from verification.readable_sets import readable_degree
from verification.single_identities import verify_single_identities

mp.dps = 50


def unit(m: int, d: int, seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((m, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def with_degree(m: int, degree: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([(i, j) for i in range(m) for j in rng.choice(m, degree, replace=False)])


def all_contexts(m: int) -> Iterator[list[int]]:
    for size in range(1, m + 1):
        yield from (list(c) for c in itertools.combinations(range(m), size))


def with_weights(
    identity: IdentityLayer, threshold: float | None = None, **new: Any
) -> IdentityLayer:
    """The layer with some of its weights, or its threshold, replaced."""
    names = ("w_q", "w_k", "b_q", "b_k", "w_v", "w_o", "logit_scale")
    layer = AttentionLayer(**{n: getattr(identity.layer, n) for n in names} | new, kind="soft")
    old = identity.routing
    heads = RoutingLayer(layer, old.edge_heads, old.margin, old.null_score)
    return IdentityLayer(heads, identity.threshold if threshold is None else threshold)


# --- the oracle: rational scores, softmax at 50 digits, one context at a time


def dot(a: Any, b: Any) -> Fraction:
    return sum(
        (Fraction(float(u)) * Fraction(float(v)) for u, v in zip(a, b, strict=True)), Fraction(0)
    )


def dot_exact(a: list[Fraction], b: list[Fraction]) -> Fraction:
    return sum((u * v for u, v in zip(a, b, strict=True)), Fraction(0))


def exact_outputs(
    identity: IdentityLayer, target: Any, items: list[int]
) -> dict[tuple[int, int], Any]:
    """z for every item of a context and every candidate."""
    layer, m = identity.layer, target.items
    tokens = identity.routing.tokens(target.embeddings)
    found = {(i, j): mpf(0) for i in items for j in range(m)}
    values = {(n, j): dot(target.embeddings[n], layer.w_o[0][j]) for n in items for j in range(m)}
    for h in range(layer.heads):

        def project(row: int, side: str, h: int = h) -> list[Fraction]:
            weights, biases = getattr(layer, f"w_{side}")[h], getattr(layer, f"b_{side}")
            shift = biases[h] if biases else np.zeros(weights.shape[1])
            return [
                dot(tokens[row], column) + Fraction(float(b))
                for column, b in zip(weights.T, shift, strict=True)
            ]

        keys = [project(j, "k") for j in [*items, m]]
        for i in items:
            query = project(i, "q")
            scores = [
                sum((a * b for a, b in zip(query, key, strict=True)), Fraction(0)) for key in keys
            ]
            top = max(scores)
            gaps = [Fraction(layer.logit_scale) * (s - top) for s in scores]
            masses = [mp.exp(mpf(g.numerator) / g.denominator) for g in gaps]
            total = mp.fsum(masses)
            for j in range(m):
                found[i, j] += mp.fsum(
                    mass / total * values[n, j].numerator / values[n, j].denominator
                    for mass, n in zip(masses, items, strict=False)
                )
    return found


def exact_right(identity: IdentityLayer, target: Any, items: list[int]) -> tuple[bool, Any]:
    """Whether a context is read right, and the least distance of an output from the threshold."""
    edges = {(int(i), int(j)) for i, j in target.edges}
    right, nearest = True, mp.inf
    for (i, j), z in exact_outputs(identity, target, items).items():
        wanted = (i, j) in edges and j in items
        right &= (z > identity.threshold) == wanted
        nearest = min(nearest, abs(z - identity.threshold))
    return right, nearest


@cache
def small_case(seed: int, scale: float) -> tuple[IdentityLayer, Any]:
    """Four items in three dimensions, self-relations among the relations, a softmax of some scale."""
    for draw in itertools.count(100 * seed):
        rng = np.random.default_rng(draw)
        x = unit(4, 3, draw)
        pairs = [(i, j) for i in range(4) for j in rng.permutation(4)[: rng.integers(0, 3)]]
        if not pairs:
            continue
        target = relation_target(x, pairs)
        try:
            routing = routing_layer(routing_heads(x, pairs, key_dim=3), target, "1/1000")
            identity = identity_layer(routing, target)
        except RealizationError:
            continue
        return with_weights(identity, logit_scale=routing.layer.logit_scale * scale), target
    raise AssertionError


@settings(max_examples=16)
@given(
    st.integers(0, 11),
    st.sampled_from([0.05, 0.2, 0.4, 1.0]),
    st.sampled_from([0.0, 0.1, 0.25, -0.3]),
    st.integers(0, 10**6),
)
def test_verdicts_agree_with_every_context(
    seed: int, scale: float, shift: float, place: int
) -> None:
    identity, target = small_case(seed, scale)
    identity = with_weights(identity, threshold=0.5 + shift)
    certificate = verify_identities(identity, target)
    contexts = list(all_contexts(4))
    judged = [exact_right(identity, target, c) for c in contexts]
    if certificate.verdict == "verified":
        assert all(right for right, _ in judged)
        assert certificate.margin is not None
        assert 0 < certificate.margin <= min(nearest for _, nearest in judged)
    if certificate.verdict == "refuted":
        check_counterexample(identity, target, certificate.counterexample)
    if not all(right for right, _ in judged):
        assert certificate.verdict != "verified"
    one = contexts[place % len(contexts)]
    alone = verify_identities(identity, target, contexts=[one])
    assert alone.verdict == ("verified" if exact_right(identity, target, one)[0] else "refuted")
    assert alone.checked == 4 * len(one)
    if alone.counterexample is not None:
        assert alone.counterexample["context"] == one
        check_counterexample(identity, target, alone.counterexample)
    elif alone.margin is not None:
        assert alone.margin <= exact_right(identity, target, one)[1]


def check_counterexample(identity: IdentityLayer, target: Any, found: Any) -> None:
    """It really fails, the interval contains the output, and names and words fit."""
    i, j = found["indices"]
    z = exact_outputs(identity, target, found["context"])[i, j]
    wanted = [i, j] in target.edges.tolist() and j in found["context"]
    assert (z > identity.threshold) != wanted
    assert found["output"][0] <= z <= found["output"][1]
    assert (found["problem"] == "a neighbor that is not named") == wanted
    assert (found["row"], found["candidate"]) == (target.name(i), target.name(j))


def test_all_verdicts_occur() -> None:
    seen = {
        verify_identities(
            with_weights(small_case(s, c)[0], threshold=t), small_case(s, c)[1]
        ).verdict
        for s in range(4)
        for c in (0.05, 0.2, 1.0)
        for t in (0.5, 0.75, 1.0)
    }
    assert seen == {"verified", "refuted", "undecided"}


def test_the_certified_error_covers_the_outputs_and_is_not_wasteful() -> None:
    """The largest distance of an output from its exact sum, over all contexts."""
    for seed, scale in ((0, 0.3), (3, 0.2), (5, 0.4)):
        identity, target = small_case(seed, scale)
        furthest = mp.mpf(0)
        for items in all_contexts(4):
            for (i, j), z in exact_outputs(identity, target, items).items():
                near = [n for s, n in target.edges.tolist() if s == i and n in items]
                exact = sum(
                    (dot(target.embeddings[n], identity.readout[j]) for n in near), Fraction(0)
                )
                furthest = max(furthest, abs(z - mpf(exact.numerator) / exact.denominator))
        bound = verify_identities(identity, target).details["outputs are off exact sums by at most"]
        assert furthest <= bound <= 6 * furthest + 1e-15


# --- the readouts


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 4))
def test_decoding_range_is_exact_over_all_subsets(seed: int, m: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, (m, d)).astype(float)
    r = rng.integers(-3, 4, (m, d)).astype(float)
    flat = rng.choice(m * m, rng.integers(1, m * m + 1), replace=False)
    edges = relation_target(np.eye(m), np.stack(np.divmod(flat, m), axis=1)).edges
    least, largest = np.full(m, np.inf), np.zeros(m)
    for items in all_contexts(m):
        for i in items:
            near = [j for s, j in edges.tolist() if s == i and j in items]
            z = r @ x[near].sum(axis=0)
            for j in range(m):
                if j in near:
                    least[j] = min(least[j], z[j])
                else:
                    largest[j] = max(largest[j], z[j])
    low, high = decoding_range(NeighborSums(edges, m), x, r)
    assert low.tolist() == least.tolist()
    assert high.tolist() == largest.tolist()


def test_dual_vectors_of_independent_embeddings_are_indicators() -> None:
    x = unit(7, 9, 0) * np.arange(1, 8)[:, None]
    assert np.abs(x @ dual_readout(x).T - np.eye(7)).max() < 1e-13
    some = dual_readout(unit(12, 5, 1), [1, 4, 6])
    assert np.abs((unit(12, 5, 1) @ some.T)[[1, 4, 6]][:, [1, 4, 6]] - np.eye(3)).max() < 1e-13
    assert not some[[0, 2, 3, 5, 7, 8, 9, 10, 11]].any()


@given(st.integers(0, 10**6))
def test_dual_vectors_have_the_least_cross_talk(seed: int) -> None:
    x = unit(9, 4, seed)
    r = dual_readout(x)
    cross = x @ r.T
    assert np.abs(np.diag(cross) - 1).max() < 1e-12
    energy = (cross**2).sum(axis=0) - 1
    others = r + np.random.default_rng(seed).standard_normal(r.shape)
    others /= np.einsum("jd,jd->j", x, others)[:, None]
    assert (energy <= ((x @ others.T) ** 2).sum(axis=0) - 1 + 1e-9).all()
    assert energy.mean() >= 9 / 4 - 1 - 1e-12  # Welch


@given(st.integers(0, 10**6))
def test_gradient_of_the_fit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, edges = rng.standard_normal((6, 3)), with_degree(6, 3, seed)
    graph = NeighborSums(relation_target(x, edges).edges, 6)
    candidates = np.sort(rng.choice(6, 4, replace=False))
    flat, step = rng.standard_normal(12), 1e-6 * rng.standard_normal(12)
    _, gradient = graph.loss(flat, x, candidates, 0.25)
    up, down = (graph.loss(flat + s * step, x, candidates, 0.25)[0] for s in (1, -1))
    assert up - down == pytest.approx(2 * gradient @ step, rel=1e-4, abs=1e-10)


def best_margin(x: np.ndarray, edges: np.ndarray, j: int) -> float:
    """The largest g for which some r has all sums with j at 1/2 + g or more, all others at 1/2 - g
    or less: a linear program over every subset of every neighbour set, written out."""
    rows, limits = [], []
    for i in range(len(x)):
        near = edges[edges[:, 0] == i, 1].tolist()
        for size in range(len(near) + 1):
            for chosen in itertools.combinations(near, size):
                if i in near and i not in chosen:
                    continue  # the item itself is always in its context
                total, sign = x[list(chosen)].sum(axis=0), -1.0 if j in chosen else 1.0
                rows.append([*(sign * total), 1.0])
                limits.append(sign * 0.5)
    found = linprog(
        [0.0] * x.shape[1] + [-1.0],
        A_ub=rows,
        b_ub=limits,
        bounds=[(None, None)] * x.shape[1] + [(None, 1)],
    )
    assert found.status == 0
    return float(found.x[-1])


def test_fitted_vectors_exist_where_a_linear_program_says_so() -> None:
    found, missed = 0, 0
    for seed in (1, 3, 4, 8):
        m, d = 8, 3 + seed % 3
        x, edges = unit(m, d, seed), with_degree(m, 2, seed)
        target = relation_target(x, edges)
        graph, items = NeighborSums(target.edges, m), np.unique(target.edges[:, 1]).tolist()
        margins = {j: best_margin(x, target.edges, j) for j in items}
        for j in items:
            vector, margin = graph.best_vector(x, j)
            assert margin == pytest.approx(min(margins[j], 0.5), abs=1e-7)
            low, high = decoding_range(graph, x, np.tile(vector, (m, 1)))
            assert low[j] >= 0.5 + margin - 1e-7
            assert high[j] <= 0.5 - margin + 1e-7
        low, high = decoding_range(graph, x, fitted_readout(target))
        if min(margins.values()) > 0.01:
            assert (low > high).all()
            found += 1
        for j in items:
            if margins[j] < -0.001:
                assert low[j] <= high[j]
                missed += 1
    assert found == 2
    assert missed >= 5


def test_the_linear_program_knows_that_an_item_is_in_its_own_context() -> None:
    """Item 0 relates to itself: its sums never lack it, however large item 1 is."""
    x, graph = np.array([[1.0], [10.0]]), NeighborSums(np.array([[0, 0], [0, 1]]), 2)
    vector, margin = graph.best_vector(x, 0)
    assert margin == pytest.approx(0.5)
    assert vector[0] >= 1 - 1e-9
    assert graph.best_vector(x, 1)[1] == pytest.approx(best_margin(x, graph.edges, 1), abs=1e-7)


def test_linear_programs_alone_read_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("constructions.identity_readout._MARGINS", ())
    x, edges = unit(8, 4, 4), with_degree(8, 2, 4)
    target = relation_target(x, edges)
    graph, items = NeighborSums(target.edges, 8), np.unique(target.edges[:, 1])
    low, high = decoding_range(graph, x, dual_readout(x, items))
    assert (low <= high).any()
    low, high = decoding_range(graph, x, fitted_readout(target))
    assert (low > high).all()


def test_items_that_are_no_neighbours_do_not_disturb() -> None:
    x = unit(12, 6, 0)
    target = relation_target(x, [[i, i % 5] for i in range(12)])
    routing = routing_layer(routing_heads(x, target.edges, key_dim=6), target, "1/1000")
    identity = identity_layer(routing, target, readout="dual")
    assert not identity.readout[5:].any()
    assert np.abs(x[:5] @ identity.readout[:5].T - np.eye(5)).max() < 1e-12
    assert verify_identities(identity, target).holds


def test_fitting_reads_what_dual_vectors_do_not() -> None:
    x, edges = unit(24, 16, 0), with_degree(24, 3, 0)
    target = relation_target(x, edges)
    routing = routing_layer(routing_heads(x, edges, key_dim=8), target, "1/10000")
    for readout in ("tied", "dual", dual_readout(x)):
        with pytest.raises(RealizationError, match="does not tell neighbors"):
            identity_layer(routing, target, readout=readout)  # type: ignore[arg-type]
    fitted = identity_layer(routing, target, readout="fitted")
    assert verify_identities(fitted, target).holds
    assert (fitted.read(x) == target.rows(0, 24)).all()


# --- layers


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "biases"])
def case(request: pytest.FixtureRequest) -> tuple[RoutingLayer, Any]:
    x, edges = unit(24, 16, 0), with_degree(24, 2, 1)
    edges = np.unique(np.concatenate([edges[edges[:, 0] > 3], [[3, 3], [3, 4]]]), axis=0)
    target = relation_target(x, edges, [f"name {i}" for i in range(24)])
    heads = routing_heads(x, edges, key_dim=8, bias=request.param)
    return routing_layer(heads, target, "1/10000", share=0.5), target


@pytest.mark.parametrize("readout", ["dual", "fitted"])
def test_the_output_names_the_neighbours(case: tuple, readout: Any) -> None:
    routing, target = case
    identity = identity_layer(routing, target, readout=readout)
    assert identity.layer.attend(np.eye(17), np.eye(17)).shape == (17, 24)
    certificate = verify_identities(identity, target)
    assert certificate.holds
    assert (certificate.scope, certificate.checked) == ("all contexts", 24 * 24)
    adjacency = target.rows(0, 24)
    assert (identity.read(target.embeddings) == adjacency).all()
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 16):
        items = rng.choice(24, size, replace=False)
        present = np.zeros((size, 24), dtype=bool)
        present[:, items] = adjacency[np.ix_(items, items)]
        assert (identity.read(target.embeddings[items]) == present).all()
        assert verify_identities(identity, target, contexts=[items]).holds
    outputs = identity.routing.route(target.embeddings)
    assert certificate.margin is not None
    assert certificate.margin <= np.abs(outputs - 0.5).min()


def test_tied_readout_of_nearly_orthogonal_embeddings() -> None:
    x = np.eye(12) + 0.02 * unit(12, 12, 3)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    target = relation_target(x, with_degree(12, 3, 0))
    routing = routing_layer(routing_heads(x, target.edges, key_dim=6), target, "1/10000")
    identity = identity_layer(routing, target, readout="tied")
    assert (identity.readout == x).all()
    assert 0.4 < identity.threshold < 0.6
    assert verify_identities(identity, target).holds
    assert identity_layer(routing, target, readout="tied", threshold=0.5).threshold == 0.5
    for theta in (-0.05, 0.99):
        with pytest.raises(RealizationError, match="by the threshold"):
            identity_layer(routing, target, readout="tied", threshold=theta)


@pytest.mark.parametrize("item", [0, 5, 23])
def test_perturbed_readouts_are_refuted(case: tuple, item: int) -> None:
    routing, target = case
    identity = identity_layer(routing, target)
    vectors = identity.readout.copy()
    j = int(target.edges[item, 1])
    vectors[j] *= 0.3  # a neighbour that falls below the threshold
    bad = with_weights(identity, w_o=[vectors] * identity.layer.heads)
    certificate = verify_identities(bad, target)
    assert certificate.verdict == "refuted"
    found = certificate.counterexample
    assert found is not None
    assert found["candidate"] == f"'name {j}'"
    assert found["problem"] == "a neighbor that is not named"
    row = found["context"].index(found["indices"][0])
    z = bad.routing.route(target.embeddings[found["context"]])[row, j]
    assert found["output"][0] <= z + 1e-12
    assert z - 1e-12 <= found["output"][1] <= 0.5
    vectors = identity.readout.copy()
    k = int(np.setdiff1d(np.arange(24), [j])[item - 1])
    vectors[k] += 0.8 * target.embeddings[j]  # named where j is a neighbour
    bad = with_weights(identity, w_o=[vectors] * identity.layer.heads)
    found = verify_identities(bad, target).counterexample
    assert found is not None
    assert found["problem"] == "named, but no neighbor"
    row = found["context"].index(found["indices"][0])
    read = bad.read(target.embeddings[found["context"]])
    assert read[row, found["indices"][1]]


def test_perturbed_routing_weights_are_refuted(case: tuple) -> None:
    routing, target = case
    identity = identity_layer(routing, target)
    swapped = [identity.layer.w_q[1], identity.layer.w_q[0], *identity.layer.w_q[2:]]
    for bad in (
        with_weights(identity, logit_scale=identity.layer.logit_scale / 1000),
        with_weights(identity, w_q=[0 * w for w in identity.layer.w_q]),
        with_weights(identity, w_q=swapped),
    ):
        everywhere = verify_identities(bad, target)
        assert everywhere.verdict == "refuted"
        assert everywhere.counterexample is not None
        items = everywhere.counterexample["context"]
        present = np.zeros((len(items), 24), dtype=bool)
        present[:, items] = target.rows(0, 24)[np.ix_(items, items)]
        assert (bad.read(target.embeddings[items]) != present).any()
        assert verify_identities(bad, target, contexts=[items]).verdict == "refuted"
        assert verify_identities(bad, target, contexts=[np.arange(24)]).verdict == "refuted"


def test_what_fails_in_the_whole_context_is_found_among_all(case: tuple) -> None:
    """Attention strays most among all items; with few, the same layer may be right."""
    routing, target = case
    identity = identity_layer(routing, target)
    seen = set()
    for divisor in (2, 4, 6, 8, 12, 16):
        cold = with_weights(identity, logit_scale=identity.layer.logit_scale / divisor)
        whole = verify_identities(cold, target, contexts=[np.arange(24)]).verdict
        seen.add(whole)
        assert (verify_identities(cold, target).verdict == "refuted") == (whole == "refuted")
    assert seen == {"verified", "refuted"}


def test_an_output_at_the_threshold_is_no_name_and_is_decided_exactly() -> None:
    """All scores 0: an item alone and the null token get a half each, exactly."""
    layer = AttentionLayer(
        w_q=[np.zeros((3, 1))],
        w_k=[np.zeros((3, 1))],
        w_v=[np.eye(3, 2)],
        w_o=[3.0 * np.eye(2)],
        kind="soft",
    )
    target = relation_target(np.eye(2), [[0, 0]])
    heads = RoutingLayer(layer, np.array([0]), 0.0, 0.0)
    equal = verify_identities(IdentityLayer(heads, 1.5), target, contexts=[[0]])
    assert equal.counterexample is not None
    assert equal.counterexample["problem"] == "a neighbor that is not named"
    assert equal.counterexample["output"] == [1.5, 1.5]
    below = verify_identities(IdentityLayer(heads, 1.5 - 2.0**-52), target, contexts=[[0]])
    assert below.holds
    assert below.margin == 2.0**-52
    same = with_weights(IdentityLayer(heads, 1.0), w_o=[[[3.0, 0.0], [3.0, 0.0]]])
    level = verify_single_identities(same, target, contexts=[[0]])  # two outputs of 3/2
    assert level.counterexample is not None
    assert level.counterexample["rival"] == "item 1"
    assert verify_single_identities(same, target).verdict == "refuted"
    # with both items it is 3/3, of which no ball says that it is 1
    both = verify_identities(IdentityLayer(heads, 1.0), target, contexts=[[0, 1]])
    assert both.verdict == "undecided"
    assert both.reason == "4 outputs are within their errors of the threshold"


def test_outputs_that_float64_gets_wrong() -> None:
    """10^16 + 1.2 - 10^16 is 2 in float64: named by the floats, not by the layer."""
    x = np.array([[0.0, 0.0, 0.0], [1e16, 1.0, 1e16]])
    vectors = np.array([[0.0, 0.0, 0.0], [1.0, 1.2, -1.0]])
    w_q, w_k = np.zeros((4, 2)), np.zeros((4, 2))
    w_k[1, 0], w_k[3, 1] = 100.0, 50.0  # the neighbour scores 100 in every row, the null token 50
    layer = AttentionLayer(
        w_q=[w_q], w_k=[w_k], b_q=[[1.0, 1.0]], w_v=[np.eye(4, 3)], w_o=[vectors], kind="soft"
    )
    target = relation_target(x, [[0, 1], [1, 1]])
    identity = IdentityLayer(RoutingLayer(layer, np.array([0, 0]), 50.0, 50.0), 1.5)
    assert exact_outputs(identity, target, [0, 1])[0, 1] == pytest.approx(1.2)
    for contexts in (None, [[0, 1]], [[1]]):
        assert verify_identities(identity, target, contexts=contexts).verdict == "refuted"
    assert verify_identities(with_weights(identity, threshold=1.1), target).verdict == "undecided"
    near = with_weights(identity, threshold=1.1)
    assert verify_identities(near, target, contexts=[[0, 1], [1]]).verdict == "verified"
    # an absent item that the floats would name, and that is not named
    vectors = np.array([[1.0, 1.2, -1.0], [0.0, 2.0, 0.0]])
    absent = with_weights(identity, w_o=[vectors])
    assert verify_identities(absent, target, contexts=[[0, 1]]).verdict == "verified"
    assert verify_identities(absent, target).verdict == "undecided"
    assert readable_degree(x[1:], vectors[:1], 1.5) == readable_degree(x[1:], vectors[:1], 1.1) == 0


# --- the largest output


def exact_single(identity: IdentityLayer, target: Any, items: list[int]) -> tuple[int, bool, Any]:
    """Rows with one neighbour in a context, whether all leads are positive, and the least lead."""
    outputs = exact_outputs(identity, target, items)
    rows, least = 0, mp.inf
    for i in items:
        near = [j for s, j in target.edges.tolist() if s == i and j in items]
        if len(near) == 1:
            rows += 1
            others = [outputs[i, j] for j in range(target.items) if j != near[0]]
            least = min(least, outputs[i, near[0]] - max(others))
    return rows, bool(least > 0), least


@settings(max_examples=15)
@given(st.integers(0, 11), st.sampled_from([0.05, 0.2, 1.0]), st.integers(0, 14), st.floats(0, 1.2))
def test_the_largest_output_in_every_context(
    seed: int, scale: float, place: int, mix: float
) -> None:
    identity, target = small_case(seed, scale)
    vectors = identity.readout.copy()
    vectors[0] += mix * vectors[1]  # a rival of item 1
    identity = with_weights(identity, w_o=[vectors] * identity.layer.heads)
    contexts = list(all_contexts(4))
    judged = [exact_single(identity, target, c) for c in contexts]
    certificate = verify_single_identities(identity, target)
    if certificate.verdict == "verified":
        assert all(right for _, right, _ in judged)
        assert certificate.margin is not None
        assert certificate.margin <= min(least for _, _, least in judged)
    if not all(right for _, right, _ in judged):
        assert certificate.verdict != "verified"
    one = contexts[place]
    rows, right, least = exact_single(identity, target, one)
    if rows == 0:
        with pytest.raises(ArgumentError, match="exactly one neighbor"):
            verify_single_identities(identity, target, contexts=[one])
        return
    alone = verify_single_identities(identity, target, contexts=[one])
    assert alone.checked == rows
    assert alone.verdict == ("verified" if right else "refuted") or abs(least) < 0.2
    for found in (certificate.counterexample, alone.counterexample):
        if found is not None:
            i, n, rival = found["indices"]
            z = exact_outputs(identity, target, found["context"])
            assert z[i, n] - z[i, rival] <= found["lead of the neighbor at most"] <= 0


def test_the_largest_output_needs_no_threshold(case: tuple) -> None:
    routing, target = case
    single = relation_target(
        target.embeddings, target.edges[np.unique(target.edges[:, 0], return_index=True)[1]]
    )
    heads = routing_heads(single.embeddings, single.edges, key_dim=8)
    identity = identity_layer(
        routing_layer(heads, single, "1/1000"), single, readout=single.embeddings
    )
    certificate = verify_single_identities(identity, single)
    assert certificate.holds
    assert certificate.checked == single.relations
    named = identity.read_one(single.embeddings)
    crossed = np.roll(single.embeddings, 1, axis=0) + 3 * single.embeddings
    with pytest.raises(RealizationError):
        identity_layer(identity.routing, single, readout=crossed, threshold=5.0)
    largest = identity_layer(identity.routing, single, readout=crossed, rule="largest")
    assert (largest.readout == crossed).all()
    assert verify_single_identities(largest, single).holds
    assert (named[single.edges[:, 0]] == single.edges[:, 1]).all()
    flipped = with_weights(identity, w_o=[-identity.readout] * identity.layer.heads)
    assert verify_single_identities(flipped, single).verdict == "refuted"
    assert not verify_identities(with_weights(identity, threshold=7.0), single).holds
    assert verify_single_identities(with_weights(identity, threshold=7.0), single).holds
    several = identity_layer(routing, target)
    assert verify_single_identities(several, target).checked == 40
    with pytest.raises(ArgumentError, match="exactly one neighbor"):
        verify_single_identities(several, target, contexts=[np.arange(24)])


# --- arguments


def test_wrong_arguments(case: tuple) -> None:
    routing, target = case
    identity = identity_layer(routing, target)
    with pytest.raises(ArgumentError, match="readout"):
        identity_layer(routing, target, readout="best")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="readout"):
        identity_layer(routing, target, readout=np.eye(3))
    with pytest.raises(ArgumentError, match="threshold"):
        identity_layer(routing, target, readout="dual", threshold=0.3)
    with pytest.raises(ArgumentError, match="embeddings"):
        identity_layer(routing, relation_target(np.eye(24), target.edges))
    with pytest.raises(ArgumentError, match="threshold"):
        identity_layer(routing, target, readout="tied", rule="largest", threshold=0.3)
    with pytest.raises(ArgumentError, match="rule"):
        identity_layer(routing, target, rule="all")  # type: ignore[arg-type]
    for theta in (np.nan, np.inf):
        with pytest.raises(ArgumentError, match="threshold"):
            verify_identities(with_weights(identity, threshold=theta), target)
    with pytest.raises(ArgumentError, match="items"):
        dual_readout(np.eye(3), [3])
    for judge in (verify_identities, verify_single_identities):
        for contexts in ([], [[0, 0]], [[24]], [[]]):
            with pytest.raises(ArgumentError, match="contexts"):
                judge(identity, target, contexts=contexts)
        mixed = [identity.readout] * (identity.layer.heads - 1) + [2 * identity.readout]
        with pytest.raises(ArgumentError, match="w_o"):
            judge(with_weights(identity, w_o=mixed), target)
        with pytest.raises(ArgumentError, match="readout"):
            judge(with_weights(identity, w_o=[np.eye(16)] * identity.layer.heads), target)
        with pytest.raises(ArgumentError, match="w_v"):
            judge(with_weights(identity, w_v=[2 * w for w in identity.layer.w_v]), target)
        with pytest.raises(OverflowError):
            judge(
                with_weights(identity, w_o=[1.5e308 * np.ones((24, 16))] * identity.layer.heads),
                target,
            )
