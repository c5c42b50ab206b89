"""Key codes: exact coherence, exact sizes, deterministic guarantees, layers on independent embeddings."""

from __future__ import annotations

import sys
from fractions import Fraction
from itertools import product
from math import comb
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds.errors import ArgumentError
from constructions import RealizationError, relation_target
from constructions.algebraic_codes import dual_bch_codes, kerdock_codes, reed_solomon_codes
from constructions.codes import (
    SignCodes,
    certified_codes,
    circle_codes,
    coded_layer,
    counting_codes,
    random_sign_codes,
    sign_code_length,
    sign_code_length_bound,
)
from verification import verify


def inner_products(codes: SignCodes) -> list[int]:
    rows = [[int(v) for v in row] for row in codes.signs]
    return [
        sum(a * b for a, b in zip(rows[i], rows[j], strict=True))
        for i in range(len(rows))
        for j in range(i)
    ]


@given(m=st.integers(2, 12), k=st.integers(1, 20), seed=st.integers(0, 1000))
def test_coherence_is_exact(m: int, k: int, seed: int) -> None:
    codes = random_sign_codes(m, k, seed)
    products = inner_products(codes)
    assert codes.coherence == Fraction(max(products), k)
    assert codes.absolute_coherence == Fraction(max(map(abs, products)), k)
    assert codes.margin == 1 - codes.coherence


@pytest.mark.parametrize("pair", [(0, 4095), (4094, 4095), (0, 1), (1500, 2000), (1023, 1024)])
@pytest.mark.parametrize("sign", [1, -1])
def test_no_pair_is_left_out(pair: tuple[int, int], sign: int) -> None:
    """Words of even weight, one of them replaced: the only pair of inner product 13, or of -13."""
    words = np.array([[1 - 2 * (n >> b & 1) for b in range(13)] for n in range(2**13)])
    words = words[words.prod(axis=1) == 1]  # products of two: 13 - 4j, never -13
    signs = words.copy()
    signs[pair[1]] = sign * words[pair[0]]
    codes = certified_codes(signs)
    assert codes.absolute_coherence == 1
    assert codes.coherence == (1 if sign == 1 else Fraction(11, 13))
    assert certified_codes(words).absolute_coherence == Fraction(11, 13)


def failure_bound(m: int, k: int, t: Fraction) -> Fraction:
    """The union bound over pairs, from the binomial law."""
    tail = sum(comb(k, ones) for ones in range(k + 1) if 2 * ones - k > t * k)
    return comb(m, 2) * Fraction(tail, 2**k)


@pytest.mark.parametrize(("m", "t"), [(16, "1/2"), (1000, "2/3"), (300, "1/3"), (2, "1/4")])
@pytest.mark.parametrize("delta", ["1/100", "1/2"])
def test_the_length_is_the_least_that_the_union_bound_allows(m: int, t: str, delta: str) -> None:
    k = sign_code_length(m, t, delta)
    assert failure_bound(m, k, Fraction(t)) <= Fraction(delta)
    assert all(failure_bound(m, smaller, Fraction(t)) > Fraction(delta) for smaller in range(1, k))
    closed = sign_code_length_bound(m, t, delta)
    assert k <= closed
    exact = mpmath.ceil(
        2
        * mpmath.log(
            comb(m, 2) / mpmath.mpf(Fraction(delta).numerator) * Fraction(delta).denominator
        )
        / (mpmath.mpf(Fraction(t).numerator) / Fraction(t).denominator) ** 2
    )
    assert closed == max(1, int(exact))


def test_the_tail_is_the_probability_of_a_pair() -> None:
    for k, t in product(range(1, 9), (Fraction(1, 3), Fraction(1, 2))):
        frequency = Fraction(sum(sum(v) > t * k for v in product((-1, 1), repeat=k)), 2**k)
        assert failure_bound(2, k, t) == frequency


def test_random_codes_keep_their_promise() -> None:
    k = sign_code_length(64, "1/2", "1/4")
    failures = sum(random_sign_codes(64, k, seed).coherence > Fraction(1, 2) for seed in range(60))
    assert failures <= 30  # a quarter expected at most; 30 of 60 has probability below 1e-4


def test_counting_codes_are_the_shortest() -> None:
    for m in (2, 3, 8, 9, 100):
        codes = counting_codes(m)
        assert 2 ** (codes.length - 1) < m <= 2**codes.length
        assert codes.coherence == codes.guaranteed == 1 - Fraction(2, codes.length)


