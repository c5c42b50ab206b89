r"""Sign codes with a deterministic guarantee: Reed-Solomon with Hadamard, dual BCH, Kerdock (C4b).

Field arithmetic is that of the package galois. The coherence of what is built is computed from the
codes all the same (:func:`constructions.codes.certified_codes`). The proofs are in docs/C4-codes.md.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from types import ModuleType
from typing import Any

import numpy as np

from bounds.arithmetic import exact_integer
from bounds.errors import ArgumentError
from constructions.codes import (
    MOST_CODES,
    SignArray,
    SignCodes,
    certified_codes,
    fraction_below_one,
)


def reed_solomon_codes(items: int, coherence: object) -> SignCodes:
    r"""Reed-Solomon codes over $\mathbb F_q$, each symbol written as a Hadamard codeword of length q.

    $q = 2^r$, $k = q^2$, up to $q^K$ codes: polynomials of degree below K agree in at most K - 1
    points, and distinct Hadamard codewords are orthogonal, so $0 \le \langle c,c'\rangle \le
    q(K-1)$: coherence at most $(K-1)/q$. The least q for which that is at most ``coherence``. Needs
    the extra ``codes`` (galois). Source: [attention-bounds, C4].
    """
    items = exact_integer(items, "items", 2, MOST_CODES)
    t = fraction_below_one(coherence, "coherence")
    q = 2
    while (degree := _digits(items, q)) - 1 > t * q:
        q *= 2
        if q > 1 << 12:
            raise ArgumentError("coherence", coherence, f"larger: q for {items} items exceeds 4096")
    galois = _galois()
    field = galois.GF(q)
    digits = (np.arange(items)[:, None] // q ** np.arange(degree)) % q  # coefficients, low first
    points = field(np.arange(q))
    values = field.Zeros((items, q))
    for power in range(degree - 1, -1, -1):  # Horner
        values = values * points + field(digits[:, power])[:, None]
    words = _hadamard(q)[np.asarray(values, dtype=np.int64)]
    return certified_codes(
        words.reshape(items, q * q),
        guaranteed=Fraction(degree - 1, q),
        family=f"Reed-Solomon [{q}, {degree}] over GF({q}) with Hadamard",
    )


def dual_bch_codes(items: int, coherence: object) -> SignCodes:
    r"""Dual BCH codes: the signs $(-1)^{\mathrm{Tr}(a_1x+a_3x^3+\dots+a_{2s-1}x^{2s-1})}$, $x \ne 0$.

    $k = 2^r - 1$, up to $2^{rs}$ codes. For distinct coefficients $|1 + \langle c,c'\rangle| \le
    (2s-2)2^{r/2}$ by Weil, Carlitz and Uchiyama, and by [Ax1964] it is a multiple of
    $2^{\lceil r/D\rceil}$, $D = \lfloor\log_2 2s\rfloor$: with B the largest such multiple, coherence
    at most $(B - 1)/k$. The least r for which that is at most ``coherence``. Needs the extra
    ``codes`` (galois). Source: [attention-bounds, C4].
    """
    items = exact_integer(items, "items", 2, MOST_CODES)
    t = fraction_below_one(coherence, "coherence")
    for r in range(2, 17):
        s = _digits(items, 1 << r)
        step = 1 << -(-r // ((2 * s).bit_length() - 1))
        largest = isqrt((2 * s - 2) ** 2 << r) // step * step
        guaranteed = Fraction(largest - 1, (1 << r) - 1)
        if guaranteed <= t:
            break
    else:
        raise ArgumentError(
            "coherence", coherence, f"larger: the length for {items} items exceeds 2^16"
        )
    q = 1 << r
    field = _galois().GF(q)
    points = field(np.arange(1, q))
    digits = (np.arange(items)[:, None] // q ** np.arange(s)) % q
    exponents = field.Zeros((items, q - 1))
    for place in range(s):
        exponents = exponents + field(digits[:, place])[:, None] * (points ** (2 * place + 1))
    bits = np.asarray(exponents.field_trace(), dtype=np.int64)
    return certified_codes(
        1 - 2 * bits, guaranteed=guaranteed, family=f"dual BCH, r = {r}, s = {s}"
    )


def kerdock_codes(items: int, coherence: object, *, negatives: bool = False) -> SignCodes:
    r"""Kerdock codes: mutually unbiased orthogonal bases of signs, inner products 0 and $\pm\sqrt k$.

    $k = 2^r$, r even, up to $k^2/2$ codes, or $k^2$ with ``negatives`` (then some pairs have inner
    product -k: the coherence is as small, the absolute coherence is 1). For a in $\mathbb F_{k/2}$
    a basis consists of the characters of $\mathbb F_{k/2}\times\mathbb F_2$ times $(-1)^{Q(ax) +
    y\mathrm{Tr}(ax)}$, $Q(x) = \sum_{i=1}^{r/2-1}\mathrm{Tr}(x^{1+2^i})$. Coherence 0 within a
    basis (and its negatives) and at most $2^{-r/2}$ in all; without negatives that bounds the
    absolute coherence too. Bases are filled one after the other. The least even r for which this
    is at most ``coherence``. Needs the extra ``codes`` (galois).
    Source: [attention-bounds, C4], after [Kerdock1972].
    """
    items = exact_integer(items, "items", 2, 1 << (28 if negatives else 27))
    t = fraction_below_one(coherence, "coherence")
    for r in range(2, 15, 2):
        k = 1 << r
        basis = 2 * k if negatives else k
        guaranteed = Fraction(0 if items <= basis else 1, 1 << r // 2)
        if items <= basis * (k // 2) and guaranteed <= t:
            break
    else:
        raise ArgumentError(
            "coherence", coherence, f"larger: the length for {items} items exceeds 2^14"
        )
    field = _galois().GF(k // 2)
    points = field(np.arange(k // 2))
    trace = np.asarray(points.field_trace(), dtype=np.int8)
    quadratic = np.zeros(k // 2, dtype=np.int8)
    for i in range(1, r // 2):
        quadratic ^= np.asarray((points ** (1 + (1 << i))).field_trace(), dtype=np.int8)
    forms = field(np.arange(-(-items // basis)))
    products = np.asarray(forms[:, None] * points, dtype=np.int64)
    bits = np.concatenate([quadratic[products], quadratic[products] ^ trace[products]], axis=1)
    number = np.arange(items)
    signs = (1 - 2 * bits)[number // basis] * _hadamard(k)[number % k]
    signs[number % basis >= k] *= -1
    return certified_codes(
        signs, guaranteed=guaranteed, family=f"Kerdock, r = {r}{', with negatives' * negatives}"
    )


def _hadamard(q: int) -> SignArray:
    r"""Sylvester's matrix: entry $(-1)^{\langle i,j\rangle}$ over the binary digits; rows orthogonal."""
    signs = np.ones((1, 1), dtype=np.int8)
    while len(signs) < q:
        signs = np.block([[signs, signs], [signs, -signs]]).astype(np.int8)
    return signs


def _digits(items: int, q: int) -> int:
    """The least K with q^K at least ``items``."""
    count, size = 1, q
    while size < items:
        count, size = count + 1, size * q
    return count


def _galois() -> Any:
    try:
        import galois
    except ImportError as failure:
        raise ImportError(
            "algebraic codes need the package galois: pip install 'attention-bounds[codes]'"
        ) from failure
    module: ModuleType = galois
    return module
