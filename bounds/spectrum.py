r"""The spectrum that a head floor sums: energies, and the share of each degree that a head reaches.

Degrees are indexed by $i = 0, 1, \dots$ in rising order, skipping those without energy. For an
index, ``share`` is $D(r,\ell)/N(d,\ell)$, strictly falling in $\ell$ (docs/H2-head-floor.md);
``energy_tail`` is $T_i = \sum_{j\ge i}\eta_j^2$ and ``captured_tail`` is
$B_i = \sum_{j\ge i}\eta_j^2\,\mathrm{share}_j$, to ``bits`` bits where they are given. All are
flint balls at the precision in force.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Protocol

from flint import arb, fmpq, fmpq_poly

from bounds.arithmetic import to_arb
from bounds.errors import UndecidedError
from bounds.harmonics import Values, density_constant_ball
from bounds.profiles import StepProfile
from bounds.series import RationalRatioSeries, product_of_quarters

_DEGREE_LIMIT = 100_000
_KEPT_SUMS = 4096


class Spectrum(Protocol):
    """What :mod:`bounds.head_floor` needs to know of a target."""

    bits: int

    def share(self, index: int) -> arb:
        """Share of the degree at ``index`` that one head reaches."""
        ...

    def energy_tail(self, index: int, bits: int | None = None) -> arb:
        """Energy of the degrees from ``index`` on."""
        ...

    def captured_tail(self, index: int, bits: int | None = None) -> arb:
        """Energy times share, summed over the degrees from ``index`` on."""
        ...


@lru_cache(maxsize=256)
def spectrum(d: int, r: int, values: Values, profile: StepProfile, bits: int) -> Spectrum:
    """The spectrum of ``profile`` for rank-``r`` heads, to about ``bits`` bits."""
    if profile.is_sign:
        return SignSpectrum(d, r, values, to_arb(profile.jumps[0]) ** 2, bits)
    return StepSpectrum(d, r, values, profile, bits)


def degree_share(d: int, r: int, degree: int, values: Values) -> arb:
    r"""$D(r,\ell)/N(d,\ell)$ for $\ell \ge 1$, by Gamma functions: any size, no big integers."""
    ell = arb(degree)
    # M(r, l) / N(d, l) with N(d, l) = (2l+d-2)/(d-2) * binom(l+d-3, d-3)
    reach = (ell + r).gamma() / arb(r).gamma() * arb(d - 2).gamma() / (ell + d - 2).gamma()
    return reach * (d - 2) / (2 * degree + d - 2) * head_factor(d, r, degree, values)


def head_factor(d: int, r: int, degree: int, values: Values) -> arb:
    r"""$D(r,\ell)/M(r,\ell)$ for $\ell \ge 1$."""
    if values == "scalar":
        return arb(1)
    below = arb(degree) / (degree + r - 1)
    below_two = below * (degree - 1) / (degree + r - 2) if degree >= 2 else arb(0)
    extra = (d - r) * below if _second_branch(d, r, degree) else r * below + 1
    return 1 + extra + below_two


def _second_branch(d: int, r: int, degree: int) -> bool:
    """Whether (d-r) M(r,l-1) is the smaller one: (d - 2r - 1) l <= r - 1, an exact comparison."""
    return (d - 2 * r - 1) * degree <= r - 1


class SignSpectrum:
    """The sign profile: odd degrees $2i+1$, every tail a certified hypergeometric series."""

    def __init__(self, d: int, r: int, values: Values, scale: arb, bits: int) -> None:
        self.d, self.r, self.values, self.scale, self.bits = d, r, values, scale, bits
        self._energies: list[arb] = []
        self._heads = [arb(0)]
        self._shares: dict[int, arb] = {}
        self._suffixes: dict[int, dict[int, arb]] = {}

    def share(self, index: int) -> arb:
        """Share of the degree at ``index`` that one head reaches."""
        if index not in self._shares:
            self._shares[index] = degree_share(self.d, self.r, 2 * index + 1, self.values)
        return self._shares[index]

    def energy_tail(self, index: int, bits: int | None = None) -> arb:
        """Energy of the degrees from ``index`` on."""
        if index <= 16 * self.d:
            return self.scale * (1 - self._energy_head(index))
        return self.scale * self._energy_series.tail(index, self._energy(index), bits or self.bits)

    def captured_tail(self, index: int, bits: int | None = None) -> arb:
        """Degrees up to the switch of branches one by one, then the series of the last branch."""
        total, step = arb(0), index
        while self._before_switch(step) or (self.r == 1 and step == 0):  # D(1,1) = 3, then D = 4
            total += self._captured(step)
            step += 1
        return self.scale * (total + self._captured_suffix(step, bits or self.bits))

    def _captured_suffix(self, index: int, bits: int) -> arb:
        """The series from ``index``; sums below an index that was settled before are kept."""
        known = self._suffixes.setdefault(bits, {})
        if index in known:
            return known[index]
        top, bottom = (
            fmpq_poly(list(c)) for c in (self._captured_series.top, self._captured_series.bottom)
        )
        above = min((k for k in known if k > index), default=None)
        if above is None or above - index > _KEPT_SUMS:
            above, _, rest = self._captured_series.settle(index, self._captured(index), bits)
            known[above] = rest
        term = self._captured(above)
        for k in range(above - 1, index - 1, -1):
            term = term * bottom(k).p / top(k).p
            known[k] = known[k + 1] + term
        return known[index]

    def _before_switch(self, index: int) -> bool:
        slope = self.d - 2 * self.r - 1
        second_at_last = slope <= 0  # then (d-r) M(r,l-1) is the smaller one at every degree
        second_here = _second_branch(self.d, self.r, 2 * index + 1)
        return self.values == "general" and not second_at_last and second_here and self.r > 1

    def _coefficient_squared(self, index: int) -> arb:
        ratio = arb.gamma_fmpq(fmpq(2 * index + 1, 2)) * arb.gamma_fmpq(fmpq(self.d + 1, 2))
        ratio /= arb.const_sqrt_pi() * arb.gamma_fmpq(fmpq(2 * index + self.d + 1, 2))
        return (2 * density_constant_ball(self.d) / (self.d - 1) * ratio) ** 2

    def _captured(self, index: int) -> arb:
        degree = 2 * index + 1
        reach = arb(degree + self.r).gamma() / arb(degree + 1).gamma() / arb(self.r).gamma()
        factor = head_factor(self.d, self.r, degree, self.values)
        return self._coefficient_squared(index) * reach * factor

    def _energy(self, index: int) -> arb:
        d, degree = self.d, 2 * index + 1
        choose = arb(degree + d - 2).gamma() / arb(degree + 1).gamma() / arb(d - 2).gamma()
        return self._coefficient_squared(index) * choose * (2 * degree + d - 2) / (d - 2)

    def _energy_head(self, index: int) -> arb:
        while len(self._heads) <= index:
            k = len(self._energies)
            if k == 0:
                self._energies.append(self._energy(0))
            else:
                last, d = self._energies[-1], self.d
                top = (4 * k + d) * (2 * k + d - 3) * (2 * k + d - 2) * (2 * k - 1) ** 2
                bottom = (4 * k - 4 + d) * 2 * k * (2 * k + 1) * (2 * k - 1 + d) ** 2
                self._energies.append(last * top / bottom)
            self._heads.append(self._heads[-1] + self._energies[-1])
        return self._heads[index]

    @cached_property
    def _energy_series(self) -> RationalRatioSeries:
        d, half = self.d, fmpq(1, 2)
        # k -> k+1 of N(d, 2k+1) lambda_{2k+1}^2
        top = [fmpq(d, 4) + 1, fmpq(d - 1, 2), fmpq(d, 2), half, half]
        bottom = [fmpq(d, 4), fmpq(1), fmpq(3, 2), fmpq(d + 1, 2), fmpq(d + 1, 2)]
        return self._series(top, bottom, (1,), (1,))

    @cached_property
    def _captured_series(self) -> RationalRatioSeries:
        d, r, half = self.d, self.r, fmpq(1, 2)
        if self.values == "scalar":
            # k -> k+1 of lambda_{2k+1}^2 M(r, 2k+1)
            top = [half, half, fmpq(r + 1, 2), fmpq(r + 2, 2)]
            bottom = [fmpq(d + 1, 2), fmpq(d + 1, 2), fmpq(1), fmpq(3, 2)]
            return self._series(top, bottom, (1,), (1,))
        # the same of lambda^2 D with D = M(r, l-2) * weight(l) / (l (l-1)), l = 2k+1, where
        # M(r,l-1) = M(r,l-2)(l+r-2)/(l-1), M(r,l) = M(r,l-1)(l+r-1)/l
        here, below = (r - 1) * (r - 2), r - 2  # (l+r-1)(l+r-2) and (l+r-2)
        if d - 2 * r - 1 > 0 or r == 1:
            weight = (2 * here, 2 * (2 * r - 3) + r * below - 1, 2 + r + 1)
        else:
            weight = (here, (2 * r - 3) + (d - r) * below - 1, 1 + d - r + 1)
        # l(l-1) = 4 k (k + 1/2), absorbed into the ratio of M(r, l-2)
        top = [half, half, fmpq(r - 1, 2), fmpq(r, 2)]
        bottom = [fmpq(d + 1, 2), fmpq(d + 1, 2), fmpq(1), fmpq(3, 2)]
        a, b, c = weight
        now = (a + b + c, 2 * b + 4 * c, 4 * c)
        then = (a + 3 * b + 9 * c, 2 * b + 12 * c, 4 * c)
        return self._series(top, bottom, then, now)

    def _series(
        self,
        top: list[fmpq],
        bottom: list[fmpq],
        top_factor: tuple[int, ...],
        bottom_factor: tuple[int, ...],
    ) -> RationalRatioSeries:
        return RationalRatioSeries(
            _times(product_of_quarters(top), top_factor),
            _times(product_of_quarters(bottom), bottom_factor),
            center=fmpq(self.d, 4),
            spread=self.d // 4 + self.r // 4 + 1,
        )


def _times(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    product = [0] * (len(left) + len(right) - 1)
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            product[i + j] += a * b
    return tuple(product)


class StepSpectrum:
    """Any step profile: degrees $i+1$, summed one by one; the rest enclosed by monotony of shares."""

    def __init__(self, d: int, r: int, values: Values, profile: StepProfile, bits: int) -> None:
        self.d, self.r, self.values, self.bits = d, r, values, bits
        self._source = profile.energies(d, bits)
        self._total = profile.total_energy(d)
        self._energies: list[arb] = []
        self._heads = [arb(0)]
        self._shares: dict[int, arb] = {}

    def share(self, index: int) -> arb:
        """Share of the degree at ``index`` that one head reaches."""
        if index not in self._shares:
            self._shares[index] = degree_share(self.d, self.r, index + 1, self.values)
        return self._shares[index]

    def energy_tail(self, index: int, bits: int | None = None) -> arb:
        """Energy of the degrees from ``index`` on."""
        if index > _DEGREE_LIMIT:
            raise UndecidedError(
                f"a step profile would have to be summed past degree {_DEGREE_LIMIT}"
            )
        while len(self._heads) <= index:
            self._energies.append(next(self._source))
            self._heads.append(self._heads[-1] + self._energies[-1])
        return (self._total - self._heads[index]).nonnegative_part()

    def captured_tail(self, index: int, bits: int | None = None) -> arb:
        """Summed until what is left is below ``bits`` bits (by default all but the 56 that guard
        the working precision), or 48 degrees a bit.
        """
        total, goal, step = arb(0), (arb(1) / 2) ** (bits or self.bits - 56), index
        while True:
            rest = (self.energy_tail(step) * self.share(step)).upper()
            if rest <= goal * total.abs_lower() or step >= 48 * self.bits:
                return total + arb(0).union(rest)
            self.energy_tail(step + 1)
            total += self._energies[step] * self.share(step)
            step += 1
