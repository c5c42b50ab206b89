"""The catalogue: stochastic matrices, perturbed identities, claims."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from flint import fmpq, fmpq_mat
from hypothesis import given, settings
from hypothesis import strategies as st

from bounds import ArgumentError, HypothesisError
from bounds.capacity_claims import CAPACITY_CLAIMS, TITLES, capacity_claims
from bounds.low_rank_bottleneck import (
    WITNESS,
    bottleneck_dimension,
    bottleneck_theorem,
    hardest_matrix,
    stochastic_matrix_dimension,
)
from bounds.perturbed_identity import perturbed_identity_rank
from constructions.stochastic_matrix import attention_error, stochastic_head


def _softmax(scores):
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("n", "d_model", "extra"), [(1, 1, 0), (2, 2, 0), (3, 5, 0), (8, 8, 1), (12, 40, 5)]
)
def test_every_positive_matrix_is_attained(n, d_model, extra):
    rng = np.random.default_rng(n)
    tokens = rng.normal(size=(n, d_model))
    for sharpness in (0.1, 1.0, 5.0):
        attention = _softmax(sharpness * rng.normal(size=(n, n)))
        head = stochastic_head(attention, tokens, max(1, n - 1) + extra)
        assert head.key_dims == (max(1, n - 1) + extra,)
        queries, keys = tokens @ head.w_q[0], tokens @ head.w_k[0]
        assert np.allclose(_softmax(queries @ keys.T / np.sqrt(head.key_dims[0])), attention)
        assert attention_error(head, tokens, attention).upper_float() < 1e-10


def test_a_broken_weight_is_noticed():
    attention, tokens = np.array([[0.5, 0.5], [0.75, 0.25]]), np.eye(2)
    head = stochastic_head(attention, tokens)
    error = attention_error(head, tokens, attention)
    assert error.upper_float() < 1e-15
    other = np.array([[0.5, 0.5], [0.7, 0.3]])
    shift = attention_error(head, tokens, other)
    assert abs(float(shift) - 0.05) < 1e-12
    assert shift.radius < Fraction(1, 10**50)


def test_the_construction_says_what_it_needs():
    attention = np.full((3, 3), 1 / 3)
    with pytest.raises(HypothesisError, match="n - 1 = 2"):
        stochastic_head(attention, np.eye(3), 1)
    with pytest.raises(HypothesisError, match="rank"):
        stochastic_head(attention, np.ones((3, 3)))
    for bad in (np.eye(3), np.full((3, 3), 0.5), np.full((2, 3), 1 / 3), np.zeros((0, 0))):
        with pytest.raises(ArgumentError, match="attention = "):
            stochastic_head(bad, np.eye(3))
    with pytest.raises(ArgumentError, match="embeddings = "):
        stochastic_head(attention, np.eye(2))


def test_the_witness_is_out_of_reach():
    tokens, matrix = WITNESS
    assert [sum(column) for column in zip(*matrix, strict=True)] == [1, 1]
    x = np.array(tokens, dtype=float)  # d_model = 1, n = 2: in columns
    target = np.array(matrix, dtype=float)
    for weight in np.linspace(-50, 50, 1001):
        columns = _softmax((x.T * weight @ x).T).T
        assert columns[:, 1] == pytest.approx([0.5, 0.5])
        assert np.abs(columns - target).max() >= 0.25


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9, 16])
def test_the_threshold_is_attained_from_both_sides(n):
    bound = bottleneck_dimension(n)
    assert (bound.value, bound.kind) == (n - 1, "exact")
    matrix = hardest_matrix(n)
    needed = stochastic_matrix_dimension(matrix)
    assert needed.value == n - 1
    assert needed.status == ("certified" if n > 1 else "vacuous")
    # an independent rank: the logarithms are ln(1/(n+1)) + ln 2 I, so the pattern is rational
    ones = [[fmpq(int(i == j)) - fmpq(1, n) for j in range(n)] for i in range(n)]
    assert fmpq_mat(ones).rank() == n - 1
    rows = np.array(matrix, dtype=float).T
    head = stochastic_head(rows, np.eye(n))
    assert head.key_dimension == max(1, n - 1)
    assert attention_error(head, np.eye(n), rows).upper_float() < 1e-13
    assert bottleneck_theorem(n).value == n
    assert bottleneck_theorem(n).kind == "upper"


def test_easy_matrices_need_little():
    uniform = [[Fraction(1, 4)] * 4] * 4
    assert stochastic_matrix_dimension(uniform).value == 0
    first, second = [Fraction(k, 10) for k in (1, 2, 3, 4)], [Fraction(1, 4)] * 4
    mixed = list(zip(first, second, first, second, strict=True))
    assert stochastic_matrix_dimension(mixed).value == 1
    for bad in (
        [[1, 0], [0, 1]],
        [["1/2", "1/2"], ["1/2", "1/4"]],
        [[1], [1]],
        3,
        [],
        [[0.5, "x"]],
    ):
        with pytest.raises(ArgumentError, match="matrix"):
            stochastic_matrix_dimension(bad)


@given(st.integers(1, 12), st.integers(0, 20), st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_exact_ranks_of_perturbed_identities(size, twentieths, seed):
    """Gram matrices of few integer vectors, scaled to a unit diagonal only where that is rational."""
    epsilon = Fraction(twentieths, 20)
    rng = np.random.default_rng(seed)
    entries = rng.integers(-twentieths, twentieths + 1, size=(size, size))
    matrix = fmpq_mat(
        [
            [fmpq(1) if i == j else fmpq(int(entries[i, j]), 20) for j in range(size)]
            for i in range(size)
        ]
    )
    assert perturbed_identity_rank(size, epsilon).value <= matrix.rank()


def test_structured_matrices_of_small_rank():
    # simplex: n vectors in n - 1 dimensions with inner products -1/(n-1)
    for n in range(2, 40):
        assert perturbed_identity_rank(n, Fraction(1, n - 1)).value <= n - 1
        k_one = Fraction(n, 1) / (1 + Fraction(1, n - 1))
        assert k_one == n - 1  # and the bound is attained
        assert perturbed_identity_rank(n, Fraction(1, n - 1)).value == n - 1
    # mutually unbiased bases: d (d + 1) vectors in d = 4 complex dimensions, here 2 real bases
    hadamard = np.array([[1, 1], [1, -1]])
    for _ in range(3):
        hadamard = np.kron(hadamard, [[1, 1], [1, -1]])
    d = len(hadamard)  # 16: identity and Hadamard rows have inner products +-1/4
    assert perturbed_identity_rank(2 * d, Fraction(1, 4)).value <= d
    assert Fraction(2 * d, 1) / (1 + (2 * d - 1) * Fraction(1, 16)) <= d
    # all sign vectors of length 5 up to sign: inner products at most 3/5
    assert perturbed_identity_rank(16, Fraction(3, 5)).value <= 5


def test_powers_help_at_large_sizes():
    bound = perturbed_identity_rank(10**12, "1/10")
    r, k = bound.value, bound.parameters["power"]
    needed = Fraction(10**12) / (1 + (10**12 - 1) * Fraction(1, 100) ** k)
    assert comb(r + k - 1, k) >= needed > comb(r + k - 2, k)
    assert k > 1
    first = Fraction(10**12) / (1 + (10**12 - 1) * Fraction(1, 100))
    assert r > first
    assert perturbed_identity_rank(7, 0).value == 7
    assert perturbed_identity_rank(7, 1).status == "vacuous"
    for bad in (-1, "11/10", 2, None):
        with pytest.raises(ArgumentError, match="deviation = "):
            perturbed_identity_rank(7, bad)


def test_hadamard_powers_have_the_rank_that_the_proof_says():
    rng = np.random.default_rng(2)
    for r, k in ((1, 3), (2, 2), (2, 4), (3, 2), (3, 3)):
        left, right = rng.integers(-4, 5, size=(2, 25, r))
        power = (left @ right.T) ** k
        assert fmpq_mat([[fmpq(int(v)) for v in row] for row in power]).rank() <= comb(r + k - 1, k)


def test_claims_keep_their_version_and_give_no_number():
    assert {claim.version for claim in CAPACITY_CLAIMS} == set(TITLES) == {"v1", "current"}
    assert len(capacity_claims("v1")) + len(capacity_claims("current")) == len(capacity_claims())
    for claim in CAPACITY_CLAIMS:
        assert claim.status == "claim"
        assert claim.unknown
        assert claim.version in str(claim)
        assert claim.title == TITLES[claim.version]
        assert not hasattr(claim, "value")
    with pytest.raises(ArgumentError, match="version = "):
        capacity_claims("v2")
