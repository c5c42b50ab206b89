"""Part H of the check: heads against rank."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np

from bounds import (
    Ball,
    closed_form_heads,
    head_floor,
    majority_vote_ceiling,
    majority_vote_error,
    min_heads,
    orthonormal_scale,
    rank_one_error_bound,
    separation,
    softmax_scale,
    square_wave,
    tail_energy,
    tail_energy_bounds,
)
from constructions import (
    AttentionLayer,
    full_rank_nearest_neighbor,
    general_value_layer,
    generalized_rank_one,
    majority_vote,
    nearest_neighbor,
    step_profile_layer,
    step_profile_target,
    step_profile_tokens,
)
from verification.claims import CLAIMS
from verification.confidence import clopper_pearson
from verification.finding import Finding, ball, upper_float
from verification.nearest_neighbor import random_frame
from verification.sandwich import sandwich
from verification.verify import verify


def check_full_rank_hard() -> Finding:
    """H1: one hard head is nearest neighbour exactly, on all inputs."""
    certificate = verify(full_rank_nearest_neighbor(64), nearest_neighbor)
    return Finding(
        "H1", "nearest neighbor, d = 64, one hard head", "rank 64 is enough",
        f"1 head of rank 64, {certificate.scope}: {certificate.verdict}", certificate.holds,
        {"certificate": certificate.to_dict()},
    )  # fmt: skip


def check_full_rank_soft() -> Finding:
    """H1: the sufficient softmax scale, and the certified error of the head that uses it."""
    bound = softmax_scale(64, "1/100")
    layer = full_rank_nearest_neighbor(64, scale=upper_float(bound))
    certificate = verify(layer, nearest_neighbor, error="1/100")
    assert isinstance(certificate.error, Ball)
    return Finding(
        "H1", "nearest neighbor, d = 64, one softmax head, error ≤ 1/100",
        f"scale ≤ {bound.value_text()} is enough",
        f"1 head of rank 64, certified error {certificate.error.decimal(6, 'up')}", certificate.holds,
        {"bound": bound.to_dict(), "certificate": certificate.to_dict()},
    )  # fmt: skip


def check_head_floor() -> Finding:
    """H2: the heads forced at rank 8, bracketed by the floor; one full-rank head does it."""
    error = Fraction(1, 10)
    bound = min_heads(64, 8, error)
    heads = bound.value
    assert isinstance(heads, int)
    at, before = head_floor(64, 8, heads), head_floor(64, 8, heads - 1)
    certificate = verify(
        full_rank_nearest_neighbor(64, scale=upper_float(softmax_scale(64, error))),
        nearest_neighbor, error=error,
    )  # fmt: skip
    bracketed = ball(at) <= error < ball(before)
    return Finding(
        "H2", "nearest neighbor, d = 64, rank-8 heads, error ≤ 1/10", f"≥ {bound.value_text()} heads",
        f"1 softmax head of rank 64: {certificate.verdict}", bracketed and certificate.holds,
        {"bound": bound.to_dict(), "floor": at.to_dict(), "certificate": certificate.to_dict()},
    )  # fmt: skip


def check_floor_below_layer() -> Finding:
    """H2: the floor lies below what a layer of random rank-1 hard heads attains (a sample)."""
    d, heads = 8, 16
    rng = np.random.default_rng(0)
    keys = rng.standard_normal((heads, d, 1))
    share = [np.eye(d) / heads] * heads
    layer = AttentionLayer(
        w_q=list(keys),
        w_k=list(keys),
        w_v=share,
        w_o=[np.eye(d)] * heads,
        method="random rank-1 heads",
    )
    floor = head_floor(d, 1, heads, values="scalar")
    certificate = verify(layer, nearest_neighbor, samples=4000, error=ball(floor).upper)
    assert isinstance(certificate.error, tuple)
    low, high = certificate.error
    return Finding(
        "H2", "nearest neighbor, d = 8, 16 rank-1 heads, V = aI", f"error ≥ {floor.value_text()}",
        f"random heads: error in [{low:.3f}, {high:.3f}] at 99.9 %", ball(floor) <= Fraction(high),
        {"bound": floor.to_dict(), "certificate": certificate.to_dict()},
    )  # fmt: skip


def check_tightness() -> Finding:
    """H3: generalized rank-1 heads come down to the scalar floor, their error computed exactly."""
    d, heads, degree = 8, 12, 7
    layer = generalized_rank_one(d, heads, degree, seed=0)
    error, floor = layer.squared_error(), ball(head_floor(d, 1, heads, values="scalar"))
    gap = error.upper - floor.lower
    return Finding(
        "H3", f"nearest neighbor, d = {d}, {heads} generalized rank-1 heads, V = aI",
        f"error ≥ {floor.decimal(10, 'down')}", f"error {error.decimal(10, 'up')}, exactly computed",
        floor <= error and gap < Fraction(1, 1000), {"error": error.exact(), "floor": floor.exact()},
    )  # fmt: skip


def check_closed_form() -> Finding:
    """H4: the tail of the sign's energies between its elementary bounds; the closed count below the exact."""
    lower, upper = tail_energy_bounds(64, 99)
    tail = tail_energy(64, 99)
    closed, exact = closed_form_heads(4096, 64, "1/20"), min_heads(4096, 64, "1/20")
    return Finding(
        "H4", "tail energy, d = 64, degrees > 99; heads at d = 4096, r = 64, error ≤ 1/20",
        f"{lower.value_text()} ≤ T ≤ {upper.value_text()}; ≥ {closed.value_text()} heads",
        f"T = {tail.decimal(10)}; exactly ≥ {exact.value_text()}",
        ball(lower) <= tail <= ball(upper) and closed.is_below(dataclasses.replace(exact, kind="exact")),
        {"lower": lower.to_dict(), "upper": upper.to_dict(), "closed": closed.to_dict()},
    )  # fmt: skip


