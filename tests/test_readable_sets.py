"""C6: which sets a linear threshold readout names from a sum: dimensions, degrees, and random embeddings."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import comb, cos, pi, sin
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp
from scipy.optimize import linprog

from bounds import ArgumentError, Bound
from bounds.identity_readout import random_readout_degree, readout_dimension
from constructions.identity_readout import dual_readout
from verification.readable_sets import readable_degree


def subsets(items: int, largest: int) -> list[tuple[int, ...]]:
    return [c for size in range(largest + 1) for c in itertools.combinations(range(items), size)]


def readable(x: np.ndarray, degree: int) -> float:
    """The best margin, at most 1/2, of a readout of all sets of at most so many items at threshold 1/2:
    one linear program an item, with a row for each set."""
    worst = 0.5
    for j in range(len(x)):
        rows, limits = [], []
        for chosen in subsets(len(x), degree):
            sign = -1.0 if j in chosen else 1.0
            rows.append([*(sign * x[list(chosen)].sum(axis=0)), 1.0])
            limits.append(sign * 0.5)
        free = [(None, None)] * x.shape[1]
        found = linprog(
            [0.0] * x.shape[1] + [-1.0], A_ub=rows, b_ub=limits, bounds=[*free, (None, 0.5)]
        )
        assert found.status == 0
        worst = min(worst, float(found.x[-1]))
    return worst


def dependency_ratio(x: np.ndarray) -> float:
    """min over dependencies c of max(sum c+, sum c-) / max |c|; inf for independent embeddings."""
    m, d = x.shape
    least = np.inf
    for j in range(m):
        # c = a - b, a, b >= 0, c_j = 1 = max |c|; least t with sum a, sum b <= t
        balance = np.hstack([x.T, -x.T, np.zeros((d, 1))])
        sums = np.zeros((2, 2 * m + 1))
        sums[0, :m] = sums[1, m:-1] = 1.0
        sums[:, -1] = -1.0
        bounds: list[tuple[float, float | None]] = [(0.0, 1.0)] * (2 * m) + [(0.0, None)]
        bounds[j], bounds[m + j] = (1.0, 1.0), (0.0, 0.0)
        found = linprog(
            [0.0] * (2 * m) + [1.0],
            A_ub=sums,
            b_ub=[0.0, 0.0],
            A_eq=balance,
            b_eq=[0.0] * d,
            bounds=bounds,
        )
        if found.status == 0:
            least = min(least, float(found.fun))
    return least


@pytest.mark.parametrize("seed", range(10))
def test_dependencies_decide_which_sets_can_be_read(seed: int) -> None:
    """The page's criterion against every set written out."""
    m, d = [(5, 3), (6, 3), (6, 4), (7, 5), (5, 2)][seed % 5]
    x = np.random.default_rng(seed).standard_normal((m, d))
    if seed >= 5:
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    ratio = dependency_ratio(x)
    for degree in range(1, m + 1):
        if abs(ratio - degree) > 1e-6:
            assert (readable(x, degree) > 1e-9) == (degree < ratio)