@pytest.mark.parametrize(("m", "t"), [(64, "1/2"), (70, "1/4"), (100, "2/5")])
def test_algebraic_codes_hold_their_guarantee(m: int, t: str) -> None:
    pytest.importorskip("galois")
    for build in (reed_solomon_codes, dual_bch_codes, kerdock_codes):
        codes = build(m, t)
        assert codes.items == m
        assert codes.guaranteed is not None
        assert codes.coherence <= codes.guaranteed <= Fraction(t)
        assert Fraction(max(inner_products(codes)), codes.length) == codes.coherence


def test_the_reed_solomon_guarantee_is_attained() -> None:
    pytest.importorskip("galois")
    codes = reed_solomon_codes(64, "1/2")  # all polynomials of degree below 3 over GF(4)
    assert (codes.length, codes.coherence, codes.guaranteed) == (16, Fraction(1, 2), Fraction(1, 2))
    # products are 4 times the number of common values: never negative
    assert {p % 4 for p in inner_products(codes)} == {0}
    assert min(inner_products(codes)) == 0


def test_dual_bch_codes_of_one_coefficient_are_a_simplex() -> None:
    pytest.importorskip("galois")
    codes = dual_bch_codes(16, "0")
    assert set(inner_products(codes)) == {-1}
    assert codes.length == 15


@pytest.mark.parametrize(
    ("m", "t", "length", "coherence"),
    [(1024, "1/4", 31, "7/31"), (1024, "2/9", 127, "15/127"), (4096, "1/2", 31, "15/31"),
     (4096, "1/4", 63, "5/21")],
)  # fmt: skip
def test_the_dual_bch_guarantee_is_a_multiple_of_a_power_of_two(
    m: int, t: str, length: int, coherence: str
) -> None:
    pytest.importorskip("galois")
    codes = dual_bch_codes(m, t)
    assert (codes.length, codes.coherence) == (length, Fraction(coherence))
    assert codes.guaranteed == codes.coherence  # attained: nothing smaller holds


