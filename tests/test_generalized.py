"""H3 and general values: exact errors against quadrature, sampling and the floors."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from functools import cache
from itertools import product

import mpmath
import numpy as np
import pytest
import sympy
from flint import fmpq, fmpq_mat
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import eval_gegenbauer, roots_gegenbauer

from bounds.arithmetic import Ball
from bounds.errors import ArgumentError, HypothesisError
from bounds.harmonics import harmonic_dimension, invariant_dimension
from bounds.head_floor import head_floor
from bounds.invariant_rank import invariant_rank, rank_ceiling
from constructions.cubic_forms import Cubic
from constructions.fitted_values import fitted_value_layer
from constructions.general_values import general_value_layer, hard_head_value
from constructions.generalized import GeneralizedHeads, generalized_rank_one


@cache
def strength(d: int, degree: int) -> mpmath.mpf:
    """E[sgn(t) P_l(t)] by mpmath quadrature of its defining integral, P_l a 2F1 in (1-t)/2."""
    with mpmath.workdps(40):
        terms, term = [], mpmath.mpf(1)
        for k in range(degree + 1):
            terms.append(term)
            term *= mpmath.mpf(k - degree) * (degree + d - 2 + k) * 2 / ((d - 1 + 2 * k) * (k + 1))
        power = mpmath.mpf(d - 3) / 2

        def density(t: mpmath.mpf) -> mpmath.mpf:
            return (1 - t * t) ** power

        top = mpmath.quad(
            lambda t: mpmath.polyval(terms[::-1], (1 - t) / 2) * density(t), [0, 0.5, 1]
        )
        return top / mpmath.quad(density, [0, 0.5, 1])


def truncated_floor(d: int, heads: int, degree: int) -> mpmath.mpf:
    """H3's error at truncation L, from the quadratures alone."""
    caught = mpmath.mpf(0)
    for ell in range(1, degree + 1, 2):
        caught += strength(d, ell) ** 2 * min(heads, harmonic_dimension(d, ell))
    return (1 - caught) / 2


