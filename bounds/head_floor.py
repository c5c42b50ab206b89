r"""H2: the error floor of a layer of $H$ generalised rank-$r$ heads, and the heads it forces.

The weights that attain the target with one full-rank head are in
:mod:`constructions.nearest_neighbor`; the proof is in docs/H2-head-floor.md.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

import sympy
from flint import arb, fmpq

from bounds.arithmetic import (
    Ball,
    bits_of_digits,
    certain_ceiling,
    certify,
    exact_integer,
    exact_rational,
    to_arb,
)
from bounds.bound import Bound, count_text
from bounds.errors import ArgumentError, HypothesisError
from bounds.harmonics import Values, check_values
from bounds.model import Model
from bounds.profiles import NEAREST_NEIGHBOR, StepProfile
from bounds.spectrum import Spectrum, spectrum

T = TypeVar("T")

SOURCE = "[attention-bounds, H2]"

_STEP_BITS_LIMIT = 1024
_SEARCH_BITS = 40

_d, _r, _H, _l = sympy.symbols("d r H ell", integer=True, positive=True)
_eta, _N, _D = sympy.Function("eta"), sympy.Function("N"), sympy.Function("D")
_error = sympy.Symbol("E", nonnegative=True)
_epsilon = sympy.Symbol("epsilon", positive=True)

FLOOR = (
    sympy.Sum(_eta(_l) ** 2 * sympy.Max(0, 1 - _H * _D(_r, _l) / _N(_d, _l)), (_l, 1, sympy.oo)) / 2
)
"""The floor as a sympy expression in d, r, H."""

FLOOR_STATEMENT = sympy.Ge(_error, FLOOR)
HEADS_STATEMENT = sympy.Le(FLOOR, _epsilon)


def head_floor(
    d: int,
    r: int,
    heads: int,
    *,
    values: Values = "general",
    profile: StepProfile = NEAREST_NEIGHBOR,
    digits: int = 15,
) -> Bound:
    r"""The least error of a layer of $H$ rank-$r$ heads, as a certified lower bound.

    $\mathbb E\|f-g\|^2 \ge \frac12\sum_\ell \eta_\ell^2 (1 - H D(r,\ell)/N(d,\ell))_+$ for two
    orthonormal points and a query of any rotation-invariant law; $f$ is the nearest neighbour, or
    $f_\psi$ for another ``profile``. The error is absolute; $\mathbb E\|f\|^2 = 1$ for the nearest
    neighbour.

    Hypotheses: $1 \le r \le d-3$, $H \ge 1$. Tight for scalar values and $r = 1$ (H3).
    ``digits``: the ball's relative radius is at most $10^{-digits}$.
    Raises ``ArgumentError``, ``HypothesisError``, and ``UndecidedError`` when a step profile at
    $r$ near $d-3$ cannot be summed to the digits asked.
    Source: [attention-bounds, H2].

    >>> print(head_floor(8, 1, 16).value.decimal(10))
    0.1247823653
    >>> print(head_floor(64, 8, 10**6, values="scalar").value.decimal(10))
    0.08399916490
    """
    d, r = check_rank(d, r, "H2")
    heads = exact_integer(heads, "heads", 1)
    digits = exact_integer(digits, "digits", 1)
    check_values(values)

    def attempt(bits: int) -> Ball | None:
        value = _floor(spectrum(d, r, values, profile, bits), heads)
        narrow = value.is_finite() and value.rel_accuracy_bits() >= bits_of_digits(digits)
        return Ball.from_arb(value) if narrow else None

    start = bits_of_digits(digits) + 64
    value = _certify(attempt, f"head_floor(d={d}, r={r}) to {digits} digits", profile, start)
    layer = _layer_text(r, values)
    return Bound(
        quantity="error",
        value=value,
        kind="lower",
        status="proved",
        sentence=f"every layer of {count_text(heads)} {layer} has error >= {{value}} on {_target(profile)}, "
        f"d = {d}",
        statement=FLOOR_STATEMENT,
        hypotheses=_hypotheses(d, r),
        model=_model(r, values),
        source=SOURCE,
        parameters={"d": d, "r": r, "heads": heads, "values": values, "profile": str(profile)},
    )


def min_heads(
    d: int,
    r: int,
    error: int | float | str | Fraction,
    *,
    values: Values = "general",
    profile: StepProfile = NEAREST_NEIGHBOR,
) -> Bound:
    r"""The least $H$ whose floor is at most ``error``: every layer that good has so many heads.

    $H_{\min} = \min\{H : \frac12\sum_\ell\eta_\ell^2(1-HD(r,\ell)/N(d,\ell))_+ \le \varepsilon\}$,
    an exact int of any size. Between breakpoints the floor is linear in $H$, so tails of the
    sums decide $H_{\min}$ without a search over $H$.

    ``error`` $\varepsilon > 0$: an int, Fraction, text such as ``"1/20"`` or ``"0.05"`` (the
    decimal it says), or a float (its exact value). At or above the floor of no heads (1/2 for the
    nearest neighbour) the bound is vacuous: the value is 0.
    Hypotheses: $1 \le r \le d-3$. Errors as in :func:`head_floor`.
    Source: [attention-bounds, H2].

    >>> min_heads(64, 8, "1/10").value, min_heads(64, 8, "1/10", values="scalar").value
    (2355, 12955)
    """
    d, r = check_rank(d, r, "H2")
    check_values(values)
    epsilon = exact_error(error)

    def attempt(bits: int) -> int | None:
        return _least_heads(spectrum(d, r, values, profile, bits), epsilon)

    what = f"min_heads(d={d}, r={r})"
    value = _certify(attempt, what, profile, 128)
    layer = _layer_text(r, values)
    return Bound(
        quantity="heads",
        value=value,
        kind="lower",
        status="proved" if value > 0 else "vacuous",
        sentence=f"every layer of {layer} with error <= {_short(epsilon)} on {_target(profile)}, "
        f"d = {d}, has at least {{value}} heads",
        statement=HEADS_STATEMENT,
        hypotheses=_hypotheses(d, r),
        model=_model(r, values),
        source=SOURCE,
        parameters={"d": d, "r": r, "error": epsilon, "values": values, "profile": str(profile)},
    )


def check_rank(d: object, r: object, result: str) -> tuple[int, int]:
    """``d`` and ``r`` as ints, or the error that names the hypothesis $r \\le d-3$."""
    dim = exact_integer(d, "d", 2)
    rank = exact_integer(r, "r", 1)
    if rank > dim - 3:
        raise HypothesisError(result, "r <= d - 3", f"r = {rank} and d = {dim}")
    return dim, rank


def exact_error(error: object) -> Fraction:
    """A positive error as the exact rational it says."""
    epsilon = exact_rational(error, "error")
    if epsilon <= 0:
        raise ArgumentError("error", error, "positive")
    return epsilon


class _MoreBitsNeededError(Exception):
    """A search met a comparison that the working precision does not decide."""


def _certify(compute: Callable[[int], T | None], what: str, profile: StepProfile, start: int) -> T:
    def attempt(bits: int) -> T | None:
        try:
            return compute(bits)
        except _MoreBitsNeededError:
            return None

    if profile.is_sign:
        return certify(attempt, what, start=start)
    limit = max(start, _STEP_BITS_LIMIT)
    return certify(attempt, f"{what} for a {profile}", start=start, limit=limit)


def _first_index(holds: Callable[[int], bool]) -> int:
    """The first index from which a condition that stays true once true holds."""
    if holds(0):
        return 0
    low, high = 0, 1
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def _floor(terms: Spectrum, heads: int) -> arb:
    """The floor as a ball: degrees from the first one that ``heads`` heads cannot exhaust."""
    count = to_arb(heads)

    def is_reached(index: int) -> bool:
        ratio = count * terms.share(index)
        if ratio.rel_accuracy_bits() < _SEARCH_BITS:
            raise _MoreBitsNeededError
        return bool(ratio <= 1)

    first = _first_index(is_reached)
    value = terms.energy_tail(first) - count * terms.captured_tail(first)
    if first:
        # shares fall, so what an undecided degree before `first` could add is at most this
        excess = (1 - count * terms.share(first - 1)).upper()
        if excess > 0:
            value += (terms.energy_tail(0) * excess).union(arb(0))
    return value / 2


def _least_heads(terms: Spectrum, epsilon: Fraction) -> int | None:
    target = 2 * arb(fmpq(epsilon.numerator, epsilon.denominator))
    if terms.energy_tail(0) <= target:
        return 0

    def is_low(index: int) -> bool:
        """Whether the floor at the breakpoint H = 1 / share(index) is at most epsilon."""
        for bits in (_SEARCH_BITS, None):
            reached = terms.captured_tail(index, bits) / terms.share(index)
            value = terms.energy_tail(index, bits) - reached
            if value <= target:
                return True
            if value > target:
                return False
        raise _MoreBitsNeededError

    first = _first_index(is_low)
    # here the floor is (T - H B) / 2 from the breakpoint before to the one of `first`
    return certain_ceiling((terms.energy_tail(first) - target) / terms.captured_tail(first))


def _hypotheses(d: int, r: int) -> tuple[str, ...]:
    return (
        f"r <= d - 3 ({r} <= {d - 3})",
        "two orthonormal points, uniform among such frames",
        "a query of any rotation-invariant law, independent of the points",
    )


def _model(r: int, values: Values) -> Model:
    return Model(
        task="nearest-neighbor",
        attention="generalized",
        values=values,
        readout="sum",
        embeddings="random-frame",
        rank=r,
        context=2,
    )


def _layer_text(r: int, values: Values) -> str:
    return f"generalized rank-{r} heads ({values} values)"


def _target(profile: StepProfile) -> str:
    return "nearest neighbor" if profile == NEAREST_NEIGHBOR else f"the {profile}"


def _short(value: Fraction) -> str:
    text = (
        str(value)
        if max(value.numerator.bit_length(), value.denominator.bit_length()) < 200
        else ""
    )
    return text if text and len(text) <= 24 else Ball.of(value, 64).decimal(6)
