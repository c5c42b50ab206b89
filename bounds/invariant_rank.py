r"""H3: the dimension that $H$ generic rank-$r$ heads reach together in one degree.

For subspaces $U_1, \dots, U_H$ of dimension $r$ let $\mathcal I_\ell(U)$ be the harmonics of
degree $\ell$ that are invariant under the rotations fixing $U$ pointwise, and
$\rho = \dim \sum_h \mathcal I_\ell(U_h)$. Scalar-value heads with these keys reach exactly $\rho$
of the $N(d,\ell)$ dimensions; the proof is in docs/H3-tightness.md.
"""

from __future__ import annotations

import random

from flint import nmod_mat

from bounds.arithmetic import exact_integer
from bounds.errors import ArgumentError
from bounds.harmonics import harmonic_dimension, invariant_dimension

MERSENNE_PRIME = 2**61 - 1


def invariant_rank(
    d: int,
    r: int,
    degree: int,
    heads: int,
    *,
    prime: int = MERSENNE_PRIME,
    seed: int = 0,
) -> int:
    r"""A lower bound on the generic $\rho(d,r,\ell,H)$: the rank at a random point mod a prime.

    $\mathcal I_\ell(U)$ is spanned by the zonal harmonics
    $Z_a(b) = |a|^\ell |b|^\ell P_\ell(\langle a,b\rangle / |a||b|)$, $a \in U$: integer
    coefficients over $\prod_{m<\ell}(m+d-2)$. The matrix $Z_a(b)$ over $M(r,\ell)$ random points
    $a$ of each random subspace and random $b$ is reduced modulo ``prime``; its rank there is at
    most the rank over the rationals, which is at most the generic $\rho$.

    What the answer proves: when it equals $\min(H M(r,\ell), N(d,\ell))$, generic (and the drawn)
    subspaces are independent, or span, in characteristic 0. When it is smaller it proves
    only $\rho \ge$ the answer, and nothing about failure; :func:`rank_ceiling` does that.
    Then H2 for scalar values is sharpened by $\rho$ in place of $\min(HM, N)$.

    Hypotheses: $1 \le r \le d-1$, degree and heads at least 1; ``prime`` a prime above
    $\ell + d - 2$ (so no denominator vanishes) and below $2^{64}$. Raises ``ArgumentError``.
    Source: [attention-bounds, H3].

    >>> invariant_rank(6, 2, 3, 5), invariant_rank(6, 4, 2, 2), rank_ceiling(6, 4, 2, 2)
    (20, 17, 17)
    """
    d, r, degree, heads = _arguments(d, r, degree, heads)
    prime = exact_integer(prime, "prime", 2, 2**64 - 1)
    if prime <= degree + d - 2 or not _is_prime(prime):
        raise ArgumentError("prime", prime, f"a prime above degree + d - 2 = {degree + d - 2}")
    draw = random.Random(seed)
    poles = [point for _ in range(heads) for point in _subspace_points(draw, d, r, degree, prime)]
    count = min(harmonic_dimension(d, degree), len(poles))
    places = [[draw.randrange(prime) for _ in range(d)] for _ in range(count)]
    table = _zonal_values(d, degree, poles, places, prime)
    flat = [value for row in table for value in row]
    return int(nmod_mat(len(poles), count, flat, prime).rank())


def rank_ceiling(d: int, r: int, degree: int, heads: int) -> int:
    r"""An upper bound on $\rho(d,r,\ell,H)$ for any subspaces: proof of a failure.

    $\min\{N,\ HM(r,\ell) - (H-1)M(2r-d,\ell)\}$, the last term only for $2r > d$: each further
    $U_h$ meets $U_1$ in at least $2r-d$ dimensions, and the harmonics of $U_1 \cap U_h$ are in both
    $\mathcal I_\ell(U_1)$ and $\mathcal I_\ell(U_h)$. Not sharp from three heads on.
    Source: [attention-bounds, H3].

    >>> rank_ceiling(5, 3, 3, 2), rank_ceiling(8, 4, 3, 2)
    (19, 40)
    """
    d, r, degree, heads = _arguments(d, r, degree, heads)
    common = invariant_dimension(2 * r - d, degree) if 2 * r > d else 0
    together = heads * invariant_dimension(r, degree) - (heads - 1) * common
    return min(harmonic_dimension(d, degree), together)


def _arguments(d: int, r: int, degree: int, heads: int) -> tuple[int, int, int, int]:
    d = exact_integer(d, "d", 3)
    r = exact_integer(r, "r", 1, d - 1)
    return d, r, exact_integer(degree, "degree", 1), exact_integer(heads, "heads", 1)


def _subspace_points(
    draw: random.Random, d: int, r: int, degree: int, prime: int
) -> list[list[int]]:
    """$M(r,\\ell)$ random points of one random $r$-dimensional subspace."""
    basis = [[draw.randrange(prime) for _ in range(d)] for _ in range(r)]
    points = []
    for _ in range(invariant_dimension(r, degree)):
        weights = [draw.randrange(prime) for _ in range(r)]
        points.append(
            [
                sum(c * row[i] for c, row in zip(weights, basis, strict=True)) % prime
                for i in range(d)
            ]
        )
    return points


def _zonal_values(
    d: int, degree: int, poles: list[list[int]], places: list[list[int]], prime: int
) -> list[list[int]]:
    r"""$Z_a(b)$ modulo the prime, by the recurrence.

    $(m+d-2)Z_{m+1} = (2m+d-2)\langle a,b\rangle Z_m - m|a|^2|b|^2Z_{m-1}$.
    """
    inverse = [pow(m + d - 2, -1, prime) if m else 0 for m in range(degree)]
    norms = [sum(x * x for x in b) % prime for b in places]
    table = []
    for a in poles:
        norm = sum(x * x for x in a) % prime
        row = []
        for b, other in zip(places, norms, strict=True):
            inner = sum(x * y for x, y in zip(a, b, strict=True)) % prime
            square = norm * other % prime
            below, here = 1, inner
            for m in range(1, degree):
                step = (2 * m + d - 2) * inner * here - m * square * below
                below, here = here, step * inverse[m] % prime
            row.append(here)
        table.append(row)
    return table


def _is_prime(number: int) -> bool:
    """Miller-Rabin with the first twelve primes: exact below 3.3e24."""
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    if number in bases:
        return True
    if number < 2 or any(number % base == 0 for base in bases):
        return False
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in bases:
        value = pow(base, odd, number)
        if value in (1, number - 1):
            continue
        for _ in range(twos - 1):
            value = value * value % number
            if value == number - 1:
                break
        else:
            return False
    return True
