r"""H6: rank-1 hard heads with scalar values that suffice for the nearest neighbour of two points.

The entries of $C$ and $b$ are in :mod:`bounds.head_overlap`, the weights in
:mod:`constructions.rank_one`, the judge in :mod:`verification.rank_one`, the proof in
docs/H6-rank-one-heads.md.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache

import sympy
from flint import arb, fmpq

from bounds.arithmetic import (
    ceiling,
    certain_ceiling,
    certified_ball,
    certify,
    exact_integer,
    exact_rational,
    to_arb,
)
from bounds.bound import Bound
from bounds.errors import ArgumentError, HypothesisError
from bounds.harmonics import density_constant, density_constant_ball
from bounds.head_floor import exact_error
from bounds.model import Model
from bounds.series import RationalRatioSeries, product_of_quarters

SOURCE = "[attention-bounds, H6]"

_d, _H, _l = sympy.symbols("d H ell", integer=True, positive=True)
_eta, _lambda = sympy.Function("eta"), sympy.Function("lambda")
_error = sympy.Symbol("E", nonnegative=True)
_epsilon = sympy.Symbol("epsilon", positive=True)

SUFFICIENT_ERROR = sympy.Sum(
    _eta(_l) ** 2 / (1 + _H * _lambda(_l) ** 4), (_l, 1, sympy.oo)
) / 2 + 1 / (16 * _H)
"""The error that some $H$ heads reach, as a sympy expression in d, H."""

ERROR_STATEMENT = sympy.Le(_error, SUFFICIENT_ERROR)
HEADS_STATEMENT = sympy.Le(SUFFICIENT_ERROR, _epsilon)


def rank_one_error_bound(d: int, heads: int, *, digits: int = 15) -> Bound:
    r"""An error that some layer of $H$ rank-1 hard heads with scalar values reaches.

    $\frac12\sum_{\ell\,\mathrm{odd}}\frac{\eta_\ell^2}{1+H\lambda_\ell^4} + \frac1{16H}$: at most
    $\frac12(T(L)+S_L/H)+\frac1{16H}$ for every $L$, $S_L = \sum_{\ell\le L}N^2/\eta_\ell^2$. The proof
    draws the heads at random with weights of one size: the best weights do better (not tight).
    Hypotheses: $d \ge 2$, $H \ge 1/((d-1)\lambda_1^4)$.
    Source: [attention-bounds, H6].

    >>> print(rank_one_error_bound(8, 1024).value.decimal(6, "up"))
    0.201805
    """
    d = exact_integer(d, "d", 2)
    heads = exact_integer(heads, "heads", 1)
    digits = exact_integer(digits, "digits", 1)
    if heads < least_heads(d):
        found = f"H = {heads} and d = {d} (needs H >= {least_heads(d)})"
        raise HypothesisError("H6", "H >= 1 / ((d-1) lambda_1^4)", found)

    if heads.bit_length() > _DEGREE_BITS * 2 * d:
        raise ArgumentError(
            "heads",
            heads,
            f"at most 2**{_DEGREE_BITS * 2 * d} at d = {d}: more takes too many degrees",
        )

    def attempt(bits: int) -> arb:
        return _sufficient(d, heads, bits)

    return Bound(
        quantity="error",
        value=certified_ball(attempt, digits, f"rank_one_error_bound(d={d}, heads={heads})"),
        kind="upper",
        status="proved",
        sentence=f"some {heads} rank-1 hard heads with scalar values reach error <= {{value}}, d = {d}",
        statement=ERROR_STATEMENT,
        hypotheses=_HYPOTHESES,
        model=MODEL,
        source=SOURCE,
        parameters={"d": d, "heads": heads},
    )


def rank_one_heads(d: int, error: int | float | str | Fraction) -> Bound:
    r"""The least $H$ for which :func:`rank_one_error_bound` is at most ``error``: so many heads suffice.

    An exact int of any size, decided in ball arithmetic (the bound falls strictly in $H$).
    ``error`` $\varepsilon > 0$: an int, Fraction, text such as ``"1/20"``, or a float (its exact
    value). Hypotheses: $d \ge 2$. Not tight: an upper bound on the heads needed.
    Source: [attention-bounds, H6].

    >>> rank_one_heads(8, "1/5").value
    1078
    """
    d = exact_integer(d, "d", 2)
    epsilon = exact_error(error)

    def suffices(heads: int) -> bool:
        def attempt(bits: int) -> bool | None:
            excess = _sufficient(d, heads, bits) - to_arb(epsilon)
            return True if excess <= 0 else False if excess > 0 else None

        return certify(attempt, f"rank_one_heads(d={d}) at H = {heads}", start=64)

    return Bound(
        quantity="heads",
        value=_least(suffices, least_heads(d)),
        kind="upper",
        status="proved",
        sentence=f"{{value}} rank-1 hard heads with scalar values suffice for error <= {epsilon}, "
        f"d = {d}",
        statement=HEADS_STATEMENT,
        hypotheses=_HYPOTHESES,
        model=MODEL,
        source=SOURCE,
        parameters={"d": d, "error": epsilon},
    )


@cache
def least_heads(d: int) -> int:
    r"""$\lceil 1/((d-1)\lambda_1^4)\rceil$: the heads from which :func:`rank_one_error_bound` holds.

    About $2.5\,d$. Source: [attention-bounds, H6].

    >>> least_heads(3), least_heads(8)
    (8, 20)
    """
    d = exact_integer(d, "d", 2)
    if d % 2 and d < _EXACT_DIMENSION:  # rational: a tie with an integer is possible
        exact = 1 / ((d - 1) * (2 * density_constant(d) / (d - 1)) ** 4)
        return ceiling(exact_rational(exact, "d"))

    def attempt(_: int) -> int | None:
        coefficient = 2 * density_constant_ball(d) / (d - 1)
        return certain_ceiling(1 / ((d - 1) * coefficient**4))

    return certify(attempt, f"least_heads({d})")


_EXACT_DIMENSION = 4096

_DEGREE_BITS = 16
"""Degrees count up to about $H^{1/2d}$; the sum stops being worth it at $2^{16}$."""

MODEL = Model(
    task="nearest-neighbor",
    attention="hard",
    values="scalar",
    readout="sum",
    embeddings="random-frame",
    rank=1,
    context=2,
)
"""Rank-1 hard heads with scalar values on two orthonormal points."""

_HYPOTHESES = (
    "H >= 1 / ((d-1) lambda_1^4), about 2.5 d",
    "two orthonormal points, uniform among such frames",
    "a query uniform on the sphere, independent of the points",
)


class _SignTable:
    """Energies, $\\lambda_\\ell^4$ and tails $T$ of the sign at the odd degrees $2i+1$, as balls."""

    def __init__(self, d: int, bits: int) -> None:
        self.d, self.bits = d, bits
        self.energies: list[arb] = []
        self.fourth_powers: list[arb] = []
        self.tails = [arb(1)]
        self._coefficient = 2 * density_constant_ball(d) / (d - 1)
        self._dimension = arb(d)

    def extend(self, index: int) -> None:
        """Fill the lists up to ``index``."""
        d = self.d
        while len(self.energies) <= index:
            ell = 2 * len(self.energies) + 1
            square = self._coefficient**2
            self.energies.append(self._dimension * square)
            self.fourth_powers.append(square**2)
            self.tails.append(self.tails[-1] - self.energies[-1])
            self._coefficient = self._coefficient * ell / (ell + d)
            # N(d, l+2) / N(d, l), l >= 1
            self._dimension *= arb((2 * ell + d + 2) * (ell + d - 2) * (ell + d - 1))
            self._dimension /= (2 * ell + d - 2) * (ell + 1) * (ell + 2)

    @property
    def weighted(self) -> RationalRatioSeries:
        r"""$\eta_\ell^2\lambda_\ell^4 = N\lambda_\ell^6$ as a series in $i$."""
        d = self.d
        top = [fmpq(d, 4) + 1, fmpq(d - 1, 2), fmpq(d, 2), *[fmpq(1, 2)] * 6]
        bottom = [fmpq(d, 4), fmpq(1), fmpq(3, 2), *[fmpq(d + 1, 2)] * 6]
        return RationalRatioSeries(
            product_of_quarters(top), product_of_quarters(bottom), fmpq(d, 4), d // 4 + 1
        )


_table = cache(_SignTable)


def _sufficient(d: int, heads: int, bits: int) -> arb:
    """The bound at the precision in force, ``bits``; its ball is wider where ``bits`` is small."""
    table, count = _table(d, bits), to_arb(heads)
    goal = (arb(1) / 2) ** ((bits - 32) // 2)
    total, index = arb(0), 0
    while True:
        table.extend(index)
        load = count * table.fourth_powers[index]
        if load <= goal:
            break
        total += table.energies[index] / (1 + load)
        index += 1
    # 1 - x <= 1/(1+x) <= 1 - x + x^2 for x = H lambda^4 >= 0, and x falls
    rest = table.tails[index]
    lost = count * table.weighted.tail(
        index, table.energies[index] * table.fourth_powers[index], 64
    )
    tail = rest - lost + (rest * load**2).union(arb(0))
    return (total + tail) / 2 + 1 / (16 * count)


def _least(holds: Callable[[int], bool], start: int) -> int:
    """The least integer >= ``start`` from which a condition that stays true once true holds."""
    if holds(start):
        return start
    low, stride = start, 1
    while not holds(high := low << stride):
        low, stride = high, 2 * stride
    while high - low > 1:
        # halve the exponent while the bracket is wide, the interval once it is not
        wide = high.bit_length() - low.bit_length()
        middle = low << (wide // 2) if wide >= 2 else (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
