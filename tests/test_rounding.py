"""Weights of few bits: on their grid, and the same layer before they are rounded."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds.errors import ArgumentError
from constructions import AttentionLayer, relation_layer, relation_target, round_weights
from verification import verify


def random_layer(seed: int, size: float = 1.0, biases: bool = True) -> AttentionLayer:
    rng = np.random.default_rng(seed)
    return AttentionLayer(
        w_q=[size * rng.standard_normal((4, k)) for k in (1, 3)],
        w_k=[size * rng.standard_normal((4, k)) for k in (1, 3)],
        b_q=[size * rng.standard_normal(k) for k in (1, 3)] if biases else (),
        b_k=[size * rng.standard_normal(k) for k in (1, 3)] if biases else (),
        threshold=float(rng.standard_normal()) * size**2, seed=seed, method="random",
    )  # fmt: skip


def weights(layer: AttentionLayer) -> np.ndarray:
    groups = (layer.w_q, layer.w_k, layer.b_q, layer.b_k)
    return np.concatenate([array.ravel() for group in groups for array in group])


@given(
    st.integers(0, 2**32), st.integers(2, 32), st.booleans(),
    st.sampled_from([1e-150, 1e-9, 1.0, 1e9, 1e150]),
)  # fmt: skip
def test_weights_are_on_the_grid_and_near(seed: int, bits: int, biases: bool, size: float) -> None:
    layer = random_layer(seed, size, biases)
    rounded = round_weights(layer, bits)
    got, given_weights = weights(rounded), weights(layer)
    grid = got * 2.0 ** (bits - 1)
    np.testing.assert_array_equal(grid, np.rint(grid))
    assert grid.min() >= -(2 ** (bits - 1))
    assert grid.max() <= 2 ** (bits - 1) - 1
    assert len(np.unique(grid)) <= 2**bits
    largest = np.abs(given_weights).max()
    scaled = given_weights / largest * (1 - 2.0 ** (1 - bits))
    assert np.abs(got - scaled).max() <= 2.0**-bits * (1 + 1e-6)
    assert np.abs(got).max() == 1 - 2.0 ** (1 - bits)
    assert layer.threshold is not None
    tau = Fraction(layer.threshold) * (Fraction(1 - 2.0 ** (1 - bits)) / Fraction(largest)) ** 2
    assert rounded.threshold == pytest.approx(float(tau), rel=1e-14)
    assert (rounded.method, rounded.seed) == (f"random, rounded to {bits} bits", seed)


@given(st.integers(0, 2**32), st.booleans())
def test_recognition_is_that_of_the_layer_at_many_bits(seed: int, biases: bool) -> None:
    layer = random_layer(seed, 1.0, biases)
    x = np.random.default_rng(seed + 1).standard_normal((6, 4))
    scores = np.max([layer.scores(h, x, x) for h in range(2)], axis=0)
    assert layer.threshold is not None
    clear = np.abs(scores - layer.threshold) > 1e-6
    rounded = round_weights(layer, 32)
    np.testing.assert_array_equal(rounded.recognize(x)[clear], layer.recognize(x)[clear])


def test_weights_on_the_grid_stay() -> None:
    """A second rounding changes nothing: the largest weight is at the end of the grid already."""
    once = round_weights(random_layer(3), 7)
    twice = round_weights(once, 7)
    np.testing.assert_array_equal(weights(once), weights(twice))
    assert twice.threshold == once.threshold


def test_rounding_is_judged_anew() -> None:
    x = np.random.default_rng(0).standard_normal((12, 6))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    edges = np.stack([np.arange(12), np.roll(np.arange(12), 1)], axis=1)
    target = relation_target(x, edges)
    layer = relation_layer(x, edges)
    assert verify(round_weights(layer, 24), target).verdict == "verified"
    assert verify(round_weights(layer, 2), target).verdict == "refuted"


@pytest.mark.parametrize("bits", [1, 0, -3, 33, 2.0, True, "8", None])
def test_bad_bits(bits: Any) -> None:
    with pytest.raises(ArgumentError, match="bits"):
        round_weights(random_layer(0), bits)


def test_layers_that_cannot_be_rounded() -> None:
    with pytest.raises(ArgumentError, match="layer"):
        round_weights(AttentionLayer(w_q=[np.eye(2)], w_k=[np.eye(2)]), 8)
    with pytest.raises(ArgumentError, match="routes no values"):
        round_weights(
            AttentionLayer(
                w_q=[np.eye(2)], w_k=[np.eye(2)], w_v=[np.eye(2)], w_o=[np.eye(2)], threshold=1
            ),
            8,
        )
    with pytest.raises(ArgumentError, match="not zero"):
        round_weights(
            AttentionLayer(w_q=[np.zeros((2, 1))], w_k=[np.zeros((2, 1))], threshold=1), 8
        )
    with pytest.raises(ArgumentError, match="threshold is finite"):
        round_weights(AttentionLayer(w_q=[[[1e-200]]], w_k=[[[1e-200]]], threshold=1.0), 8)
