"""The head floor H2 of the sign target in rational interval arithmetic: integers and Fractions only.

Energies come from the sum formula of the Gegenbauer polynomials and from beta integrals, pi from
Machin's formula, tails from Parseval and the monotony of D/N. No code is shared with ``bounds``.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import comb, factorial

BITS = 320
ONE = 1 << BITS


def _arctan_inverse(n: int, terms: int) -> tuple[Fraction, Fraction]:
    total = sum(
        (Fraction((-1) ** k, (2 * k + 1) * n ** (2 * k + 1)) for k in range(terms)), Fraction(0)
    )
    after = total + Fraction((-1) ** terms, (2 * terms + 1) * n ** (2 * terms + 1))
    return min(total, after), max(total, after)


@cache
def pi_bounds() -> tuple[Fraction, Fraction]:
    """Rationals below and above pi, 10^-100 apart or less: pi = 16 atan(1/5) - 4 atan(1/239)."""
    low_a, high_a = _arctan_inverse(5, 75)
    low_b, high_b = _arctan_inverse(239, 23)
    return 16 * low_a - 4 * high_b, 16 * high_a - 4 * low_b


def density_rational(d: int) -> Fraction:
    """c_d for odd d, pi c_d for even d: c_3 = 1/2, c_4 = 2/pi, c_{d+2} = c_d d / (d-1)."""
    value, dim = (Fraction(1, 2), 3) if d % 2 else (Fraction(2), 4)
    if d == 2:
        return Fraction(1)
    while dim < d:
        value *= Fraction(dim, dim - 1)
        dim += 2
    return value


def sign_coefficient(d: int, degree: int) -> Fraction:
    """E[sgn(t) P_l(t)] (times pi for even d), by integrating the sum formula term by term."""
    if degree % 2 == 0:
        return Fraction(0)
    total, rising = Fraction(0), Fraction(1)
    for k in range(degree // 2 + 1):
        # int_0^1 t^(l-2k) (1-t^2)^(k+(d-3)/2) dt = B(j, a) / 2, j = (l-2k+1)/2, a = k+(d-1)/2
        j, a = (degree - 2 * k + 1) // 2, Fraction(d - 1, 2) + k
        beta = Fraction(factorial(j - 1))
        for step in range(j):
            beta /= a + step
        total += (
            Fraction(-1, 4) ** k / (factorial(k) * factorial(degree - 2 * k) * rising) * beta / 2
        )
        rising *= a
    return 2 * density_rational(d) * factorial(degree) * total


def harmonics(d: int, degree: int) -> int:
    """N(d, l), as (2l+d-2)/(d-2) binom(l+d-3, l)."""
    return (2 * degree + d - 2) * comb(degree + d - 3, degree) // (d - 2)


def reach(d: int, r: int, degree: int, values: str) -> int:
    """D(r, l) of H2."""

    def invariant(k: int) -> int:
        return comb(k + r - 1, r - 1) if k >= 0 else 0

    if values == "scalar":
        return invariant(degree)
    middle = min(r * invariant(degree - 1) + invariant(degree), (d - r) * invariant(degree - 1))
    return invariant(degree) + middle + invariant(degree - 2)


def sign_energy(d: int, degree: int) -> Fraction:
    """eta_l^2 for odd d, pi^2 eta_l^2 for even d."""
    return harmonics(d, degree) * sign_coefficient(d, degree) ** 2


class RationalFloor:
    """Two-sided rational bounds of the floor, for one d, r and kind of values."""

    def __init__(self, d: int, r: int, values: str) -> None:
        self.d, self.r, self.values = d, r, values
        first = (2 * density_rational(d) / (d - 1)) ** 2
        if d % 2:
            self._square = (first.numerator * ONE // first.denominator,
                            -(-first.numerator * ONE // first.denominator))  # fmt: skip
        else:
            low, high = pi_bounds()
            below, above = first / high**2, first / low**2
            self._square = (below.numerator * ONE // below.denominator,
                            -(-above.numerator * ONE // above.denominator))  # fmt: skip
        # prefix sums over the odd degrees before index k, scaled by 2^BITS: (low, high)
        self._energy = [(0, 0)]
        self._captured = [(0, 0)]

    def _extend(self, count: int) -> None:
        while len(self._energy) <= count:
            degree = 2 * len(self._energy) - 1
            low, high = self._square
            for sums, weight in (
                (self._energy, harmonics(self.d, degree)),
                (self._captured, reach(self.d, self.r, degree, self.values)),
            ):
                sums.append((sums[-1][0] + weight * low, sums[-1][1] + weight * high))
            top, bottom = degree**2, (degree + self.d) ** 2
            self._square = (low * top // bottom, -(-high * top // bottom))

    def share(self, index: int) -> Fraction:
        degree = 2 * index + 1
        return Fraction(reach(self.d, self.r, degree, self.values), harmonics(self.d, degree))

    def bounds(self, heads: int, count: int) -> tuple[Fraction, Fraction]:
        """Rationals below and above the floor, from the first ``count`` odd degrees."""
        first = 0
        while heads * self.share(first) >= 1:
            first += 1
        count = max(count, first + 1)
        self._extend(count)
        tail = (ONE - self._energy[first][1], ONE - self._energy[first][0])
        part = (self._captured[count][0] - self._captured[first][1],
                self._captured[count][1] - self._captured[first][0])  # fmt: skip
        rest = self.share(count) * (ONE - self._energy[count][0])
        low = (tail[0] - heads * (part[1] + rest)) / (2 * ONE)
        return low, Fraction(tail[1] - heads * part[0], 2 * ONE)

    def at_most(self, heads: int, epsilon: Fraction) -> bool:
        """Whether the floor at ``heads`` is at most ``epsilon``; more degrees until it is decided."""
        count = 32
        while count <= 1 << 15:
            low, high = self.bounds(heads, count)
            if high <= epsilon:
                return True
            if low > epsilon:
                return False
            count *= 2
        raise AssertionError(f"undecided: d={self.d} r={self.r} H={heads} eps={epsilon}")