@given(st.integers(0, 10**6), st.integers(3, 9), st.integers(1, 6))
def test_no_embeddings_beat_the_dimension_bound(seed: int, m: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((m, d))
    if seed % 2:
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    ratio = dependency_ratio(x)
    degree = m if ratio == np.inf else int(np.ceil(ratio - 1e-9)) - 1
    if degree >= 1:
        assert readout_dimension(m, degree).value <= d


def simplex(m: int) -> np.ndarray:
    return np.eye(m) - 1 / m


def test_the_dimension_bound_is_attained() -> None:
    for m in (3, 4, 6):
        assert dependency_ratio(simplex(m)) == pytest.approx(m)  # so D = m - 1, in m - 1 dimensions
        assert readout_dimension(m, m - 1).value == m - 1
        assert readout_dimension(m, m).value == readout_dimension(m, m + 5).value == m
    circle = np.array([[cos(2 * pi * k / 9), sin(2 * pi * k / 9)] for k in range(9)])
    assert dependency_ratio(circle) > 1 + 1e-6
    assert readout_dimension(9, 1).value == 2
    assert readout_dimension(2, 1).value == 1
    assert readable(np.array([[1.0], [-1.0]]), 1) > 0.4


def by_hand(m: int, degree: int) -> int:
    """The least d that none of the five excludes, by trying."""
    d = 1
    while True:
        square = (degree - 1) ** 2
        fits = [
            sum(comb(m, k) for k in range(min(degree, m) + 1))
            <= sum(comb(m, k) for k in range(d + 1)),
            d >= 2 or m <= 2,
        ]
        if 2 <= degree < m:
            fits.append(d * (m - 1 + square) > m * square)
            fits.append(Fraction(2 * degree + 1, degree - 1) ** d >= m)
            for k in range(1, 2 * m.bit_length() + 1):
                energy = 1 + max(Fraction(1), Fraction(m - 1, square**k))
                fits += [comb(d + k - 1, k) * energy >= m]
        if all(fits):
            return d
        d += 1


@given(st.integers(1, 200), st.integers(1, 30))
def test_the_dimension_bound_by_hand(m: int, degree: int) -> None:
    assert readout_dimension(m, degree).value == by_hand(m, degree)


def test_the_dimension_bound_at_size() -> None:
    values = {
        (1000, 31): (474, "projection"),
        (10**6, 3): (13, "powers"),
        (10**9, 2): (13, "packing"),
        (10**12, 30): (1681, "powers"),
    }
    for (m, degree), (value, winner) in values.items():
        bound = readout_dimension(m, degree)
        assert (bound.value, bound.parameters["winner"]) == (value, winner)
    assert Bound.from_json(bound.to_json()) == bound
    assert "d_model >= 1681" in str(bound)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 3), st.sampled_from([0, 0.25, 0.5]))
def test_readable_degree_is_exact(seed: int, m: int, d: int, off: float) -> None:
    """Integers and quarters: every sum is exact, and every set is tried."""
    rng = np.random.default_rng(seed)
    x, r = rng.integers(-2, 4, (m, d)).astype(float), rng.integers(-2, 4, (m, d)).astype(float)
    if seed % 3:
        r = x
    theta = float(rng.integers(-1, 9)) / 2 + 0.375
    best = 0
    for degree in range(1, m + 1):
        right = all(
            (z - off > theta) if j in chosen else (z + off <= theta)
            for chosen in subsets(m, degree)
            for j, z in enumerate(r @ x[list(chosen)].sum(axis=0))
        )
        if not right:
            break
        best = degree
    assert readable_degree(x, r, theta, off) == best


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_coherence_guarantees_the_degree(seed: int, degree: int) -> None:
    """(2D - 1) mu < 1 is enough at the threshold (1 + mu) / 2, and no less is."""
    rng = np.random.default_rng(seed)
    mu = (1 - 1e-6) / (2 * degree - 1)
    m = 2 * degree + 1
    cross = np.eye(m) + np.where(np.eye(m), 0, mu * rng.choice([-1.0, 1.0, 0.3], (m, m)))
    assert readable_degree(np.eye(m), cross.T, (1 + mu) / 2) >= degree
    mu = 1 / (2 * degree - 1)  # one column with D - 1 negative and D positive entries
    cross = np.eye(m)
    cross[1:degree, 0], cross[degree : 2 * degree, 0] = -mu, mu
    for theta in (0.5, (1 + mu) / 2, 0.9 - mu / 2):
        assert readable_degree(np.eye(m), cross.T, theta) < degree


def test_outputs_that_are_off_count_on_both_sides() -> None:
    vectors = [[1.0, 0.25], [0.25, 1.0]]
    assert readable_degree(np.eye(2), vectors, 0.5, "1/5") == 2
    assert readable_degree(np.eye(2), vectors, 0.5, "3/10") == 0  # 1/4 + 3/10 is above 1/2
    assert readable_degree(np.eye(2), vectors, 0.75, "3/10") == 0  # 1 - 3/10 is not above 3/4


def test_dual_vectors_of_independent_embeddings_read_every_set() -> None:
    x = np.random.default_rng(0).standard_normal((6, 8))
    assert readable_degree(x, dual_readout(x), "1/2", "499/1000") == 6
    assert readable_degree(x, dual_readout(x), "1/2", "501/1000") == 0


