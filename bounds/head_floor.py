r"""H2: the error floor of a layer of $H$ generalised rank-$r$ heads, and the heads it forces.

The weights that attain the target with one full-rank head are in
:mod:`constructions.nearest_neighbor`; the proof is in docs/H2-head-floor.md.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

import sympy
from flint import arb

from bounds.arithmetic import (
    Ball,
    bits_of_digits,
    certain_ceiling,
    certify,
    exact_integer,
    exact_rational,
    precision,
    rational_text,
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

LEAST_ERROR = Fraction(1, 10**1000)
"""The least error that a count of heads is asked for."""

_STEP_BITS_LIMIT = 1024
_SEARCH_BITS = 40
_GUARD_BITS = 96

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
    context: int = 2,
    digits: int = 15,
) -> Bound:
    r"""The least error of a layer of $H$ rank-$r$ heads, as a certified lower bound.

    $\mathbb E\|f-g\|^2 \ge \frac12\sum_\ell \eta_\ell^2 (1 - H D(r,\ell)/N(d,\ell))_+$ for two
    orthonormal points and a query uniform on the sphere (of any rotation-invariant law without an
    atom at 0 for the nearest neighbour); $f$ is the nearest neighbour, or $f_\psi$ for another
    ``profile``. The error is absolute; $\mathbb E\|f\|^2 = 1$ for the nearest
    neighbour.

    Hypotheses: $1 \le r \le d-3$, $H \ge 1$. Tight for scalar values and $r = 1$ (H3).
    ``digits``: the ball's relative radius is at most $10^{-digits}$. ``context`` $N > 2$: the floor
    among N points, :func:`bounds.context_floor` (H8), with its hypotheses.
    Raises ``ArgumentError``, ``HypothesisError``, and ``UndecidedError`` when a step profile at
    $r$ near $d-3$ cannot be summed to the digits asked.
    Source: [attention-bounds, H2].

    >>> print(head_floor(8, 1, 16).value.decimal(10))
    0.1247823653
    >>> print(head_floor(64, 8, 10**6, values="scalar").value.decimal(10))
    0.08399916496
    """
    if _is_longer(context, profile):
        from bounds.context_floor import context_floor  # that module builds on this one

        return context_floor(d, r, heads, context, values=values, digits=digits)
    d, r = check_rank(d, r, "H2")
    heads = exact_integer(heads, "heads", 1)
    digits = exact_integer(digits, "digits", 1)
    check_values(values)
    _check_profile(profile)

    def attempt(bits: int) -> Ball | None:
        value = _floor(spectrum(d, r, values, profile, bits), heads)
        narrow = value.is_finite() and value.rel_accuracy_bits() >= bits_of_digits(digits)
        return Ball.from_arb(value) if narrow else None

    start = bits_of_digits(digits) + 64
    value = _certify(attempt, f"head_floor(d={d}, r={r}) to {digits} digits", profile, start)
    layer = layer_text(r, values)
    return Bound(
        quantity="error",
        value=value,
        kind="lower",
        status="proved",
        sentence=f"every layer of {count_text(heads)} {layer} has error >= {{value}} on {_target(profile)}, "
        f"d = {d}",
        statement=FLOOR_STATEMENT,
        hypotheses=floor_hypotheses(d, r, profile),
        model=floor_model(r, values, profile),
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
    context: int = 2,
) -> Bound:
    r"""The least $H$ whose floor is at most ``error``: every layer that good has so many heads.

    $H_{\min} = \min\{H : \frac12\sum_\ell\eta_\ell^2(1-HD(r,\ell)/N(d,\ell))_+ \le \varepsilon\}$,
    an exact int of any size. Between breakpoints the floor is linear in $H$, so tails of the
    sums decide $H_{\min}$ without a search over $H$.

    ``error`` $\varepsilon > 0$: an int, Fraction, text such as ``"1/20"`` or ``"0.05"`` (the
    decimal it says), or a float (its exact value). At or above the floor of no heads (1/2 for the
    nearest neighbour) the bound is vacuous: the value is 0. ``context`` $N > 2$: as
    :func:`bounds.context_min_heads` (H8), a certified count.
    Hypotheses: $1 \le r \le d-3$. Errors as in :func:`head_floor`.
    Source: [attention-bounds, H2].

    >>> min_heads(64, 8, "1/10").value, min_heads(64, 8, "1/10", values="scalar").value
    (2355, 12955)
    """
    if _is_longer(context, profile):
        from bounds.context_floor import context_min_heads  # that module builds on this one

        return context_min_heads(d, r, error, context, values=values)
    d, r = check_rank(d, r, "H2")
    check_values(values)
    _check_profile(profile)
    epsilon = exact_error(error)

    value = least_heads(d, r, values, profile, lambda _: to_arb(epsilon))
    layer = layer_text(r, values)
    return Bound(
        quantity="heads",
        value=value,
        kind="lower",
        status="proved" if value > 0 else "vacuous",
        sentence=f"every layer of {layer} with error <= {rational_text(epsilon)} on {_target(profile)}, "
        f"d = {d}, has at least {{value}} heads",
        statement=HEADS_STATEMENT,
        hypotheses=floor_hypotheses(d, r, profile),
        model=floor_model(r, values, profile),
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


def _is_longer(context: object, profile: object) -> bool:
    longer = exact_integer(context, "context", 2) > 2
    if longer and profile != NEAREST_NEIGHBOR:
        raise ArgumentError("context", context, "2 for a profile other than nearest neighbor")
    return longer


def _check_profile(profile: object) -> None:
    if not isinstance(profile, StepProfile):
        raise ArgumentError("profile", profile, "a StepProfile")


def exact_error(error: object) -> Fraction:
    """A positive error as the exact rational it says."""
    epsilon = exact_rational(error, "error")
    if epsilon <= 0:
        raise ArgumentError("error", error, "positive")
    if epsilon < LEAST_ERROR:
        raise ArgumentError("error", error, "at least 1e-1000: smaller ones take minutes to decide")
    return epsilon


def least_heads(
    d: int,
    r: int,
    values: Values,
    profile: StepProfile,
    error: Callable[[Spectrum], arb],
) -> int:
    """The least H whose floor is at most ``error(spectrum)``, exactly."""

    def attempt(bits: int) -> int | None:
        terms = spectrum(d, r, values, profile, bits)
        return _least_heads(terms, error(terms))

    return _certify(attempt, f"the least number of heads at d={d}, r={r}", profile, 128)


class _MoreBitsNeededError(Exception):
    """The working precision does not decide the search; ``bits`` would, when known."""

    def __init__(self, bits: int = 0) -> None:
        self.bits = bits


def _certify(compute: Callable[[int], T | None], what: str, profile: StepProfile, start: int) -> T:
    def attempt(bits: int) -> T | None:
        try:
            return compute(bits)
        except _MoreBitsNeededError as need:
            if bits < need.bits <= 2 * bits:
                with precision(need.bits):
                    return compute(need.bits)
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


def _first_root(excess: Callable[[int], arb], target: arb) -> int:
    """The first index where a falling function, about c / index far out, is at most 0.

    Bisection and interpolation of 1 / (excess + target) by turns: few steps at any size.
    """
    if excess(0) <= 0:
        return 0
    low, high = (0, excess(0)), (1, excess(1))
    while high[1] > 0:
        low, high = high, (high[0] ** 2 + 1, excess(high[0] ** 2 + 1))
    turn = 0
    while high[0] - low[0] > 1:
        middle = (low[0] + high[0]) // 2
        if turn % 2 == 0:
            left, right = 1 / (low[1] + target), 1 / (high[1] + target)
            part = ((1 / target - left) / (right - left) * (high[0] - low[0])).mid()
            guess = part.floor().unique_fmpz()
            if guess is not None:
                middle = low[0] + min(max(int(guess) + turn // 2 % 2, 1), high[0] - low[0] - 1)
        value = excess(middle)
        low, high = ((middle, value), high) if value > 0 else (low, (middle, value))
        turn += 1
    return high[0]


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


def _least_heads(terms: Spectrum, error: arb) -> int | None:
    target = 2 * error
    if terms.energy_tail(0) <= target:
        return 0

    def excess(index: int) -> arb:
        """Twice the floor at the breakpoint H = 1 / share(index), minus the target; its sign is sure."""
        for bits in (_SEARCH_BITS, None):
            reached = terms.captured_tail(index, bits) / terms.share(index)
            value = terms.energy_tail(index, bits) - reached - target
            if value <= 0 or value > 0:
                return value
        raise _MoreBitsNeededError

    first = _first_root(excess, target)
    # here the floor is (T - H B) / 2 from the breakpoint before to the one of `first`
    need = terms.energy_tail(first, _SEARCH_BITS) - target
    roughly = (need / terms.captured_tail(first, _SEARCH_BITS)).upper()
    bits = int(roughly.log().ceil().unique_fmpz() or 0) * 3 // 2 + _GUARD_BITS
    if bits > terms.bits:
        raise _MoreBitsNeededError(bits)
    return certain_ceiling((terms.energy_tail(first) - target) / terms.captured_tail(first))


def floor_hypotheses(d: int, r: int, profile: StepProfile) -> tuple[str, ...]:
    """The hypotheses of H2, with the numbers at hand."""
    law = "of any rotation-invariant law without an atom at 0" if profile.is_sign else "uniform"
    return (
        f"r <= d - 3 ({r} <= {d - 3})",
        "two orthonormal points, uniform among such frames",
        f"a query {law}, independent of the points",
    )


def floor_model(r: int, values: Values, profile: StepProfile = NEAREST_NEIGHBOR) -> Model:
    """Generalized rank-r heads on two orthonormal points."""
    return Model(
        task="nearest-neighbor" if profile == NEAREST_NEIGHBOR else "step-profile",
        attention="generalized",
        values=values,
        readout="sum",
        embeddings="random-frame",
        rank=r,
        context=2,
    )


def layer_text(r: int, values: Values) -> str:
    """What a layer of such heads is called in a sentence."""
    return f"generalized rank-{r} heads ({values} values)"


def _target(profile: StepProfile) -> str:
    return "nearest neighbor" if profile == NEAREST_NEIGHBOR else f"the {profile}"
