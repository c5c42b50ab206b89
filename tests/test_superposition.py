"""Edge colouring, the tail bound of random codes by full enumeration, and the layers drawn."""

from __future__ import annotations

import time
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds.errors import ArgumentError
from constructions import RealizationError, relation_target
from constructions.edge_coloring import edge_coloring, equitable_coloring, matchings
from constructions.superposition import (
    GAP,
    dual_block,
    embedding_metric,
    explicit_key_dim,
    relation_blocks,
    sign_matrix,
    sketched_layer,
    superposed_layer,
)
from verification import verify


def largest_degree(edges: np.ndarray) -> int:
    return int(max(np.unique(edges[:, side], return_counts=True)[1].max() for side in (0, 1)))


def assert_proper(edges: np.ndarray, colors: np.ndarray) -> None:
    assert len(colors) == len(edges)
    assert colors.min() >= 0
    assert colors.max() < largest_degree(edges)
    for side in (0, 1):
        assert len({(int(c), int(e)) for c, e in zip(colors, edges[:, side], strict=True)}) == len(
            edges
        )


@st.composite
def graphs(draw: Any, largest: int = 12) -> np.ndarray:
    m = draw(st.integers(1, largest))
    cells = draw(st.lists(st.integers(0, m * m - 1), min_size=1, max_size=60, unique=True))
    return np.stack(np.divmod(np.array(cells), m), axis=1)


@given(graphs())
def test_colors_are_matchings_and_as_few_as_possible(edges: np.ndarray) -> None:
    assert_proper(edges, edge_coloring(edges))


@pytest.mark.parametrize("degree", [*range(1, 18), 63, 64, 65])
def test_complete_and_regular_graphs(degree: int) -> None:
    complete = np.stack(np.divmod(np.arange(degree**2), degree), axis=1)
    assert_proper(complete, edge_coloring(complete))
    m = 3 * degree + 1
    circulant = np.array([[i, (i + 2 * shift) % m] for i in range(m) for shift in range(degree)])
    if len(np.unique(circulant, axis=0)) == len(circulant):
        assert_proper(circulant, edge_coloring(circulant))


def test_hubs_and_large_graphs_are_quick() -> None:
    rng = np.random.default_rng(0)
    m, count = 5000, 100_000
    uniform = rng.choice(m * m, count, replace=False)
    skewed = np.unique(
        (rng.pareto(1.0, count) * 10).astype(np.int64) % m * m + rng.integers(0, m, count)
    )
    for cells in (uniform, skewed):
        edges = np.stack(np.divmod(cells, m), axis=1)
        start = time.process_time()
        colors = edge_coloring(edges)
        assert time.process_time() - start < 10
        assert_proper(edges, colors)
        for limit in (None, 100):
            start = time.process_time()
            parts = matchings(edges, limit)
            assert time.process_time() - start < 10
            assert_parts(edges, parts, limit)


@cache
def fewest_parts(cells: tuple[int, ...], limit: int) -> int:
    """By search over all partitions into matchings of at most ``limit`` cells of a 3 x 3 board."""
    if not cells:
        return 0
    first, rest = cells[0], cells[1:]
    return 1 + min(
        fewest_parts(tuple(c for c in rest if c not in more), limit)
        for size in range(limit)
        for more in combinations(rest, size)
        if all(len({f(c) for c in (first, *more)}) == size + 1 for f in (row, column))
    )


def row(cell: int) -> int:
    return cell // 3


def column(cell: int) -> int:
    return cell % 3


def test_no_partition_has_fewer_parts() -> None:
    for chosen in range(1, 2**9):
        cells = tuple(c for c in range(9) if chosen >> c & 1)
        edges = np.stack(np.divmod(np.array(cells), 3), axis=1)
        for limit in (1, 2, 3):
            parts = matchings(edges, limit)
            assert_parts(edges, parts, limit)
            assert len(parts) == fewest_parts(cells, limit)


