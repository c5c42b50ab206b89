"""H6: the entries of C and b, the heads that suffice, the weights, and the judge of the weights."""

from fractions import Fraction
from functools import partial

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from bounds import Ball, head_floor
from bounds.errors import ArgumentError, HypothesisError
from bounds.head_overlap import head_overlap, target_overlap, target_overlap_series
from bounds.rank_one import least_heads, rank_one_error_bound, rank_one_heads
from constructions.attention import AttentionLayer
from constructions.head_directions import _group, _group_orders, _OrbitSearch, signed_symmetries
from constructions.head_weights import optimal_weights
from constructions.rank_one import head_weights, rank_one_layer
from verification import rank_one as judge
from verification.rank_one import rank_one_error, weights_error


def directions(seed, heads, d):
    x = np.random.default_rng(seed).standard_normal((2, heads, d))
    return x / np.linalg.norm(x, axis=2, keepdims=True)


def mp_sign_energy(d, ell):
    """(lambda_l, N) by quadrature-free Gamma functions, written independently of the package."""
    c = (
        mpmath.gamma(mpmath.mpf(d) / 2)
        / mpmath.sqrt(mpmath.pi)
        / mpmath.gamma(mpmath.mpf(d - 1) / 2)
    )
    k = (ell - 1) // 2
    ratio = mpmath.rf(mpmath.mpf(1) / 2, k) / mpmath.rf(mpmath.mpf(d + 1) / 2, k)
    dimension = mpmath.binomial(ell + d - 1, ell)
    if ell >= 2:
        dimension -= mpmath.binomial(ell + d - 3, ell - 2)
    return (-1) ** k * 2 * c / (d - 1) * ratio, dimension


def mp_target_overlap(d, t):
    """1/2 - (c_d/pi)... by integrating the closed form in the angle, with mpmath's 2F1."""
    d, t = mpmath.mpf(d), mpmath.mpf(t)
    scale = mpmath.sqrt(mpmath.pi) * mpmath.gamma(d / 2) / (2 * mpmath.gamma((d + 1) / 2))

    def slope(angle):
        s = mpmath.sin(angle)
        return scale * s * mpmath.hyp2f1(0.5, 0.5, (d + 1) / 2, s * s)

    area = mpmath.quad(slope, [mpmath.acos(abs(t)), mpmath.pi / 2])
    return mpmath.mpf(1) / 2 + mpmath.sign(t) * 2 / mpmath.pi**2 * area


def mp_error(q, k, a):
    """1 - 2 b.a + a.C.a in 25 digits, normalising the float vectors."""
    with mpmath.workdps(25):
        q, k = ([[mpmath.mpf(float(x)) for x in row] for row in m] for m in (q, k))
        q, k = ([[x / mpmath.norm(row) for x in row] for row in m] for m in (q, k))
        a = [mpmath.mpf(float(x)) for x in a]
        error = mpmath.mpf(1)
        for h in range(len(a)):
            error -= 2 * a[h] * mp_target_overlap(len(q[h]), mpmath.fdot(q[h], k[h]))
            for g in range(len(a)):
                angles = [
                    mpmath.pi / 2 if g == h else mpmath.asin(mpmath.fdot(m[h], m[g]))
                    for m in (q, k)
                ]
                error += a[h] * a[g] * (0.5 + 2 / mpmath.pi**2 * angles[0] * angles[1])
        return +error


def as_fraction(value):
    return Fraction(*mpmath.libmp.to_rational(mpmath.mpf(value)._mpf_))


def near(ball, value, tolerance="1e-12"):
    return abs(ball.midpoint - as_fraction(value)) + ball.radius < Fraction(tolerance)


