r"""Certified tails of series whose term ratio is rational, without summing them to the end.

Let $t_{k+1} = R(k)\,t_k$, $R = P/Q$, $t_k > 0$, $t_k \sim k^{-s}$, $s > 1$. For any function $u$
with $u(k)t_k \to 0$ and $u(k) - R(k)u(k+1) = 1 + \varepsilon(k)$, telescoping gives
$\sum_{k\ge K}(1+\varepsilon(k))\,t_k = u(K)\,t_K$, so bounds $m \le 1+\varepsilon(k) \le M$ on
$k \ge K$ enclose the tail in $u(K)t_K\,[1/M, 1/m]$. Here $u$ is the asymptotic solution in powers
of $1/(k+\sigma)$, and $m, M$ come from comparing the coefficients of two polynomials in $k-K$,
the lower one having positive coefficients. Proof: docs/arithmetic.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from flint import arb, fmpq, fmpq_poly

from bounds.arithmetic import precision
from bounds.errors import UndecidedError

_DIRECT_LIMIT = 1 << 23


@dataclass(frozen=True)
class RationalRatioSeries:
    """A positive series with $t_{k+1}/t_k$ = ``top(k)/bottom(k)``, integer coefficients low first.

    Both polynomials have the same degree and leading coefficient, and ``bottom`` has only positive
    coefficients when expanded about the first index that a tail is asked for. ``center`` is the
    shift $\\sigma$, about the middle of the zeros of both, and ``spread`` the largest distance of
    a zero from $-\\sigma$: the expansion is useful from $k \\gtrsim$ ``spread``.
    """

    top: tuple[int, ...]
    bottom: tuple[int, ...]
    center: fmpq
    spread: int

    def tail(self, start: int, first: arb, bits: int) -> arb:
        """$\\sum_{k \\ge start} t_k$ from ``first`` $= t_{start}$, as :meth:`settle` finds it."""
        _, direct, rest = self.settle(start, first, bits)
        return direct + rest

    def settle(self, start: int, first: arb, bits: int) -> tuple[int, arb, arb]:
        """An index from which the tail is enclosed, the sum up to it, and that tail.

        The method adds a relative error of at most $2^{8-bits}$ to what ``first`` brings along.
        """
        top, bottom = fmpq_poly(list(self.top)), fmpq_poly(list(self.bottom))
        if first.rel_accuracy_bits() < 8:  # too few bits to judge what is negligible
            return start, arb(0), arb.nan()
        total, term, index, stride = arb(0), first, start, 16
        goal = (arb(1) / 2) ** (bits - 8)
        while index - start < _DIRECT_LIMIT:
            for order in self._orders(index, bits, bool(self._reach(term, index) <= goal * total)):
                enclosure = self.tail_factor(index, order, bits)
                if enclosure is None:
                    continue
                rest = term * enclosure
                if (term.mid() * enclosure.rad()).mid() <= goal * (total + rest).mid():
                    return index, total, rest
            for _ in range(stride):
                total += term
                term = term * top(index).p / bottom(index).p
                index += 1
            stride *= 2
        raise UndecidedError(f"the tail from index {start} did not settle to {bits} bits")

    def _reach(self, term: arb, index: int) -> arb:
        """About what the whole tail comes to, for deciding what is worth trying."""
        return term * (index + self.spread)

    def _orders(self, index: int, bits: int, negligible: bool) -> list[int]:
        """Orders worth trying: 0 where the tail hardly counts, else one that should reach ``bits``."""
        if negligible:
            return [0]
        place, order = index + int(self.center), 0
        for _ in range(4):  # the terms of the expansion fall like (spread + order) / place
            reach = place // (self.spread + order + 1)
            if reach < 4:
                return []
            order = bits // (reach.bit_length() - 1) + 2
        return [(order + 7) // 8 * 8]

    def tail_factor(self, start: int, order: int, bits: int = 128) -> arb | None:
        """An enclosure of $\\sum_{k\\ge start} t_k / t_{start}$, or ``None`` where there is none."""
        weights = _asymptotic_weights(self.top, self.bottom, self.center, order, bits)
        here = fmpq_poly([start + self.center, 1])
        one_on = here + 1
        solution = fmpq_poly(list(reversed(weights)))
        index = fmpq_poly([start, 1])
        top, bottom = fmpq_poly(list(self.top))(index), fmpq_poly(list(self.bottom))(index)
        power, power_on = here**order, one_on**order
        denominator = power * power_on * bottom
        numerator = solution(here) * power_on * bottom - solution(one_on) * power * top
        ratios = [
            a / b
            for a, b in zip(_padded(numerator, denominator), denominator.coeffs(), strict=True)
        ]
        if min(denominator.coeffs()) <= 0 or min(ratios) <= 0:
            return None
        value = solution(here)[0] / power[0]
        return (arb(value) / arb(max(ratios))).union(arb(value) / arb(min(ratios)))


def _padded(numerator: fmpq_poly, denominator: fmpq_poly) -> list[fmpq]:
    coefficients = numerator.coeffs()
    return coefficients + [fmpq(0)] * (denominator.length() - len(coefficients))


@lru_cache(maxsize=256)
def _asymptotic_weights(
    top: tuple[int, ...], bottom: tuple[int, ...], center: fmpq, order: int, bits: int
) -> list[fmpq]:
    """$c_{-1}, \\dots, c_{order}$ with $u = \\sum_j c_j x^{-j}$, $x = k + \\sigma$, solving
    $u(x) - R u(x+1) = 1 + O(x^{-order-2})$, as dyadic numbers near the solution.

    Any weights do: the enclosure is proved for those returned.
    """
    length = order + 3
    shift = fmpq_poly([-center, 1])
    over = list(reversed(fmpq_poly(list(top))(shift).coeffs()))
    under = list(reversed(fmpq_poly(list(bottom))(shift).coeffs()))
    with precision(bits + 4 * order):
        ratio = _quotient(over, under, length)  # R in powers of z = 1/x
        moved = [ratio[0], *(a + b for a, b in pairwise(ratio))]  # R (1+z)^{-j} at j = -1
        residual = [arb(1)] + [arb(0)] * (length - 1)
        weights = []
        for _ in range(order + 2):
            image = [-value for value in moved[1:]]  # (L x^{-j}) z^{-j-1}: leading term s + j
            weight = (residual[0] / image[0]).mid()
            weights.append(weight)
            residual = [a - weight * b for a, b in zip(residual[1:], image[1:], strict=False)]
            moved = _over_one_plus_z(moved[: len(residual) + 1])
    return [_dyadic(weight) for weight in weights]


def _quotient(over: list[fmpq], under: list[fmpq], length: int) -> list[arb]:
    quotient: list[arb] = []
    for n in range(length):
        value = arb(over[n]) if n < len(over) else arb(0)
        for i in range(1, min(n, len(under) - 1) + 1):
            value -= under[i] * quotient[n - i]
        quotient.append(value / under[0])
    return quotient


def _over_one_plus_z(series: list[arb]) -> list[arb]:
    divided: list[arb] = []
    for value in series:
        divided.append(value - divided[-1] if divided else value)
    return divided


def _dyadic(value: arb) -> fmpq:
    man, exp = value.man_exp()
    return fmpq(man) * fmpq(2) ** int(exp)


def product_of_quarters(zeros: list[fmpq]) -> tuple[int, ...]:
    """Integer coefficients, low first, of $\\prod (4k + 4a)$ for multiples $a$ of 1/4."""
    product = fmpq_poly([1])
    for zero in zeros:
        product *= fmpq_poly([4 * zero, 4])
    return tuple(int(c.p) for c in product.coeffs())