def pairs(d: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Uniform orthonormal pairs, uniform queries, and the nearest point."""
    draw = np.random.default_rng(seed)
    first, second, y = draw.normal(size=(3, count, d))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second -= np.sum(first * second, axis=1, keepdims=True) * first
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    nearer = np.sum((first - second) * y, axis=1, keepdims=True) >= 0
    return np.stack([first, second], axis=-1), y, np.where(nearer, first, second)


def sampled_interval(layer: GeneralizedHeads, count: int, bound: float) -> tuple[float, float]:
    """Empirical Bernstein (Maurer, Pontil 2009): wrong with probability at most 1e-6.

    ``bound`` is on the squared error of any input.
    """
    X, y, target = pairs(layer.d, count, 1)
    errors = np.sum((target - layer.evaluate(X, y)) ** 2, axis=1)
    assert errors.max() <= bound
    logarithm = np.log(4e6)
    width = np.sqrt(2 * errors.var(ddof=1) * logarithm / count)
    width += 7 * bound * logarithm / (3 * (count - 1))
    return float(errors.mean() - width), float(errors.mean() + width)


@pytest.mark.parametrize(("d", "heads", "degree"), [(4, 1, 5), (4, 6, 7), (5, 9, 5), (8, 16, 5)])
def test_error_is_the_truncated_floor(d: int, heads: int, degree: int) -> None:
    error = generalized_rank_one(d, heads, degree).squared_error()
    expected = truncated_floor(d, heads, degree)
    assert abs(mpmath.mpf(float(error)) - expected) < 1e-13
    assert error.radius < Fraction(1, 10**40)
    # no layer beats the floor; this one exceeds it by what the degrees left out would catch
    floor = head_floor(d, 1, heads, values="scalar").value
    left_out = sum(
        strength(d, ell) ** 2 * min(heads, harmonic_dimension(d, ell)) / 2
        for ell in range(degree + 2, degree + 22, 2)
    )
    assert error > floor
    assert float(error) - float(floor) == pytest.approx(float(left_out), rel=0.05)


def test_error_tends_to_the_floor() -> None:
    floor = head_floor(5, 1, 3, values="scalar").value
    assert isinstance(floor, Ball)
    gaps = [
        generalized_rank_one(5, 3, degree).squared_error().midpoint - floor.midpoint
        for degree in (1, 5, 15, 31)
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert 0 < gaps[-1] < Fraction(1, 3000)


def test_all_of_a_degree_once_there_are_enough_heads() -> None:
    # d = 4 has N = 4, 16 in degrees 1, 3: with 17 heads both are exact, and truncated there
    error = generalized_rank_one(4, 17, 3).squared_error()
    assert abs(mpmath.mpf(float(error)) - truncated_floor(4, 10**6, 3)) < 1e-13


def sphere_rule(d: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Product Gauss rule on S^(d-1), exact to degree 2 count - 1."""
    if d == 2:
        angle = np.pi * np.arange(2 * count) / count
        return np.stack([np.cos(angle), np.sin(angle)], axis=1), np.full(2 * count, 0.5 / count)
    nodes, weights = roots_gegenbauer(count, (d - 2) / 2)
    below, inner = sphere_rule(d - 1, count)
    points = [np.insert(np.sqrt(1 - t * t) * below, 0, t, axis=1) for t in nodes]
    return np.concatenate(points), np.concatenate([w / weights.sum() * inner for w in weights])


def test_brute_force_on_the_product_of_spheres() -> None:
    d, degree = 4, 3
    layer = generalized_rank_one(d, 5, degree, seed=3)
    points, weights = sphere_rule(d, degree + 1)
    w, y = (part.reshape(-1, d) for part in np.broadcast_arrays(points[:, None], points[None]))
    mass = np.outer(weights, weights).ravel()
    cosine = np.sum(w * y, axis=1)
    target = sum(
        float(strength(d, ell))
        * harmonic_dimension(d, ell)
        * eval_gegenbauer(ell, 1.0, cosine)
        / eval_gegenbauer(ell, 1.0, 1.0)
        for ell in (1, 3)
    )
    # any v orthogonal to w: swap and negate coordinate pairs
    v = np.stack([-w[:, 1], w[:, 0], -w[:, 3], w[:, 2]], axis=1)
    X = np.stack([v + w, v - w], axis=-1) / np.sqrt(2)
    along = np.sqrt(2) * np.sum(layer.evaluate(X, y) * w, axis=1)
    caught = 2 * target * along - along**2
    assert float(layer.squared_error()) == pytest.approx((1 - mass @ caught) / 2, abs=1e-12)
    assert np.allclose(np.sum(layer.evaluate(X, y) * v, axis=1), np.sqrt(0.5), atol=1e-9)


@pytest.mark.parametrize("heads", [2, 3, 4, 7])
def test_scores_are_probabilities(heads: int) -> None:
    layer = generalized_rank_one(4, heads, 7, seed=heads)
    X, y, _ = pairs(4, 500, 0)
    scores = layer.scores(X, y)
    assert layer.in_simplex()
    assert scores.min() >= 0
    assert np.allclose(scores.sum(axis=-1), 1)


def test_a_head_sees_only_its_key_and_commutes_with_the_swap() -> None:
    layer = generalized_rank_one(5, 3, 5)
    X, y, _ = pairs(5, 50, 2)
    assert np.allclose(layer.evaluate(X[..., ::-1], y), layer.evaluate(X, y))
    key = np.array(layer.keys[0], dtype=float)
    key /= np.linalg.norm(key)
    shift = np.random.default_rng(0).normal(size=(50, 5, 2))
    shift -= key[:, None] * np.einsum("i,nij->nj", key, shift)[:, None]
    assert np.allclose(layer.scores(X + shift, y)[:, 0], layer.scores(X, y)[:, 0])


@pytest.mark.parametrize(
    "layer",
    [generalized_rank_one(4, 3, 5), general_value_layer(4, 5, 5)],
    ids=["scalar", "general"],
)
def test_sampled_error_agrees(layer: GeneralizedHeads) -> None:
    low, high = sampled_interval(layer, 60_000, 20.0)
    error = layer.squared_error()
    assert low <= float(error) <= high
    assert high - low < 0.05


def test_sampling_refutes_a_perturbed_layer() -> None:
    layer = generalized_rank_one(4, 3, 5)
    broken = dataclasses.replace(layer, zonal={**layer.zonal, 1: 2 * layer.zonal[1]})
    _, high = sampled_interval(layer, 100_000, 20.0)
    low, _ = sampled_interval(broken, 100_000, 200.0)
    assert float(layer.squared_error()) <= high < float(broken.squared_error())
    assert low <= float(broken.squared_error())


def gain(d: int, groups: int) -> mpmath.mpf:
    return groups * 3 * strength(d, 3) ** 2 / (2 * (d + 4))


@pytest.mark.parametrize(
    ("d", "heads", "groups", "degree"),
    [(4, 5, 1, 9), (4, 10, 2, 9), (4, 15, 1, 15), (5, 7, 1, 7), (8, 16, 1, 7)],
)
def test_general_values_beat_the_scalar_floor(d: int, heads: int, groups: int, degree: int) -> None:
    layer = general_value_layer(d, heads, degree)
    error = layer.squared_error()
    assert error < head_floor(d, 1, heads, values="scalar").value
    assert error > head_floor(d, 1, heads, values="general").value
    # the cubic gain in full, off the truncated scalar layer with the same heads
    expected = truncated_floor(d, heads, degree) - gain(d, groups)
    assert error.lower_float() <= expected <= error.upper_float()
    assert error.radius < Fraction(1, 10**5)


def test_general_values_need_a_relation_between_the_keys() -> None:
    for heads in (4, 16):
        with pytest.raises(HypothesisError, match="d < H < N"):
            general_value_layer(4, heads)


@pytest.mark.parametrize(
    ("d", "heads", "degree", "units"), [(4, 8, 9, 3.2), (4, 10, 21, 5.0), (8, 16, 9, 7.8)]
)
def test_fitted_values_gain_almost_once_a_relation(
    d: int, heads: int, degree: int, units: float
) -> None:
    error = fitted_value_layer(d, heads, degree).squared_error()
    floor = head_floor(d, 1, heads, values="scalar").value
    unit = gain(d, 1)
    assert error < floor
    assert float(floor) - error.upper_float() > units * unit
    # never below the truncated scalar layer with one full gain a relation: what docs conjecture
    most = min(heads - d, harmonic_dimension(d, 3) - heads)
    assert error.upper_float() > truncated_floor(d, heads, degree) - most * unit
    assert error > head_floor(d, 1, heads, values="general").value


def test_fitted_layer_by_sampling() -> None:
    """Paired with the scalar layer on the same inputs, whose noise is nearly all shared."""
    layer, scalar = fitted_value_layer(4, 10, 9), generalized_rank_one(4, 10, 9)
    X, y, target = pairs(4, 100_000, 7)
    errors = [np.sum((target - one.evaluate(X, y)) ** 2, axis=1) for one in (layer, scalar)]
    difference = errors[1] - errors[0]
    expected = float(scalar.squared_error()) - float(layer.squared_error())
    noise = difference.std() / np.sqrt(len(difference))
    assert expected > 6 * noise
    assert abs(difference.mean() - expected) < 5 * noise


def test_a_perturbed_weight_changes_the_verdict() -> None:
    layer = general_value_layer(4, 5, 9)
    floor = head_floor(4, 1, 5, values="scalar").value
    assert layer.squared_error() < floor
    shifted = fmpq_mat(layer.values[0])
    shifted[0, 1] += fmpq(1, 10**4)
    value = dataclasses.replace(layer, values=(shifted, *layer.values[1:]))
    key = dataclasses.replace(layer, keys=((1, 0, 0, 0), *layer.keys[1:]))
    assert layer.couplings is not None
    coupling = fmpq_mat(layer.couplings)
    coupling[0, 0] *= fmpq(1001, 1000)
    for broken in (value, key, dataclasses.replace(layer, couplings=coupling)):
        assert broken.squared_error() > floor
    flat = Cubic(4, {(3, 0, 0, 0): fmpq(1)})
    with pytest.raises(HypothesisError, match="harmonic"):
        dataclasses.replace(layer, cubics=(flat,)).squared_error()


def test_interval_holds_for_any_values() -> None:
    """Values far from scalar and strong couplings: every term of the error counts."""
    draw = np.random.default_rng(11)
    base = general_value_layer(4, 5, 3)
    values = tuple(
        fmpq_mat(
            4,
            4,
            [
                fmpq(100 * (i == j) + int(x), 100)
                for (i, j), x in np.ndenumerate(draw.integers(-4, 5, size=(4, 4)))
            ],
        )
        for _ in range(5)
    )
    couplings = fmpq_mat(5, 1, [fmpq(int(x), 500) for x in draw.integers(-9, 10, size=5)])
    layer = dataclasses.replace(
        base, values=values, couplings=couplings, totals=tuple(fmpq(n, 10) for n in (1, 2, 3, 2, 1))
    )
    error = layer.squared_error()
    X, y, target = pairs(4, 60_000, 3)
    errors = np.sum((target - layer.evaluate(X, y)) ** 2, axis=1)
    noise = 5 * errors.std() / np.sqrt(len(errors))
    assert error.lower_float() - noise <= errors.mean() <= error.upper_float() + noise
    # without the zonal part nothing is estimated, and the interval is exact
    bare = dataclasses.replace(layer, zonal={1: fmpq_mat(5, 5), 3: fmpq_mat(5, 5)})
    exact = bare.squared_error()
    assert exact.radius < Fraction(1, 10**40)
    errors = np.sum((target - bare.evaluate(X, y)) ** 2, axis=1)
    assert abs(errors.mean() - float(exact)) < 5 * errors.std() / np.sqrt(len(errors))
    # scalar values: exact as well, with the cubic and the zonal parts overlapping
    scalar = dataclasses.replace(layer, values=tuple(fmpq_mat(4, 4, _DIAGONAL) for _ in range(5)))
    exact = scalar.squared_error()
    assert exact.radius < Fraction(1, 10**40)
    errors = np.sum((target - scalar.evaluate(X, y)) ** 2, axis=1)
    assert abs(errors.mean() - float(exact)) < 5 * errors.std() / np.sqrt(len(errors))


_DIAGONAL = [fmpq(9 * (i == j), 10) for i in range(4) for j in range(4)]


def test_gradient_field_by_differences() -> None:
    """The couplings' output is a gradient of the cubic: central differences share no code."""
    layer = general_value_layer(4, 5, 3, perturbation=Fraction(1, 64))
    bare = dataclasses.replace(layer, zonal={1: fmpq_mat(5, 5)}, totals=(fmpq(0),) * 5)
    X, y, _ = pairs(4, 20, 5)
    w = (X[..., 0] - X[..., 1]) / np.sqrt(2)
    form, step = layer.cubics[0], 1e-5
    gradient = np.stack(
        [(form.values(w + e) - form.values(w - e)) / (2 * step) for e in step * np.eye(4)], axis=1
    )
    output = np.sqrt(2) * bare.evaluate(X, y)
    ratio = output / (gradient * form.values(y)[:, None])
    assert np.allclose(ratio, ratio[0, 0], rtol=1e-5)
    assert abs(ratio[0, 0]) > 1e-3


@pytest.mark.parametrize("d", [2, 3, 5, 8])
def test_hard_head_with_general_value(d: int) -> None:
    best = hard_head_value(d)
    assert float(best.error) < float(best.scalar_error)
    difference = (d - 1) * ((best.along - best.across) / d) ** 2
    assert sympy.expand(best.scalar_error - best.error - difference) == 0
    # the error of these very weights, sampled: |f - Vx|^2 <= (1 + |V|)^2
    X, y, target = pairs(d, 200_000, 4)
    first = X[:, 0, :] * y[:, :1]
    chosen = np.where((first[:, :1] >= first[:, 1:]), X[..., 0], X[..., 1])
    value = np.diag([float(best.along), *[float(best.across)] * (d - 1)])
    errors = np.sum((target - chosen @ value) ** 2, axis=1)
    assert abs(errors.mean() - float(best.error)) < 6 * errors.std() / np.sqrt(200_000)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(4, 7), st.data())
