"""H7: the majority vote, its exact error, and the network that takes it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from fractions import Fraction
from math import comb

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bounds.arithmetic import Ball
from bounds.bound import Bound
from bounds.errors import ArgumentError
from bounds.majority_vote import (
    majority_vote_ceiling,
    majority_vote_error,
    majority_vote_heads,
)
from constructions.attention import AttentionLayer
from constructions.majority_vote import MajorityVote, majority_vote


def ball(bound: Bound) -> Ball:
    assert isinstance(bound.value, Ball)
    return bound.value


def error_by_quadrature(d: int, heads: int) -> mpmath.mpf:
    """The definition: 2 E_t[Pr(Bin(H, p) < H/2) + Pr(= H/2) / 2], tail summed term by term."""

    def wrong(p: mpmath.mpf) -> mpmath.mpf:
        terms = [comb(heads, k) * p**k * (1 - p) ** (heads - k) for k in range(heads // 2 + 1)]
        if heads % 2 == 0:
            terms[-1] /= 2
        return mpmath.fsum(terms)

    with mpmath.workdps(30):
        half = mpmath.mpf(1) / 2
        c = mpmath.gamma(half * d) / mpmath.sqrt(mpmath.pi) / mpmath.gamma(half * (d - 1))
        cuts = mpmath.linspace(0, mpmath.pi / 2, 5)
        return (
            4
            * c
            * mpmath.quad(lambda u: mpmath.cos(u) ** (d - 2) * wrong(half + u / mpmath.pi), cuts)
        )


@pytest.mark.parametrize(
    ("d", "heads", "digits"),
    [(8, 101, "0.2410498690"), (16, 1001, "0.1189481400"), (32, 4001, "0.0867676197")],
)
def test_reference_values(d: int, heads: int, digits: str) -> None:
    value = ball(majority_vote_error(d, heads, digits=30))
    assert abs(value.midpoint - Fraction(digits)) <= Fraction(1, 2 * 10**10)
    assert value.radius * 10**30 <= value.midpoint


@pytest.mark.parametrize("d", [2, 3, 4, 7, 20])
@pytest.mark.parametrize("heads", [1, 2, 3, 8, 25])
def test_exact_error_is_the_definition(d: int, heads: int) -> None:
    value = ball(majority_vote_error(d, heads))
    assert abs(float(value) - float(error_by_quadrature(d, heads))) < 1e-14


@pytest.mark.parametrize("n", [1, 2, 10, 500])
def test_two_dimensions_in_closed_form(n: int) -> None:
    exact = Fraction(comb(2 * n, n), 4**n)
    for bound in (majority_vote_error(2, 2 * n - 1), majority_vote_ceiling(2, 2 * n)):
        assert exact in ball(bound)
        assert ball(bound).radius < exact / 10**14


@pytest.mark.parametrize(
    ("d", "exact"),
    [
        (3, lambda pi: 2 / pi),  # 1 - 2 E|arcsin t| / pi, by hand
        (4, lambda pi: 1 / mpmath.mpf(2) + 2 / pi**2),
    ],
)
def test_one_head_in_closed_form(d: int, exact: Callable[[mpmath.mpf], mpmath.mpf]) -> None:
    with mpmath.workdps(40):
        difference = exact(mpmath.pi) - mpmath.mpf(ball(majority_vote_error(d, 1)).decimal(25))
        assert abs(difference) < 1e-16


@given(d=st.integers(2, 300), heads=st.integers(1, 10**7))
@settings(max_examples=60, deadline=None)
def test_closed_bounds_enclose_the_exact_error(d: int, heads: int) -> None:
    value, ceiling = ball(majority_vote_error(d, heads)), ball(majority_vote_ceiling(d, heads))
    n = (heads + 1) // 2
    assert value.lower <= ceiling.upper if d == 2 else value < ceiling
    loss = Fraction(988, 100) * (d - 2) / (24 * (n + 1))  # pi^2 < 9.88
    assert value.upper >= ceiling.lower * (1 - loss)
    # the Gaussian form c_d sqrt(2 pi / (H + 1/2)), and Hoeffding's pi times larger one
    with mpmath.workdps(30):
        half = mpmath.mpf(1) / 2
        c = mpmath.gammaprod([half * d], [half * (d - 1)]) / mpmath.sqrt(mpmath.pi)
        gaussian = c * mpmath.sqrt(2 * mpmath.pi / (heads + half))
        hoeffding = 2 * mpmath.pi**1.5 * c / mpmath.sqrt(2 * heads)
    assert float(ceiling) < gaussian < hoeffding / 3


@given(d=st.integers(2, 80), n=st.integers(1, 3000))
@settings(max_examples=40, deadline=None)
def test_an_even_number_is_worth_one_less_and_odd_ones_improve(d: int, n: int) -> None:
    odd, even = ball(majority_vote_error(d, 2 * n - 1)), ball(majority_vote_error(d, 2 * n))
    assert odd == even
    assert ball(majority_vote_error(d, 2 * n + 1)) < odd


def test_error_grows_with_the_dimension() -> None:
    values = [ball(majority_vote_error(d, 99)) for d in range(2, 40)]
    assert all(low < high for low, high in itertools.pairwise(values))


@given(d=st.integers(2, 64), denominator=st.integers(2, 300))
@settings(max_examples=25, deadline=None)
def test_heads_are_the_least_that_suffice(d: int, denominator: int) -> None:
    epsilon = Fraction(1, denominator)
    heads = majority_vote_heads(d, epsilon).value
    assert isinstance(heads, int)
    assert heads % 2 == 1
    assert ball(majority_vote_error(d, heads)).lower <= epsilon
    if heads > 1:
        assert ball(majority_vote_error(d, heads - 2)) > epsilon


def test_an_error_that_is_met_exactly_is_decided() -> None:
    assert majority_vote_heads(2, "1/2").value == 1
    assert majority_vote_heads(2, "3/8").value == 3
    assert majority_vote_heads(2, Fraction(comb(400, 200), 4**200)).value == 399
    assert majority_vote_heads(2, Fraction(comb(400, 200) - 1, 4**200)).value == 401


def test_large_sizes_are_fast() -> None:
    start = time.perf_counter()
    majority_vote_error(32, 4001)
    majority_vote_error(64, 10**5)
    assert majority_vote_heads(64, "1/1000").value == 62501897
    assert time.perf_counter() - start < 2


def test_bounds_survive_json_and_speak_of_two_layers() -> None:
    for bound in (
        majority_vote_error(8, 101),
        majority_vote_ceiling(8, 101),
        majority_vote_heads(8, "1/10"),
    ):
        assert Bound.from_json(bound.to_json()) == bound
        assert bound.model.layers == 2
    assert majority_vote_ceiling(1024, 11).status == "vacuous"


@pytest.mark.parametrize("arguments", [(1, 5), (4, 0), (4.0, 5), (True, 5)])
def test_wrong_arguments_are_named(arguments: tuple[int, int]) -> None:
    for call in (majority_vote_error, majority_vote_ceiling):
        with pytest.raises(ArgumentError, match=r"d =|heads ="):
            call(*arguments)
    with pytest.raises(ArgumentError, match="error"):
        majority_vote_heads(4, 0)


def frame(d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A uniform pair of orthonormal points and a uniform query."""
    q, r = np.linalg.qr(rng.standard_normal((d, 2)))
    query = rng.standard_normal(d)
    return (q * np.sign(np.diag(r))).T, query / np.linalg.norm(query)