@pytest.mark.parametrize("eta", ["0", "1/10"])
@pytest.mark.parametrize(
    ("sets", "contexts"), [("any", None), ("graph", 1), ("graph", 10**6), ("graph", None)]
)
def test_random_degree_is_the_largest_that_the_inequality_allows(
    sets: Any, contexts: int | None, eta: str
) -> None:
    mp.dps = 40
    off = mp.mpf(Fraction(eta).numerator) / Fraction(eta).denominator
    for m, d in ((10, 413), (50, 40), (1000, 384), (1000, 4096), (30522, 768), (100, 10**6)):

        def any_set(degree: int, m: int = m, d: int = d) -> bool:
            t = (1 - 2 * off) / (2 * degree - 1)
            return (
                t == 1
                or mp.mpf(m * (m - 1)) / 2 * (1 - t * t) ** (mp.mpf(d - 1) / 2) <= mp.mpf(1) / 100
            )

        def graph(degree: int, m: int = m, d: int = d) -> bool:
            k = mp.mpf(2) ** degree if contexts is None else contexts
            return bool(
                m * m * k * mp.exp(-((mp.mpf(1) / 2 - off) ** 2) * d / (2 * degree))
                <= mp.mpf(1) / 100
            )

        bound = random_readout_degree(m, d, "1/100", sets=sets, contexts=contexts, deviation=eta)
        value = bound.value
        assert isinstance(value, int)
        holds = any_set if sets == "any" else lambda n, a=any_set, g=graph: a(n) or g(n)
        assert value == 0 or holds(value)
        assert value == m or not holds(value + 1)


def test_random_embeddings_read_what_is_promised() -> None:
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((120, 700))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        degree = random_readout_degree(120, 700, "1/100").value
        assert isinstance(degree, int)
        assert degree >= 2
        t = 1 / (2 * degree - 1)
        assert readable_degree(x, x, (1 + t) / 2) >= degree
        many = random_readout_degree(120, 700, "1/100", sets="graph", contexts=1).value
        assert isinstance(many, int)
        assert many > degree
        rng = np.random.default_rng(seed + 10)
        adjacency = np.zeros((120, 120), dtype=bool)
        for row in adjacency:
            row[rng.choice(120, many, replace=False)] = True
        assert ((adjacency @ x @ x.T > 0.5) == adjacency).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda: readout_dimension(0, 1),
        lambda: readout_dimension(3, 0),
        lambda: random_readout_degree(1, 5, "1/2"),
        lambda: random_readout_degree(5, 1, "1/2"),
        lambda: random_readout_degree(5, 5, 1),
        lambda: random_readout_degree(5, 5, "1/2", deviation="1/2"),
        lambda: random_readout_degree(5, 5, "1/2", sets="all"),  # type: ignore[arg-type]
        lambda: random_readout_degree(5, 5, "1/2", contexts=3),
        lambda: random_readout_degree(5, 5, "1/2", sets="graph", contexts=0),
        lambda: readable_degree(np.eye(3), np.eye(4), 0.5),
        lambda: readable_degree(np.eye(3), np.eye(3), 0.5, -1),
        lambda: readable_degree(np.zeros((0, 3)), np.zeros((0, 3)), 0.5),
    ],
)
def test_wrong_arguments(call: Any) -> None:
    with pytest.raises(ArgumentError):
        call()


def test_degrees_for_more_dimensions_than_floats_can_count() -> None:
    m, d = 10**300, 10**200
    degree = random_readout_degree(m, d, "1/100").value
    with mpmath.workdps(1000):
        for n, holds in ((degree, True), (degree + 1, False)):
            t = 1 / (2 * mpmath.mpf(n) - 1)
            pairs = mpmath.log(mpmath.mpf(m) * (m - 1) / 2 * 100)
            assert (pairs + mpmath.log1p(-t * t) * (d - 1) / 2 <= 0) == holds


def test_numbers_beyond_float64_are_refused_by_name() -> None:
    for arguments, name in (((10**400,), "threshold"), ((0.5, 10**400), "deviation")):
        with pytest.raises(ArgumentError, match=f"{name} = "):
            readable_degree(np.eye(3), np.eye(3), *arguments)
