"""A verified layer beside the bounds at its own numbers: norms from above, the packing bound below D_K."""

from __future__ import annotations

from fractions import Fraction
from math import comb, factorial, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bounds.errors import ArgumentError
from bounds.graph_families import graph_family
from bounds.key_dimension_best import key_dimension
from constructions import AttentionLayer, RealizationError, relation_layer, relation_target
from constructions.algebraic_codes import dual_bch_codes
from constructions.codes import coded_layer
from constructions.rounding import round_weights
from verification.layer_size import LayerSize, layer_size

ROLL = AttentionLayer(w_q=[np.eye(3)], w_k=[np.roll(np.eye(3), 1, 0)], threshold=0.5)
CYCLE = [[0, 1], [1, 2], [2, 0]]


def own_target(layer: AttentionLayer, x: np.ndarray):
    """The graph that the layer recognises, in float64; far enough from ties for these weights."""
    return relation_target(x, np.argwhere(layer.recognize(x)))


def squared(rows) -> list[Fraction]:
    return [sum(Fraction(float(v)) ** 2 for v in row) for row in rows]


def exact_products(layer: AttentionLayer, x: np.ndarray) -> tuple[Fraction, Fraction]:
    """The largest squares of ||W_Q|| ||W_K|| max|x|^2 (biases counted) and of |q| |k|, exactly."""
    reach = max(squared(x))
    weights, keys = Fraction(0), Fraction(0)
    for h in range(layer.heads):
        norms, longest = [], []
        for w, biases in ((layer.w_q[h], layer.b_q), (layer.w_k[h], layer.b_k)):
            b = squared([biases[h]])[0] if biases else Fraction(0)
            norms.append(sum(squared(w)) * reach + b)
            rows = [
                [
                    sum(
                        Fraction(float(a)) * Fraction(float(c))
                        for a, c in zip(item, column, strict=True)
                    )
                    + (Fraction(float(biases[h][k])) if biases else 0)
                    for k, column in enumerate(w.T)
                ]
                for item in x
            ]
            longest.append(max(sum((v * v for v in row), Fraction(0)) for row in rows))
        weights = max(weights, norms[0] * norms[1])
        keys = max(keys, longest[0] * longest[1])
    return weights, keys


def check(found: LayerSize, layer: AttentionLayer, x: np.ndarray) -> None:
    weights, keys = exact_products(layer, x)
    assert Fraction(found.weight_norm) ** 4 >= weights
    assert Fraction(found.key_norm) ** 4 >= keys
    if weights > 0:
        assert Fraction(found.weight_norm) ** 4 <= weights * Fraction(1 + 1e-9)
    assert found.graph_bound is None or found.graph_bound.value <= found.key_dimension