def check_separation() -> Finding:
    """H5: rank-16 heads against full-rank heads on the square wave, which the built layer realises."""
    d, rank = 64, 16
    bound, wave = separation(d, rank, 4, "1/2"), square_wave(64, 4)
    layer = step_profile_layer(d, wave)
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(50):
        points, query = random_frame(rng, d, 2), rng.standard_normal(d)
        query /= np.linalg.norm(query)
        got = layer.attend(np.append(query, 0.0)[None, :], step_profile_tokens(points))[0]
        worst = max(worst, float(np.abs(got - step_profile_target(wave, points, query)).max()))
    return Finding(
        "H5", f"square wave, d = {d}, α = 4, relative error ≤ 1/2, rank-{rank} heads",
        f"≥ {bound.value_text()} heads", f"{layer.heads} full-rank heads: within {worst:.1e} on 50 inputs",
        worst < 1e-9 and isinstance(bound.value, int) and bound.value > layer.heads,
        {"bound": bound.to_dict()},
    )  # fmt: skip


def check_sandwich() -> Finding:
    """H6: optimised rank-1 hard heads, their certified error above the floor and below existence."""
    pair, existence = sandwich(8, 1, 256), rank_one_error_bound(8, 256)
    built, known = ball(pair.upper), ball(existence)
    return Finding(
        "H6", "nearest neighbor, d = 8, 256 rank-1 hard heads, V = aI",
        f"error ≥ {pair.lower.value_text()}; ≤ {existence.value_text()} exists",
        f"built: certified error {built.decimal(8, 'up')}", pair.holds and built <= known,
        {"lower": pair.lower.to_dict(), "upper": pair.upper.to_dict(), "existence": existence.to_dict()},
    )  # fmt: skip


def check_majority_vote() -> Finding:
    """H7: two layers of rank-1 heads; the built network's sampled error around the exact one."""
    d, heads, samples = 8, 21, 400
    exact, ceiling = majority_vote_error(d, heads), majority_vote_ceiling(d, heads)
    rng = np.random.default_rng(0)
    wrong = 0
    for index in range(samples):
        network = majority_vote(d, heads, seed=index)
        points, query = random_frame(rng, d, 2), rng.standard_normal(d)
        query /= np.linalg.norm(query)
        wrong += not np.array_equal(network.select(points, query), nearest_neighbor(points, query))
    low, high = clopper_pearson(wrong, samples, 0.9999)
    inside = Fraction(2 * low) <= ball(exact).lower and ball(exact).upper <= Fraction(2 * high)
    return Finding(
        "H7", f"nearest neighbor, d = {d}, two layers, {heads} rank-1 heads",
        f"error {exact.value_text()} ≤ {ceiling.value_text()}",
        f"built: error in [{2 * low:.3f}, {2 * high:.3f}] at 99.99 %", inside and ball(exact) <= ball(ceiling),
        {"exact": exact.to_dict(), "ceiling": ceiling.to_dict()},
    )  # fmt: skip


def check_context() -> Finding:
    """H8: the floor among five points, and the softmax scale of one full-rank head for them."""
    floor = head_floor(64, 8, 10**6, context=5)
    heads, scale = min_heads(64, 8, "1/10", context=5), orthonormal_scale(64, 5, "1/20")
    layer = full_rank_nearest_neighbor(64, upper_float(scale))
    certificate = verify(layer, nearest_neighbor, samples=2000, context=5, error="1/10")
    return Finding(
        "H8", "nearest neighbor among 5 points, d = 64, rank-8 heads, error ≤ 1/10",
        f"≥ {heads.value_text()} heads; 10^6 heads: error ≥ {floor.value_text()}",
        f"1 softmax head of rank 64, sampled: {certificate.verdict}",
        certificate.holds and isinstance(heads.value, int) and heads.value > 1,
        {"floor": floor.to_dict(), "heads": heads.to_dict(), "certificate": certificate.to_dict()},
    )  # fmt: skip


def check_general_values() -> Finding:
    """General values beat the scalar floor: one layer with its error certified."""
    layer = general_value_layer(4, 10)
    error = layer.squared_error()
    scalar, general = head_floor(4, 1, 10, values="scalar"), head_floor(4, 1, 10)
    return Finding(
        "H2", "nearest neighbor, d = 4, 10 generalized rank-1 heads, any V",
        f"error ≥ {general.value_text()} (V = aI: ≥ {scalar.value_text()})",
        f"built: error {error.decimal(8, 'up')}", ball(general) <= error < ball(scalar),
        {"error": error.exact(), "general": general.to_dict(), "scalar": scalar.to_dict()},
    )  # fmt: skip


def check_claims() -> Finding:
    """P1-P6: each link between a claim and our results, computed."""
    outcomes = {claim.name: claim.check() for claim in CLAIMS if claim.check is not None}
    relations = ", ".join(f"{claim.name} {claim.relation}" for claim in CLAIMS)
    return Finding(
        "P1-P6", "claims of the paper on heads against rank", "constants unknown: no number is given",
        relations, all(holds for holds, _ in outcomes.values()),
        {name: text for name, (_, text) in outcomes.items()},
    )  # fmt: skip