def signs(network: MajorityVote, points: np.ndarray, query: np.ndarray) -> int:
    """The vote counted outside the network, from its keys."""
    keys = np.array([matrix[: network.d, 0] for matrix in network.vote.w_k])
    scores = (keys @ points.T) * (keys @ query)[:, None]
    return int(np.where(scores[:, 0] >= scores[:, 1], 1, -1).sum())


@given(d=st.integers(2, 12), heads=st.integers(1, 30), seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_network_takes_the_majority(d: int, heads: int, seed: int) -> None:
    network = majority_vote(d, heads, seed=seed)
    points, query = frame(d, np.random.default_rng(seed + 1))
    count = signs(network, points, query)
    assert network.votes(points, query) == count
    assert np.array_equal(network.select(points, query), points[0 if count >= 0 else 1])
    assert network.vote.key_dims == (1,) * heads
    assert network.selection.key_dims == (1,)


def test_swapping_the_points_changes_nothing_but_ties() -> None:
    rng = np.random.default_rng(3)
    ties = 0
    for seed in range(60):
        network = majority_vote(4, 4, seed=seed)
        points, query = frame(4, rng)
        count = network.votes(points, query)
        assert network.votes(points[::-1], query) == -count
        same = np.array_equal(network.select(points, query), network.select(points[::-1], query))
        assert same == (count != 0)
        if count == 0:
            ties += 1
            assert np.array_equal(network.select(points, query), points[0])
    assert ties > 5


def test_one_head_follows_its_key() -> None:
    rng = np.random.default_rng(5)
    for seed in range(40):
        network = majority_vote(3, 1, seed=seed)
        points, query = frame(3, rng)
        key = network.vote.w_k[0][:3, 0]
        best = np.argmax((points @ key) * (query @ key))
        assert np.array_equal(network.select(points, query), points[best])


def test_soft_heads_tend_to_hard_ones() -> None:
    rng = np.random.default_rng(7)
    hard = majority_vote(6, 9, seed=2)
    soft = majority_vote(6, 9, seed=2, kind="soft", logit_scale=1e9)
    mild = majority_vote(6, 9, seed=2, kind="soft", logit_scale=0.1)
    for _ in range(30):
        points, query = frame(6, rng)
        assert np.allclose(hard.select(points, query), soft.select(points, query), atol=1e-9)
        mixture = points @ mild.select(points, query)
        assert mixture.min() > 0.4
        assert abs(mixture.sum() - 1) < 1e-12


def test_without_the_mask_the_query_attends_to_itself() -> None:
    """The mask is needed: <k, y>^2 may beat both points, and the head then casts no vote."""
    network = majority_vote(3, 1, seed=0)
    key = network.vote.w_k[0][:3, 0]
    basis = np.linalg.svd(key[None])[2]
    points = basis[1:]  # both orthogonal to the key
    tokens = network.tokens(points, key)
    assert network.vote.attend(tokens, tokens)[2, -1] == 0
    assert network.vote.attend(tokens, tokens, network.mask)[2, -1] in (-1, 1)


@pytest.mark.parametrize(("d", "heads"), [(3, 1), (5, 11)])
def test_monte_carlo_meets_the_exact_error(d: int, heads: int) -> None:
    """An exact Clopper-Pearson interval at level 1 - 1e-6 for the chance of the wrong point."""
    rng = np.random.default_rng(11)
    trials, wrong = 800, 0
    for seed in range(trials):
        points, query = frame(d, rng)
        chosen = majority_vote(d, heads, seed=seed).select(points, query)
        wrong += not np.array_equal(chosen, points[np.argmax(points @ query)])
    low = stats.beta.ppf(5e-7, wrong, trials - wrong + 1)
    high = stats.beta.ppf(1 - 5e-7, wrong + 1, trials - wrong)
    assert low <= float(ball(majority_vote_error(d, heads))) / 2 <= high


def test_broken_weights_are_noticed() -> None:
    network = majority_vote(5, 9, seed=4)
    flipped = AttentionLayer(
        w_q=network.selection.w_q,
        w_k=[-network.selection.w_k[0]],
        w_v=network.selection.w_v,
        w_o=network.selection.w_o,
    )
    broken = MajorityVote(vote=network.vote, selection=flipped)
    points, query = frame(5, np.random.default_rng(9))
    assert not np.array_equal(broken.select(points, query), network.select(points, query))


def test_shapes_are_checked() -> None:
    network = majority_vote(3, 2, seed=0)
    with pytest.raises(ArgumentError, match="points"):
        network.select(np.eye(3), [1.0, 0.0, 0.0])
    with pytest.raises(ArgumentError, match="query"):
        network.select(np.eye(3)[:2], [1.0, 0.0])