class TestOverlaps:
    @pytest.mark.parametrize("d", [2, 3, 8, 33])
    @pytest.mark.parametrize("t", ["-0.3", "0", "1e-9", "0.75", "1"])
    def test_closed_form_is_the_integral_and_the_series(self, d, t):
        closed = target_overlap(d, t, digits=20)
        assert closed.radius < Fraction(1, 10**20)
        with mpmath.workdps(30):
            exact = Fraction(t)
            oracle = mp_target_overlap(d, mpmath.mpf(exact.numerator) / exact.denominator)
            assert near(closed, oracle, "1e-18")
        series = target_overlap_series(d, t, 61)
        assert closed in series
        assert series.radius < Fraction(1, 10**4)

    def test_plane_is_piecewise_quadratic(self):
        # d = 2: b = 3/4 - (theta/pi)^2 at theta = j pi / 12
        for j in range(7):
            t = np.cos(j * np.pi / 12)
            expected = 0.75 - (j / 12) ** 2
            assert abs(float(target_overlap(2, float(t))) - expected) < 1e-15
            assert abs(float(target_overlap(2, float(-t))) - (1 - expected)) < 1e-15

    def test_space_against_elliptic_integrals(self):
        # d = 3: 2F1(1/2,1/2;2;m) = (4/pi) (E(m) - (1-m) K(m)) / m
        with mpmath.workdps(30):

            def slope(x):
                m = 1 - x * x
                if m == 1:
                    return 4 / mpmath.pi
                return 4 / mpmath.pi * (mpmath.ellipe(m) - (1 - m) * mpmath.ellipk(m)) / m

            value = mpmath.mpf(1) / 2 + mpmath.quad(slope, [0, 0.01, 0.4]) / (2 * mpmath.pi)
        assert near(target_overlap(3, "2/5", digits=25), value, "1e-15")

    @pytest.mark.parametrize(("d", "t"), [(3, 0.6), (8, 0.9), (8, -0.4)])
    def test_monte_carlo(self, d, t):
        """Counts against exact binomial tails: a false alarm has probability below 1e-9 a test."""
        n = 200_000
        rng = np.random.default_rng(d)
        w, y = rng.standard_normal((2, n, d))
        q, other = np.eye(d)[0], np.eye(d)[1]
        k = t * q + np.sqrt(1 - t * t) * other
        right = int(np.sum(np.sign(w @ k) * np.sign(y @ q) == np.sign(np.sum(w * y, axis=1))))
        # b = 1/2 + E/2 of a product of signs, which is the probability of +1
        assert tail(right, n, float(target_overlap(d, t))) > 1e-9
        same = int(
            np.sum(np.sign(w @ k) * np.sign(w @ q) * np.sign(y @ k) * np.sign(y @ other) > 0)
        )
        overlap = float(head_overlap(t, float(k[1])))
        assert tail(same, n, overlap) > 1e-9
        assert tail(right, n, float(target_overlap(d, t)) + 0.02) < 1e-9  # the test has power

    def test_cosines_are_checked(self):
        with pytest.raises(ArgumentError, match="unit length"):
            target_overlap(8, 1.0000001)
        with pytest.raises(ArgumentError, match="key_cosine"):
            head_overlap(0, -2)
        with pytest.raises(ArgumentError, match="d = 1 "):
            target_overlap(1, 0)


def tail(count, n, p):
    """Two-sided exact binomial tail."""
    return 2 * min(binom.cdf(count, n, p), binom.sf(count - 1, n, p))


class TestHeadsThatSuffice:
    @pytest.mark.parametrize(("d", "heads"), [(2, 7), (3, 50), (16, 4096)])
    def test_against_a_plain_sum(self, d, heads):
        with mpmath.workdps(30):
            total, rest = mpmath.mpf(0), mpmath.mpf(1)
            for ell in range(1, 2001, 2):
                coefficient, dimension = mp_sign_energy(d, ell)
                energy = dimension * coefficient**2
                total += energy / (1 + heads * coefficient**4)
                rest -= energy
            low = total / 2 + rest / (1 + heads * coefficient**4) / 2
            extra = mpmath.mpf(1) / (16 * heads)
            bound = rank_one_error_bound(d, heads).value
            slack = Fraction(1, 10**14)
            assert as_fraction(low + extra) - slack <= bound.lower
            assert bound.upper <= as_fraction((total + rest) / 2 + extra) + slack

    @pytest.mark.parametrize(("d", "error"), [(2, "1/20"), (3, "1/10"), (8, "1/5"), (64, "1/10")])
    def test_heads_are_the_least(self, d, error):
        heads = rank_one_heads(d, error).value
        digits = len(str(heads)) + 20
        assert rank_one_error_bound(d, heads, digits=digits).value <= Fraction(error)
        assert rank_one_error_bound(d, heads - 1, digits=digits).value > Fraction(error)

    def test_improves_on_truncation(self):
        # (T(L) + S_L / H) / 2 for every L
        with mpmath.workdps(30):
            kept, second = mpmath.mpf(0), mpmath.mpf(0)
            for ell in range(1, 12, 2):
                coefficient, dimension = mp_sign_energy(8, ell)
                kept += dimension * coefficient**2
                second += dimension / coefficient**2
                for heads in (10**3, 10**6, 10**10):
                    truncated = (1 - kept + second / heads) / 2 + mpmath.mpf(1) / (16 * heads)
                    assert rank_one_error_bound(8, heads).value <= as_fraction(truncated)

    def test_hypotheses(self):
        assert least_heads(3) == 8  # exactly 8: lambda_1 = 1/2
        rank_one_error_bound(3, 8)
        with pytest.raises(HypothesisError, match="lambda_1"):
            rank_one_error_bound(3, 7)

    @pytest.mark.parametrize("d", [4, 8, 16])
    def test_above_the_floor_and_reached(self, d):
        heads = 8 * d
        bound = rank_one_error_bound(d, heads)
        assert head_floor(d, 1, heads, values="scalar").is_below(bound)
        reached = rank_one_error(rank_one_layer(d, heads))
        assert head_floor(d, 1, heads, values="scalar").value < reached < bound.value