def assert_parts(edges: np.ndarray, parts: list[np.ndarray], limit: int | None) -> None:
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(edges)))
    least = 1 if limit is None else -(-len(edges) // limit)
    assert len(parts) == max(largest_degree(edges), least)
    sizes = [len(part) for part in parts]
    assert 1 <= min(sizes) <= max(sizes) <= min(min(sizes) + 1, limit or len(edges))
    for part in parts:
        assert largest_degree(edges[part]) == 1


@given(graphs(), st.integers(1, 70) | st.none())
def test_parts_are_as_few_as_can_be_and_equal(edges: np.ndarray, limit: int | None) -> None:
    assert_parts(edges, matchings(edges, limit), limit)


@given(graphs(), st.integers(0, 90), st.booleans())
def test_any_number_of_colors_is_equitable(edges: np.ndarray, more: int, twice: bool) -> None:
    if twice:
        edges = np.concatenate([edges, edges[::2]])  # parallel relations
    k = largest_degree(edges) + more
    colors = equitable_coloring(edges, k)
    sizes = np.bincount(colors, minlength=k)
    assert len(sizes) == k
    assert sizes.max() - sizes.min() <= 1
    assert (np.diff(sizes) <= 0).all()
    for side in (0, 1):
        assert len(np.unique(colors * 1000 + edges[:, side])) == len(edges)


def test_equitable_colorings_of_hostile_graphs() -> None:
    star = np.stack([np.zeros(40, dtype=int), np.arange(40)], axis=1)
    path = np.stack([np.arange(60) // 2, (np.arange(60) + 1) // 2], axis=1)
    # one vertex of degree 30 beside a matching of 500: most classes begin far from equal
    beside = np.stack([np.arange(1, 501), np.arange(100, 600)], axis=1)
    hub = np.concatenate([np.stack([np.zeros(30, dtype=int), np.arange(30)], axis=1), beside])
    stairs = np.array([[i, i * j % 61] for i in range(30) for j in range(1, 2 + i)])
    for edges in (star, path, hub, np.unique(stairs, axis=0), star[:1], path[:2]):
        for limit in (None, 1, 2, 7, 11, len(edges), 10 * len(edges), np.int64(3)):
            assert_parts(edges, matchings(edges, limit), limit)
            assert_parts(edges[::-1, ::-1], matchings(edges[::-1, ::-1], limit), limit)
    with pytest.raises(ArgumentError, match="at least 40"):
        equitable_coloring(star, 39)
    for wrong in (0, -1, 2.0, True):
        with pytest.raises(ArgumentError, match="limit"):
            matchings(star, wrong)  # type: ignore[arg-type]


def chaos(alpha: np.ndarray, beta: np.ndarray, k: int) -> np.ndarray:
    """The scores alpha G beta for every choice of n k signs."""
    n = len(alpha)
    signs = np.array(list(product((-1.0, 1.0), repeat=n * k))).reshape(-1, n, k)
    return np.asarray(((alpha @ signs) * (beta @ signs)).sum(axis=1) / k)


@pytest.mark.parametrize("seed", range(12))
def test_the_tail_bound_holds_for_every_threshold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, k = (4, 3) if seed % 2 else (3, 4)
    alpha, beta = rng.normal(size=(2, n))
    if seed % 3 == 0:
        alpha, beta = np.eye(n)[0], np.eye(n)[1]
    scores = chaos(alpha, beta, k)
    mean = float(alpha @ beta)
    spread = ((alpha @ alpha) * (beta @ beta) + mean**2) / 2 - (alpha**2) @ (beta**2)
    width = min(
        np.sqrt(spread),
        (np.sqrt((alpha @ alpha) * (beta @ beta)) + np.abs(alpha) @ np.abs(beta)) / 2,
    )
    assert abs(scores.mean() - mean) < 1e-12
    assert abs(scores.var() - 2 * spread / k) < 1e-11  # the leading constant is the variance
    for t in np.linspace(0.01, 4, 80):
        bound = np.exp(-k * t**2 / (4 * (spread + width * t)))
        assert (scores >= mean + t).mean() <= bound
        assert (scores <= mean - t).mean() <= bound


def unit_rows(rng: np.random.Generator, m: int, d: int) -> np.ndarray:
    x = rng.normal(size=(m, d))
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def test_duals_are_dual_and_relations_are_certain() -> None:
    rng = np.random.default_rng(1)
    x = unit_rows(rng, 60, 20) * rng.uniform(0.2, 3, 20)  # not isotropic
    target = relation_target(x, np.stack([np.arange(60), rng.permutation(60)], axis=1))
    for block in relation_blocks(target, 9):
        edges = target.edges[block.rows]
        assert np.allclose(x[edges[:, 0]] @ block.sources, np.eye(len(edges)), atol=1e-9)
        assert np.allclose(x[edges[:, 1]] @ block.targets, np.eye(len(edges)), atol=1e-9)
        w_q, w_k = block.weights(sign_matrix(rng, len(edges), 5))
        scores = np.einsum("ek,ek->e", x[edges[:, 0]] @ w_q, x[edges[:, 1]] @ w_k)
        assert np.allclose(scores, 1, atol=1e-8)


def test_the_explicit_size_fails_as_rarely_as_it_says() -> None:
    rng = np.random.default_rng(2)
    x = unit_rows(rng, 60, 48)
    target = relation_target(x, np.stack([np.arange(60), rng.permutation(60)], axis=1))
    block = dual_block(target, np.arange(8), embedding_metric(target.embeddings))
    k = explicit_key_dim(target, block, 0.5)
    assert explicit_key_dim(target, block, 0.01) > k
    others = ~target.rows(0, 60)
    alpha, beta = x @ block.sources, x @ block.targets
    mean = alpha @ beta.T
    norms = np.outer((alpha**2).sum(axis=1), (beta**2).sum(axis=1))
    spread = np.maximum((norms + mean**2) / 2 - alpha**2 @ (beta**2).T, 1e-14)
    gap = 1 - GAP - mean
    width = np.minimum(np.sqrt(spread), (np.sqrt(norms) + np.abs(alpha) @ np.abs(beta).T) / 2)
    rates = (gap**2 / (4 * (spread + width * gap)))[others]
    assert np.exp(-k * rates).sum() <= 0.5
    assert np.exp(-(k - 1) * rates).sum() > 0.49  # the rounding of exponents costs little
    failures = 0
    for _ in range(100):
        codes = sign_matrix(rng, 8, k)
        scores = alpha @ codes @ codes.T @ beta.T
        failures += bool((scores[others] >= 1 - GAP).any())
    assert failures <= 70  # at most half expected; 70 of 100 has probability below 1e-4


@given(graphs(10), st.integers(0, 100))
def test_any_graph_is_realized(edges: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = int(edges.max()) + 1
    x = unit_rows(rng, m, m + 2) @ np.diag(rng.uniform(0.3, 2, m + 2))
    layer = superposed_layer(x, edges, seed=seed)
    assert verify(layer, relation_target(x, edges)).holds
    assert layer.key_dimension <= len(edges)


def test_superposed_embeddings_beat_one_dimension_a_relation() -> None:
    rng = np.random.default_rng(0)
    m, d = 384, 192
    x = unit_rows(rng, m, d)
    edges = np.stack([np.arange(m), rng.permutation(m)], axis=1)
    explicit = superposed_layer(x, edges)
    assert explicit.key_dimension < m
    drawn = superposed_layer(x, edges, key_dim=24, block=55)
    assert drawn.key_dimension == 24 * 7
    assert verify(drawn, relation_target(x, edges)).holds
    with pytest.raises(RealizationError, match="drawn codes"):
        superposed_layer(x, edges, key_dim=2, block=64)
    w_k = [drawn.w_k[0] * 3, *drawn.w_k[1:]]
    broken = type(drawn)(w_q=drawn.w_q, w_k=w_k, threshold=1.0)
    assert verify(broken, relation_target(x, edges)).verdict == "refuted"


def test_one_full_rank_head() -> None:
    rng = np.random.default_rng(3)
    x = unit_rows(rng, 96, 64)
    edges = np.stack([np.arange(96), rng.permutation(96)], axis=1)
    layer = sketched_layer(x, edges)
    assert (layer.heads, layer.key_dimension) == (1, 64)
    assert verify(layer, relation_target(x, edges)).holds
    assert sketched_layer(x, edges, key_dim=400).key_dimension == 400
    crowded = unit_rows(rng, 96, 8)
    with pytest.raises(RealizationError, match="more heads"):
        sketched_layer(crowded, edges)


def test_dependent_sources_and_wrong_arguments_are_named() -> None:
    x = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    with pytest.raises(RealizationError, match="dependent"):
        superposed_layer(x, [[0, 2], [1, 0]], block=2)
    with pytest.raises(RealizationError, match="dependent"):
        superposed_layer([[0.0, 0.0], [1.0, 0.0]], [[0, 1]])
    with pytest.raises(RealizationError, match="dependent"):
        superposed_layer(np.zeros((2, 2)), [[0, 1]])
    with pytest.raises(ArgumentError, match="delta"):
        superposed_layer(x, [[0, 2]], delta=0)
    with pytest.raises(ArgumentError, match="block"):
        superposed_layer(x, [[0, 2]], block=3)
    with pytest.raises(ArgumentError, match="edges"):
        edge_coloring(np.zeros((0, 2), dtype=int))


@pytest.mark.parametrize("colors", [3, 10**7, 10**30])
def test_as_many_colors_as_relations(colors: int) -> None:
    found = equitable_coloring([[0, 1], [0, 2], [0, 3]], colors)
    assert sorted(found.tolist()) == [0, 1, 2]
