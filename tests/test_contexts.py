"""Given contexts: which pairs meet, what is checked there, and what stays free elsewhere."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds.errors import ArgumentError
from constructions import AttentionLayer, RealizationError, relation_layer, relation_target
from constructions.contexts import (
    context_layer,
    context_report,
    context_target,
    covering_contexts,
    random_context_failure,
    random_contexts,
)
from verification import verify


def items_and_permutation(m: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(m, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x, np.stack([np.arange(m), rng.permutation(m)], axis=1)


@given(
    st.lists(st.lists(st.integers(0, 8), min_size=1, unique=True), min_size=1, max_size=5),
    st.integers(0, 99),
)
def test_pairs_that_meet(contexts: list[list[int]], seed: int) -> None:
    x, edges = items_and_permutation(9, 3, seed)
    target = context_target(x, edges, contexts)
    pairs = sorted({(i, j) for c in contexts for i in c for j in c})
    relations = {(int(i), int(j)) for i, j in edges}
    assert [tuple(pair) for pair in target.pairs.tolist()] == pairs
    assert target.related.tolist() == [pair in relations for pair in pairs]


def test_all_contexts_of_two_items_are_all_pairs() -> None:
    x, edges = items_and_permutation(7, 3)
    target = context_target(x, edges, list(combinations(range(7), 2)))
    assert len(target.pairs) == 49
    single = context_target(x, edges, [[i] for i in range(7)])
    assert single.pairs.tolist() == [[i, i] for i in range(7)]


@given(st.integers(0, 200))
def test_the_report_is_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, edges = items_and_permutation(8, 4, seed)
    layer = relation_layer(x, edges, method="rank-one")
    w_q = [w * rng.choice([1.0, 0.1], p=[0.8, 0.2]) for w in layer.w_q]
    b_q = [b * 1.0 for b in layer.b_q]
    broken = AttentionLayer(
        w_q=w_q, w_k=layer.w_k, b_q=b_q, b_k=layer.b_k, threshold=layer.threshold
    )
    contexts = random_contexts(8, int(rng.integers(1, 6)), 6, seed)
    report = context_report(broken, context_target(x, edges, contexts))
    found, wanted = broken.recognize(x), np.zeros((8, 8), dtype=bool)
    wanted[edges[:, 0], edges[:, 1]] = True
    right = [bool((found == wanted)[np.ix_(c, c)].all()) for c in contexts]
    assert report.holds == all(right)
    if report.wrong is not None:
        number, i, j = report.wrong
        assert number == right.index(False)
        assert found[i, j] != wanted[i, j]
        assert {i, j} <= set(contexts[number].tolist())


def test_pairs_that_never_meet_do_not_matter() -> None:
    x, edges = items_and_permutation(64, 12)
    contexts = covering_contexts(edges, 4)
    layer = context_layer(x, edges, contexts, key_dim=4, heads=4)
    target = context_target(x, edges, contexts)
    assert context_report(layer, target).holds
    assert target.related.sum() == 64  # every relation meets
    assert len(target.pairs) < 64 * 64 / 6
    assert verify(layer, relation_target(x, edges)).verdict == "refuted"
    broken = AttentionLayer(w_q=[layer.w_q[0] * 0.5, *layer.w_q[1:]], w_k=layer.w_k, threshold=1.0)
    assert not context_report(broken, target).holds


def test_one_context_of_all_items_is_the_whole_graph() -> None:
    x, edges = items_and_permutation(24, 8)
    layer = context_layer(x, edges, [np.arange(24)], key_dim=4, heads=3)
    assert verify(layer, relation_target(x, edges)).holds


def test_covering_contexts_cover() -> None:
    _, edges = items_and_permutation(50, 3)
    contexts = covering_contexts(edges, 9, rounds=3, seed=2)
    meetings = [
        sum(s in c and t in c for c in map(set, map(np.ndarray.tolist, contexts)))
        for s, t in edges.tolist()
    ]
    assert min(meetings) >= 3
    assert max(map(len, contexts)) <= 8


@pytest.mark.parametrize("seed", range(4))
def test_the_chance_of_a_bad_random_context(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.eye(6)
    wanted = rng.random((6, 6)) < 0.4
    wanted[0, 1] = True
    flips = np.zeros((6, 6), dtype=bool)
    flips.ravel()[rng.choice(36, seed, replace=False)] = True
    layer = AttentionLayer(w_q=[(wanted ^ flips).astype(float)], w_k=[x], threshold=0.5)
    count, chances = random_context_failure(
        layer, relation_target(x, np.argwhere(wanted)), range(1, 7)
    )
    assert count == seed
    for size, bound in zip(range(1, 7), chances, strict=True):
        every = [np.ix_(c, c) for c in combinations(range(6), size)]
        exact = Fraction(sum(bool(flips[c].any()) for c in every), len(every))
        assert exact <= bound
        if seed == 1:
            assert exact == bound  # one wrong pair: the bound is the probability


def test_wrong_contexts_are_named() -> None:
    x, edges = items_and_permutation(6, 3)
    with pytest.raises(ArgumentError, match=r"contexts\[1\]"):
        context_target(x, edges, [[0, 1], [2, 2]])
    with pytest.raises(ArgumentError, match=r"contexts\[0\]"):
        context_target(x, edges, [[6]])
    with pytest.raises(ArgumentError, match="at least one context"):
        context_target(x, edges, [])
    with pytest.raises(ArgumentError, match="a relation meets"):
        context_layer(x, [[0, 1]], [[2, 3]], key_dim=2)
    with pytest.raises(RealizationError, match="not held"):
        context_layer(*items_and_permutation(24, 2), [np.arange(24)], key_dim=1)