class TestJudge:
    @pytest.mark.parametrize(("d", "heads"), [(2, 5), (3, 3), (8, 3)])
    def test_contains_mpmath_and_is_narrow(self, d, heads):
        q, k = directions(d, heads, d)
        a = np.random.default_rng(1).standard_normal(heads)
        with mpmath.workdps(30):
            truth = as_fraction(mp_error(q, k, a))
        fast, slow = weights_error(q, k, a), weights_error(q, k, a, bits=160)
        assert truth in fast
        assert fast.radius < Fraction(1, 10**10)
        assert abs(slow.midpoint - truth) < Fraction(1, 10**20)
        assert slow in fast

    @settings(max_examples=15, deadline=None)
    @given(
        st.integers(0, 2**31),
        st.integers(2, 9),
        st.integers(1, 9),
        st.floats(-17, 0),
        st.booleans(),
    )
    def test_near_duplicates_and_any_lengths(self, seed, d, heads, gap, flip):
        rng = np.random.default_rng(seed)
        q, k = directions(seed, heads, d)
        twin_q = q + 10.0**gap * rng.standard_normal(q.shape)
        twin_k = (-1) ** flip * k * 10.0 ** rng.integers(-150, 150)
        q, k = np.concatenate([q, twin_q]), np.concatenate([k, twin_k])
        a = rng.standard_normal(2 * heads) * 10
        fast, slow = weights_error(q, k, a), weights_error(q, k, a, bits=200)
        assert slow in fast
        assert fast.radius < Fraction(1, 10**8)
        assert slow.lower > 0

    def test_tiles_past_one_block(self, monkeypatch):
        q, k = directions(0, 90, 4)
        a = np.random.default_rng(2).standard_normal(90)
        exact = weights_error(q, k, a, bits=100)
        assert exact in weights_error(q, k, a)
        monkeypatch.setattr(judge, "_ROWS", 7)
        monkeypatch.setattr(judge, "_COLUMNS", 11)
        assert exact in weights_error(q, k, a)

    def test_keys_that_are_not_of_unit_length(self):
        """Trap 8: the error is that of the directions; the formula on raw keys gives another number."""
        rng = np.random.default_rng(8)
        q = directions(1, 64, 8)[0]
        k = q + 0.3 * rng.standard_normal(q.shape)
        k *= 0.5 / np.linalg.norm(k, axis=1).max()
        a = np.full(64, 1 / 64)
        unit = k / np.linalg.norm(k, axis=1, keepdims=True)
        ball = weights_error(q, k, a)
        assert abs(float(ball) - float(weights_error(q, unit, a))) < 1e-12
        raw = 0.5 + 2 / np.pi**2 * np.arcsin(np.clip(q @ q.T, -1, 1)) * np.arcsin(k @ k.T)
        b = [float(target_overlap(8, float(np.dot(*pair)))) for pair in zip(q, unit, strict=True)]
        assert abs(1 - 2 * np.dot(b, a) + a @ raw @ a - float(ball)) > 0.01

    def test_forward_pass_agrees(self):
        """The layer itself, run on random frames, errs as the judge says (Hoeffding, 1e-9)."""
        d, heads, n = 8, 16, 400
        layer = rank_one_layer(d, heads)
        rng = np.random.default_rng(3)
        w, v = rng.standard_normal((2, n, d))
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        v -= np.sum(v * w, axis=1, keepdims=True) * w
        v /= np.linalg.norm(v, axis=1, keepdims=True)
        y = rng.standard_normal((n, d))
        y /= np.linalg.norm(y, axis=1, keepdims=True)
        points = np.stack([v + w, v - w], axis=1) / np.sqrt(2)
        nearest = points[np.arange(n), (np.sum(w * y, axis=1) < 0).astype(int)]
        errors = [
            np.sum((layer.attend(y[i : i + 1], points[i])[0] - nearest[i]) ** 2) for i in range(n)
        ]
        largest = (1 + np.abs(head_weights(layer)[2]).sum()) ** 2
        expected = float(rank_one_error(layer))
        # Bernstein: variance at most largest * mean
        allowed = np.sqrt(2 * 22 * largest * expected / n) + 22 * largest / (3 * n)
        assert abs(np.mean(errors) - expected) < min(allowed, 6 * np.std(errors) / np.sqrt(n))

    def test_symmetries_are_checked_on_the_weights(self):
        layer = rank_one_layer(8, 128, directions="symmetric")
        q, k, a = head_weights(layer)
        assert len(judge._orbits(q, k, a)[0]) == 4
        changed = a.copy()
        changed[5] *= 1.5
        assert len(judge._orbits(q, k, changed)[0]) > 4
        difference = weights_error(q, k, changed).midpoint - weights_error(q, k, a).midpoint
        order = np.random.default_rng(0).permutation(128)
        shuffled = weights_error(q[order], k[order], changed[order])
        assert abs(shuffled.midpoint - weights_error(q, k, changed).midpoint) < Fraction(1, 10**11)
        assert difference > 0  # the weights were the best ones
        no_symmetry = partial(weights_error, bits=80)
        assert no_symmetry(q[:40], k[:40], a[:40]) in weights_error(q[:40], k[:40], a[:40])

    def test_refuses_other_layers(self):
        q, k = directions(0, 3, 4)
        weights = {"w_q": list(q[:, :, None]), "w_k": list(k[:, :, None])}
        eye = [np.eye(4)] * 3
        with pytest.raises(HypothesisError, match="hard"):
            rank_one_error(AttentionLayer(**weights, w_v=eye, w_o=eye, kind="soft"))
        with pytest.raises(HypothesisError, match="a_h I"):
            rank_one_error(AttentionLayer(**weights, w_v=[np.diag([1.0, 1, 1, 2])] * 3, w_o=eye))
        with pytest.raises(HypothesisError, match="no values"):
            rank_one_error(AttentionLayer(**weights))
        bias = [np.ones(1)] * 3
        with pytest.raises(HypothesisError, match="bias"):
            rank_one_error(AttentionLayer(**weights, w_v=eye, w_o=eye, b_q=bias))
        with pytest.raises(HypothesisError, match="nonzero key"):
            weights_error(q, 0 * k, np.ones(3))
        with pytest.raises(ArgumentError, match="finite"):
            weights_error(q, k, np.array([1.0, np.nan, 1.0]))

    def test_arcsine_polynomial(self):
        coefficients, bound = judge._arcsine_polynomial()
        assert bound < 1e-15
        with mpmath.workdps(40):
            for x in np.linspace(0.001, 0.51, 300):
                value = mpmath.mpf(float(x)) * mpmath.polyval(
                    coefficients[::-1], mpmath.mpf(x) ** 2
                )
                assert abs(value - mpmath.asin(mpmath.mpf(float(x)))) <= bound


