"""Compact relation layers, against a brute-force check of every pair."""

from __future__ import annotations

import numpy as np
import pytest

from constructions.compact import CompactFit, fit_compact
from constructions.errors import RealizationError


def unit_rows(m: int, d: int, seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(m, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def permutation(m: int, seed: int) -> np.ndarray:
    return np.stack([np.arange(m), np.random.default_rng(seed).permutation(m)], axis=1)


def recognised(fit: CompactFit, x: np.ndarray) -> set[tuple[int, int]]:
    """Pairs over the threshold, one scalar product at a time."""
    found = set()
    for h in range(len(fit.w_q)):
        q = [row @ fit.w_q[h] + (fit.b_q[h] if fit.b_q else 0.0) for row in x]
        k = [row @ fit.w_k[h] + (fit.b_k[h] if fit.b_k else 0.0) for row in x]
        for i in range(len(x)):
            for j in range(len(x)):
                if float(np.dot(q[i], k[j])) > fit.threshold:
                    found.add((i, j))
    return found


def pairs(edges: np.ndarray) -> set[tuple[int, int]]:
    return {(int(s), int(t)) for s, t in edges}


CASES = {
    "one loop": (unit_rows(1, 4, 0), [(0, 0)]),
    "swap": (unit_rows(2, 4, 0), [(0, 1), (1, 0)]),
    "cycle": (unit_rows(3, 2, 0), [(0, 1), (1, 2), (2, 0)]),
    "complete": (unit_rows(8, 8, 1), [(i, j) for i in range(8) for j in range(8)]),
    "star": (unit_rows(24, 8, 2), [(0, j) for j in range(1, 24)]),
    "in-star": (unit_rows(24, 8, 2), [(j, 0) for j in range(1, 24)]),
    "loops": (unit_rows(24, 8, 3), [(i, i) for i in range(24)]),
    "orthonormal": (np.eye(32), permutation(32, 1)),
    "more dimensions than items": (unit_rows(20, 60, 4), permutation(20, 2)),
    "digraph": (unit_rows(8, 6, 5), np.random.default_rng(6).integers(0, 8, (12, 2))),
}


@pytest.mark.parametrize("name", CASES)
def test_all_pairs_are_right(name: str) -> None:
    x, edges = CASES[name]
    fit = fit_compact(x, np.array(edges))
    assert recognised(fit, x) == pairs(np.array(edges))
    assert fit.margin > 1e-6


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_scale_of_the_embeddings(scale: float) -> None:
    x, edges = scale * unit_rows(12, 6, 7), permutation(12, 3)
    fit = fit_compact(x, edges)
    assert recognised(fit, x) == pairs(edges)
    assert fit.total_key_dim < len(edges)


def test_bias_for_embeddings_with_a_mean() -> None:
    x, edges = unit_rows(12, 8, 8) + 2.0, permutation(12, 4)
    fit = fit_compact(x, edges, bias=True)
    assert fit.b_q is not None
    assert fit.b_k is not None
    assert recognised(fit, x) == pairs(edges)


def test_given_shape_is_kept_and_seed_decides() -> None:
    x, edges = unit_rows(48, 12, 9), permutation(48, 5)
    fits = [fit_compact(x, edges, key_dim=4, heads=6, seed=3) for _ in range(2)]
    assert [w.shape for w in fits[0].w_q] == [(12, 4)] * 6
    for a, b in zip(fits[0].w_q + fits[0].w_k, fits[1].w_q + fits[1].w_k, strict=True):
        assert np.array_equal(a, b)
    assert recognised(fits[0], x) == pairs(edges)


def test_heads_alone_grows_key_dim() -> None:
    x, edges = np.eye(16), permutation(16, 6)
    fit = fit_compact(x, edges, heads=1)
    assert len(fit.w_q) == 1
    assert recognised(fit, x) == pairs(edges)


def test_perturbed_weights_are_noticed() -> None:
    x, edges = unit_rows(24, 8, 3), permutation(24, 7)
    fit = fit_compact(x, edges)
    fit.w_q[0][:] *= -1
    assert recognised(fit, x) != pairs(edges)


def test_failures_are_definite() -> None:
    x = unit_rows(16, 8, 0)
    with pytest.raises(RealizationError, match="relations held by 1 heads"):
        fit_compact(x, permutation(16, 0), key_dim=1, heads=1)
    x[4] = x[3]
    with pytest.raises(RealizationError, match="equal rows"):
        fit_compact(x, np.array([(3, 5), (1, 2)]))
    x[3] = 0.0
    with pytest.raises(RealizationError, match="embedding 0"):
        fit_compact(x, np.array([(3, 5), (1, 2)]))
    # The middle item of a line cannot stand out from both ends, with or without biases.
    line = np.array([[1.0], [2.0], [3.0]])
    for bias in (False, True):
        with pytest.raises(RealizationError):
            fit_compact(line, np.array([(0, 1), (1, 2), (2, 0)]), bias=bias)


def test_wrong_arguments() -> None:
    x = unit_rows(3, 2, 0)
    with pytest.raises(ValueError, match="key_dim"):
        fit_compact(x, np.array([(0, 1)]), key_dim=0)
    with pytest.raises(ValueError, match="edges"):
        fit_compact(x, np.array([(0, 3)]))
    with pytest.raises(ValueError, match="embeddings"):
        fit_compact(x * np.nan, np.array([(0, 1)]))