def test_a_permutation_by_the_identity() -> None:
    found = layer_size(ROLL, relation_target(np.eye(3), CYCLE), bits=1)
    check(found, ROLL, np.eye(3))
    assert found.key_dimension == 3
    assert found.margin == pytest.approx(0.5)
    assert found.weight_norm == pytest.approx(3**0.5)
    assert found.key_norm == pytest.approx(1)
    assert [name for name, _ in found.family_bounds.candidates] == ["C2", "C1", "C3", "C3 packing"]
    assert found.graph_bound is not None
    assert found.graph_bound.value == 1
    assert float(found.efficiency.value) == pytest.approx(log(6) / log(2) / 18)
    assert found.to_dict()["graph_bound"]["value"] == {"int": "1"}
    assert "D_K = 3" in str(found)
    assert "C3 packing" in str(found)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    items=st.integers(2, 6),
    width=st.integers(1, 4),
    heads=st.integers(1, 3),
    biases=st.booleans(),
    exponent=st.integers(-200, 200),
)
def test_norms_are_upper_bounds_and_packing_holds(
    seed, items, width, heads, biases, exponent
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((items, width))
    dims = rng.integers(1, 4, heads)
    w_q = [np.ldexp(rng.standard_normal((width, k)), exponent) for k in dims]
    w_k = [np.ldexp(rng.standard_normal((width, k)), -exponent) for k in dims]
    b_q = [np.ldexp(rng.standard_normal(k), exponent) for k in dims] if biases else []
    b_k = [np.ldexp(rng.standard_normal(k), -exponent) for k in dims] if biases else []
    layer = AttentionLayer(w_q=w_q, w_k=w_k, b_q=b_q, b_k=b_k, threshold=float(rng.normal() / 2))
    pairs = layer.recognize(x)
    if not pairs.any():
        return
    target = own_target(layer, x)
    found = layer_size(layer, target)
    check(found, layer, x)
    assert found.certificate.holds
    relations = target.relations
    enough = heads >= found.least_heads.value
    c2 = dict(found.family_bounds.candidates)["C2"]
    assert c2.parameters["heads"] == (heads if enough else None)
    stored = 2 * (width + biases) * layer.key_dimension * 64
    capacity = found.family_bounds.best.parameters["family"]
    graphs = factorial(items) if capacity == "permutation" else comb(items**2, relations)
    assert float(found.efficiency.value) == pytest.approx(log(graphs) / log(2) / stored)
    by_hand = [s.value for _, s in found.family_bounds.candidates]
    again = key_dimension(
        items, width, "digraph", relations=relations, bits=64, threshold_bits=64, biases=biases,
        heads=heads if enough else None,
        margin=Fraction(found.margin), weight_norm=Fraction(found.weight_norm),
        key_norm=Fraction(found.key_norm),
    )  # fmt: skip
    if not all(len(set(side)) == items == relations for side in target.edges.T.tolist()):
        assert by_hand == [bound.value for _, bound in again.candidates]


def test_the_packing_bound_of_a_code_layer() -> None:
    """Unit codes: R^2/gamma = 2/(1 - mu) with mu = 7/31, so 64 of them take ln 64/ln(43/12) = 3.26."""
    codes = dual_bch_codes(64, "1/4")
    edges = np.stack([np.arange(64), np.roll(np.arange(64), 5)], axis=1)
    layer = coded_layer(np.eye(64), edges, codes)
    found = layer_size(layer, relation_target(np.eye(64), edges), bits=8)
    assert found.key_dimension == 31
    assert codes.coherence == Fraction(7, 31)
    assert found.graph_bound.value == 4
    found = layer_size(layer, relation_target(np.eye(64), edges), "relabelings")
    assert "relabeling" in found.family_bounds.best.sentence
    found = layer_size(layer, relation_target(np.eye(64), edges), "regular", degree=1)
    assert found.family_bounds.value >= 1


def test_too_few_heads_for_the_family() -> None:
    """One head on the line cannot realise every digraph: the bounds are then for any number of heads."""
    x = np.arange(1.0, 9.0)[:, None]
    layer = AttentionLayer(w_q=[[[1.0]]], w_k=[[[1.0]]], threshold=20.5)
    found = layer_size(layer, own_target(layer, x))
    assert found.least_heads.value > 1
    assert "any number of heads" in " ".join(dict(found.family_bounds.candidates)["C2"].hypotheses)


def test_no_margin_no_margin_bounds() -> None:
    layer = AttentionLayer(w_q=[[[1.0]]], w_k=[[[1.0]]], threshold=2.0)
    found = layer_size(layer, own_target(layer, np.array([[1.0], [2.0]])))
    assert found.margin == 0
    assert found.graph_bound is None
    assert [name for name, _ in found.family_bounds.candidates] == ["C2", "C1"]
    assert found.to_dict()["graph_bound"] is None
    assert "margin" not in str(found)


def test_zero_weights_realise_the_complete_graph() -> None:
    layer = AttentionLayer(w_q=[np.zeros((2, 1))], w_k=[np.zeros((2, 1))], threshold=-1.0)
    found = layer_size(layer, own_target(layer, np.eye(2)), bits=1)
    assert found.family_bounds.value == 0
    assert found.graph_bound.value == 0


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RealizationError, match="refuted"):
        layer_size(ROLL, relation_target(np.eye(3), [[0, 0], [1, 1], [2, 2]]))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 6))
    edges = [[i, (i + 1) % 12] for i in range(12)]
    layer = relation_layer(x, edges, key_dim=4)
    target = relation_target(x, edges)
    with pytest.raises(ArgumentError, match="different values"):
        layer_size(layer, target, bits=3)
    rounded = round_weights(layer, 12)
    assert layer_size(rounded, target, bits=12).bits == 12
    with pytest.raises(ArgumentError, match="degree"):
        layer_size(layer, target, "regular")


def test_the_family_must_hold_the_graph() -> None:
    """Two relations from item 0, one from item 1, none from item 2."""
    x = np.eye(3)
    target = relation_target(x, [[0, 0], [0, 1], [1, 2]])
    layer = relation_layer(x, target.edges, key_dim=2)
    for family, degree in (
        ("out-degree", 2),
        ("out-degree", 3),
        ("digraph", None),
        ("relabelings", None),
    ):
        found = layer_size(layer, target, family, degree=degree)
        assert dict(found.family_bounds.candidates)["C2"].parameters["family"] == family
    for family, degree in (
        ("permutation", None), ("functional", None), ("out-degree", 1), ("regular", 1), ("out-regular", 1),
        (graph_family(3, "digraph", 2), None),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match="holds the target's graph"):
            layer_size(layer, target, family, degree=degree)
    two = relation_target(x, [[0, 0], [1, 0], [2, 1]])
    layer = relation_layer(x, two.edges, key_dim=2)
    assert layer_size(layer, two, "functional").family_bounds.value >= 1
    for family, degree in (("permutation", None), ("regular", 1)):
        with pytest.raises(ArgumentError, match="holds the target's graph"):
            layer_size(layer, two, family, degree=degree)