def test_rank_is_full_up_to_half_the_dimension(d: int, data: st.DataObject) -> None:
    r = data.draw(st.integers(1, d // 2))
    degree = data.draw(st.integers(1, 4))
    heads = data.draw(st.integers(1, 8))
    full = min(heads * invariant_dimension(r, degree), harmonic_dimension(d, degree))
    assert invariant_rank(d, r, degree, heads, seed=data.draw(st.integers(0, 99))) == full


@pytest.mark.parametrize(
    ("d", "r", "degree"), [(5, 3, 2), (5, 3, 4), (6, 4, 2), (6, 4, 3), (7, 4, 2), (8, 5, 2)]
)
def test_two_subspaces_that_meet_are_dependent(d: int, r: int, degree: int) -> None:
    full = min(2 * invariant_dimension(r, degree), harmonic_dimension(d, degree))
    rank, ceiling = invariant_rank(d, r, degree, 2), rank_ceiling(d, r, degree, 2)
    assert rank == ceiling < full


def test_known_defects_from_three_heads_on() -> None:
    assert invariant_rank(7, 5, 3, 3) == 75 < min(105, harmonic_dimension(7, 3))
    for d, r, degree, heads in product((5, 6), (3, 4), (2, 3), (2, 3, 4)):
        assert invariant_rank(d, r, degree, heads) <= rank_ceiling(d, r, degree, heads)


def test_arguments_are_named() -> None:
    layer = generalized_rank_one(4, 1, 1)
    with pytest.raises(ArgumentError, match=r"X = \(3, 4\)"):
        layer.evaluate(np.zeros((3, 4)), np.zeros((3, 4)))
    with pytest.raises(ArgumentError, match=r"y = \(4,\)"):
        layer.evaluate(np.zeros((3, 4, 2)), np.zeros(4))
    with pytest.raises(ArgumentError, match="degree = 4"):
        generalized_rank_one(5, 2, 4)
    with pytest.raises(ArgumentError, match="heads = 0"):
        generalized_rank_one(5, 0, 3)
    with pytest.raises(ArgumentError, match="perturbation"):
        general_value_layer(4, 5, 3, perturbation=0)
    with pytest.raises(ArgumentError, match="prime = 91"):
        invariant_rank(6, 2, 3, 2, prime=91)
    with pytest.raises(ArgumentError, match="r = 6"):
        invariant_rank(6, 6, 2, 2)