@pytest.mark.parametrize("r", [2, 4, 6])
def test_a_full_kerdock_code_is_bases_that_are_mutually_unbiased(r: int) -> None:
    pytest.importorskip("galois")
    k, root = 2**r, 2 ** (r // 2)
    t = Fraction(1, root)
    codes = kerdock_codes(k * k // 2, t)
    assert (codes.length, codes.items) == (k, k * k // 2)
    assert codes.coherence == codes.absolute_coherence == codes.guaranteed == t
    gram = codes.signs.astype(int) @ codes.signs.T.astype(int)
    basis = np.arange(len(gram)) // k
    same = basis[:, None] == basis
    assert (gram[same] == np.where(np.eye(len(gram), dtype=bool), k, 0)[same]).all()
    assert (np.abs(gram[~same]) == root).all()
    signed = kerdock_codes(k * k, t, negatives=True)
    assert (signed.length, signed.coherence, signed.absolute_coherence) == (k, t, 1)
    every = {row.tobytes() for row in signed.signs}
    assert len(every) == k * k
    assert every == {row.tobytes() for row in np.concatenate([codes.signs, -codes.signs])}
    longer = kerdock_codes(k * k // 2 + 1, t)  # one code more needs the next length
    assert (longer.length, longer.absolute_coherence) == (4 * k, 0 if r == 2 else t / 2)
    assert kerdock_codes(k * k + 1, t, negatives=True).length == 4 * k


@pytest.mark.parametrize("negatives", [False, True])
def test_the_kerdock_length_is_the_least(negatives: bool) -> None:
    pytest.importorskip("galois")
    for m, t in product(
        (2, 4, 5, 8, 9, 16, 17, 32, 33, 127, 129), ("0", "1/5", "1/4", "1/2", "3/5")
    ):
        codes = kerdock_codes(m, t, negatives=negatives)
        assert codes.coherence <= Fraction(t)
        assert codes.guaranteed is not None
        assert codes.coherence <= codes.guaranteed <= Fraction(t)
        if not negatives:
            assert codes.absolute_coherence <= codes.guaranteed
        k, width = codes.length // 4, 2 if negatives else 1
        fits = m <= width * k * k // 2 and Fraction(t) ** 2 * k >= 1
        assert k < 4 or not (fits or m <= width * k)
    with pytest.raises(ArgumentError, match="coherence"):
        kerdock_codes(2**15, 0)


def sign_code_limit(k: int, s: int) -> Fraction:
    """The largest number of sign codes whose inner products are at most s, 0 < s < sqrt k."""
    return Fraction(k * (k - s) * (s + 1) ** 2, s * (k - s * s))


def test_no_more_codes_than_the_limit() -> None:
    """Lexicographic codes: greedy, so that the limit is approached from below."""
    for k, s in product(range(3, 11), range(1, 4)):
        if s * s >= k:
            continue
        words = np.array(list(product((1, -1), repeat=k)))
        chosen = np.zeros((0, k), dtype=int)
        for word in words:
            if (chosen @ word <= s).all():
                chosen = np.vstack([chosen, word])
        assert 2 < len(chosen) <= sign_code_limit(k, s)
    for q in (4, 8, 16, 32):  # shorter inner products than Kerdock's allow about k^2/4 codes
        assert sign_code_limit(q * q, q - 2) < q**4 / 2
        assert sign_code_limit(q * q, q - 2) == Fraction(q**4, 4) * (
            1 + Fraction(3 * q - 2, q * q * (q - 2))
        )


def test_galois_is_asked_for_by_name(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "galois", None)
    with pytest.raises(ImportError, match=r"attention-bounds\[codes\]"):
        reed_solomon_codes(16, "1/2")


@pytest.mark.parametrize("m", [3, 10, 257])
def test_the_circle_has_its_margin(m: int) -> None:
    codes = circle_codes(m)
    gram = codes @ codes.T - 2 * np.eye(m)
    margin = 1 - mpmath.cos(2 * mpmath.pi / m)
    assert abs((1 - gram.max()) - float(margin)) < 1e-13
    layer = coded_layer(np.eye(m), [[i, (i * i) % m] for i in range(m)], codes)
    assert layer.key_dimension == 2


@given(m=st.integers(2, 12), seed=st.integers(0, 1000), orthonormal=st.booleans())
def test_functional_graphs_are_realized(m: int, seed: int, orthonormal: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(m, m + 3))
    x = np.linalg.qr(x.T)[0].T if orthonormal else x
    edges = np.stack([np.arange(m), rng.integers(0, m, m)], axis=1)[: rng.integers(1, m + 1)]
    layer = coded_layer(x, edges, counting_codes(m))
    assert verify(layer, relation_target(x, edges)).holds
    assert layer.heads == 1
    assert layer.key_dimension == (m - 1).bit_length()
    scores = layer.scores(0, x, x)
    assert np.abs(scores - np.rint(scores)).max() < 1e-6  # codes of integers, duals of the items


def test_out_degree_asks_for_smaller_coherence() -> None:
    rng = np.random.default_rng(0)
    m, degree = 24, 3
    edges = np.array([[i, j] for i in range(m) for j in rng.choice(m, degree, replace=False)])
    codes = next(
        c
        for c in (random_sign_codes(m, 160, s) for s in range(99))
        if 5 * c.absolute_coherence < 1.9
    )
    assert verify(coded_layer(np.eye(m), edges, codes), relation_target(np.eye(m), edges)).holds
    hadamard = pytest.importorskip("scipy.linalg").hadamard(32)[:m]
    layer = coded_layer(np.eye(m), edges, certified_codes(hadamard))
    assert set(np.unique(layer.scores(0, np.eye(m), np.eye(m)))) == {0.0, 32.0}


def test_what_cannot_be_is_refused() -> None:
    twice = np.ones((3, 4))
    with pytest.raises(RealizationError, match="smaller coherence"):
        coded_layer(np.eye(3), [[0, 1]], twice)
    with pytest.raises(RealizationError, match="dependent"):
        coded_layer(np.ones((3, 2)), [[0, 1]], counting_codes(3))
    with pytest.raises(ArgumentError, match="entries 1 and -1"):
        certified_codes([[1, 0], [1, 1]])
    with pytest.raises(ArgumentError, match="coherence"):
        sign_code_length(10, 0, "1/2")
    with pytest.raises(ArgumentError, match="delta"):
        sign_code_length(10, "1/2", 1)
    with pytest.raises(ArgumentError, match="codes"):
        coded_layer(np.eye(3), [[0, 1]], counting_codes(4))


def test_more_codes_than_can_be_written_out() -> None:
    for make in (dual_bch_codes, kerdock_codes, reed_solomon_codes):
        with pytest.raises(ArgumentError, match="items = "):
            make(10**30, "1/2")
    with pytest.raises(ArgumentError, match="items = "):
        counting_codes(10**30)