class TestLayer:
    @pytest.mark.parametrize("d", [2, 3, 4, 6, 7, 12, 16])
    def test_group(self, d):
        for order in _group_orders(d):
            orders, signs = _group(d, order)
            matrices = [np.diag(s) @ np.eye(d)[o] for o, s in zip(orders, signs, strict=True)]
            elements = {min((m + 0.0).tobytes(), (0.0 - m).tobytes()) for m in matrices}
            assert len(elements) == order
            for generator in matrices[1:4]:
                moved = [m @ generator for m in matrices]
                assert {min((m + 0.0).tobytes(), (0.0 - m).tobytes()) for m in moved} == elements
        assert all(sorted(order) == list(range(d)) for order, _ in signed_symmetries(d))

    @pytest.mark.parametrize(("d", "size"), [(8, 64), (6, 4), (5, 1)])
    def test_gradient(self, d, size):
        search = _OrbitSearch(d, 3, _group(d, size))
        rng = np.random.default_rng(d)
        point, step = rng.standard_normal((2, 6 * d))
        up, down = search(point + 1e-6 * step)[0], search(point - 1e-6 * step)[0]
        assert (up - down) / 2e-6 == pytest.approx(search(point)[1] @ step, rel=1e-5, abs=1e-9)

    def test_is_reproducible_and_of_unit_length(self):
        one, two = rank_one_layer(8, 100, seed=5), rank_one_layer(8, 100, seed=5)
        for left, right in zip(head_weights(one), head_weights(two), strict=True):
            assert np.array_equal(left, right)
        q, k, _ = head_weights(one)
        assert np.abs(np.linalg.norm([q, k], axis=2) - 1).max() < 1e-15
        other = head_weights(rank_one_layer(8, 100, seed=6))[0]
        assert not np.array_equal(q, other)

    @pytest.mark.parametrize("directions", ["optimized", "symmetric", "random"])
    @pytest.mark.parametrize(("d", "heads"), [(2, 40), (3, 1), (6, 50), (8, 67)])
    def test_weights_are_the_best(self, directions, d, heads):
        layer = rank_one_layer(d, heads, directions=directions)
        q, k, a = head_weights(layer)
        best = rank_one_error(layer)
        assert 0 < best.lower < best.upper < 1
        assert best.radius < Fraction(1, 10**10)
        rng = np.random.default_rng(0)
        for _ in range(3):
            nudged = weights_error(q, k, a + 0.01 * np.abs(a).mean() * rng.standard_normal(heads))
            assert nudged.midpoint > best.midpoint - Fraction(1, 10**7)
        uniform = rank_one_layer(d, heads, directions=directions, weights="uniform")
        assert rank_one_error(uniform).midpoint >= best.midpoint - Fraction(1, 10**7)

    def test_optimized_directions_save_a_quarter(self):
        random = [rank_one_layer(8, 256, seed=s, directions="random") for s in range(8)]
        mean = sum(rank_one_error(layer).midpoint for layer in random) / 8
        assert rank_one_error(rank_one_layer(8, 256)).upper < Fraction(3, 4) * mean

    def test_conjugate_gradients_reach_the_direct_solution(self):
        layer = rank_one_layer(8, 2100, directions="random")
        q, k, a = head_weights(layer)
        found = rank_one_error(layer)
        gram = 0.5 + 2 / np.pi**2 * np.arcsin(np.clip(q @ q.T, -1, 1)) * np.arcsin(
            np.clip(k @ k.T, -1, 1)
        )
        np.fill_diagonal(gram, 1.0)
        nodes = np.linspace(-1, 1, 201)
        b = np.interp(
            np.sum(q * k, axis=1), nodes, [float(target_overlap(8, float(t))) for t in nodes]
        )
        direct = np.linalg.solve(gram, b)
        assert found.midpoint < weights_error(q, k, direct).midpoint + Fraction(1, 10**6)
        assert np.abs(direct - a).max() < 1e-3

    def test_duplicated_heads(self):
        q, k = directions(0, 1200, 3)
        q[600:], k[600:] = q[:600], k[:600]
        whole = weights_error(q, k, optimal_weights(q, k, 1200, 1))
        half = weights_error(q[:600], k[:600], optimal_weights(q[:600], k[:600], 600, 1))
        assert abs(whole.midpoint - half.midpoint) < Fraction(1, 10**6)
        assert isinstance(whole, Ball)

    def test_arguments(self):
        with pytest.raises(ArgumentError, match="heads"):
            rank_one_layer(8, 0)
        with pytest.raises(ArgumentError, match="directions"):
            rank_one_layer(8, 4, directions="best")
        with pytest.raises(ArgumentError, match="weights"):
            rank_one_layer(8, 4, weights="even")
