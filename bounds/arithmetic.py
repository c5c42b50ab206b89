"""Certified arithmetic: exact numbers in, balls out, and no decision on a float.

This module alone owns precision (always a local context, never the global one), conversion
(Python, numpy and sympy numbers in, exact text out) and rounding (outwards).
"""

from __future__ import annotations

import decimal
import math
import numbers
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np
import sympy
from flint import acb, arb, ctx, fmpq, fmpz

from bounds.errors import ArgumentError, UndecidedError

T = TypeVar("T")

PRECISION_LIMIT = 1 << 20
"""Bits at which an undecided comparison is reported as undecided."""

_DIGITS = "[0-9]+(?:_[0-9]+)*"
_DECIMAL = re.compile(rf"([+-]?)({_DIGITS})?(?:\.({_DIGITS})?)?(?:[eE]([+-]?[0-9]{{1,7}}))?")
_EXPONENT_LIMIT = 1_000_000

precision = ctx.workprec
"""``with precision(bits): ...`` evaluates balls at that many bits; the old precision returns."""


@dataclass(frozen=True, slots=True)
class Ball:
    r"""The closed interval $[m - \rho, m + \rho]$ with dyadic midpoint and radius, both exact.

    $m$ = ``mid_man`` $\cdot 2^{\mathtt{mid\_exp}}$, $\rho$ = ``rad_man`` $\cdot
    2^{\mathtt{rad\_exp}}$. Unlike flint's ``arb`` it can be pickled, hashed, compared field by
    field, and written as text without losing a bit. A comparison that the interval does not
    decide raises :class:`~bounds.errors.UndecidedError`; ``==`` compares the stored interval.

    >>> third = Ball.of(Fraction(1, 3), bits=80)
    >>> Fraction(1, 3) in third, third < 1
    (True, True)
    >>> Ball.parse(third.exact()) == third
    True
    """

    mid_man: int
    mid_exp: int
    rad_man: int
    rad_exp: int

    @classmethod
    def from_arb(cls, value: arb) -> Ball:
        """The same interval; a ``ValueError`` when it is not finite."""
        if not value.is_finite():
            raise UndecidedError(f"no finite enclosure was found (got {value})")
        mid, rad = value.mid().man_exp(), value.rad().man_exp()
        return cls(int(mid[0]), int(mid[1]), int(rad[0]), int(rad[1]))

    @classmethod
    def of(cls, value: int | Fraction | sympy.Expr, bits: int = 128) -> Ball:
        """The narrowest ball at ``bits`` bits around an exact number."""
        with precision(bits):
            return cls.from_arb(to_arb(value))

    def arb(self) -> arb:
        """The same interval as a flint ball, whatever the precision in force."""
        with precision(self.mid_man.bit_length() + 64):
            return arb((fmpz(self.mid_man), self.mid_exp), (fmpz(self.rad_man), self.rad_exp))

    @property
    def lower(self) -> Fraction:
        """The lower end, exactly."""
        return self.midpoint - self.radius

    @property
    def upper(self) -> Fraction:
        """The upper end, exactly."""
        return self.midpoint + self.radius

    @property
    def midpoint(self) -> Fraction:
        """The midpoint, exactly."""
        return _dyadic(self.mid_man, self.mid_exp)

    @property
    def radius(self) -> Fraction:
        """The radius, exactly."""
        return _dyadic(self.rad_man, self.rad_exp)

    @property
    def is_exact(self) -> bool:
        """Whether the interval is a single point."""
        return self.rad_man == 0

    def lower_float(self) -> float:
        """A float no larger than any number of the interval."""
        return _float_toward(self.lower, -math.inf)

    def upper_float(self) -> float:
        """A float no smaller than any number of the interval."""
        return _float_toward(self.upper, math.inf)

    def decimal(self, digits: int, rounding: str = "nearest") -> str:
        """``digits`` significant digits: of the lower end rounded ``"down"``, of the upper end
        rounded ``"up"``, or of the midpoint rounded to ``"nearest"``.
        """
        choice = {
            "down": (self.lower, decimal.ROUND_FLOOR),
            "up": (self.upper, decimal.ROUND_CEILING),
            "nearest": (self.midpoint, decimal.ROUND_HALF_EVEN),
        }
        value, mode = choice[rounding]
        if value == 0:
            return "0"
        context = decimal.Context(prec=digits, rounding=mode, Emax=10**9, Emin=-(10**9))
        context_parts = decimal.Context(
            prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN
        )
        top = context_parts.create_decimal(integer_text(value.numerator))
        bottom = context_parts.create_decimal(integer_text(value.denominator))
        return format(context.divide(top, bottom), "")

    def exact(self) -> str:
        """Text that :meth:`parse` turns into the same ball, to the bit."""
        return f"{self.mid_man:#x}*2^{self.mid_exp} +/- {self.rad_man:#x}*2^{self.rad_exp}"

    @classmethod
    def parse(cls, text: str) -> Ball:
        """The ball that :meth:`exact` wrote."""
        match = re.fullmatch(
            r"(-?0x[0-9a-f]+)\*2\^(-?\d+) \+/- (0x[0-9a-f]+)\*2\^(-?\d+)", text.strip()
        )
        if match is None:
            raise ArgumentError("ball", text, "of the form '0x..*2^e +/- 0x..*2^e'")
        mid_man, mid_exp, rad_man, rad_exp = match.groups()
        return cls(int(mid_man, 16), int(mid_exp), int(rad_man, 16), int(rad_exp))

    def __contains__(self, value: int | Fraction | Ball) -> bool:
        if isinstance(value, Ball):
            return self.lower <= value.lower and value.upper <= self.upper
        return self.lower <= value <= self.upper

    def __lt__(self, other: int | Fraction | Ball) -> bool:
        low, high = (other.lower, other.upper) if isinstance(other, Ball) else (other, other)
        if self.upper < low:
            return True
        if self.lower >= high:
            return False
        raise UndecidedError(f"{self} and {other} overlap: the comparison is undecided")

    def __gt__(self, other: int | Fraction | Ball) -> bool:
        low, high = (other.lower, other.upper) if isinstance(other, Ball) else (other, other)
        if self.lower > high:
            return True
        if self.upper <= low:
            return False
        raise UndecidedError(f"{self} and {other} overlap: the comparison is undecided")

    def __le__(self, other: int | Fraction | Ball) -> bool:
        return not self > other

    def __ge__(self, other: int | Fraction | Ball) -> bool:
        return not self < other

    def __float__(self) -> float:
        return _float_nearest(self.midpoint)

    def __str__(self) -> str:
        if self.is_exact:
            return self.decimal(17)
        digits = 17
        if self.mid_man:
            ratio = abs(self.midpoint) / self.radius
            digits = max(1, min(40, (ratio.numerator // ratio.denominator).bit_length() * 3 // 10))
        return f"{self.decimal(digits)} ± {Ball.of(self.radius, 32).decimal(2, 'up')}"


def to_arb(value: int | Fraction | sympy.Expr | Ball | arb) -> arb:
    """A flint ball around an exact number, at the precision in force.

    sympy expressions may be built of rationals, pi, E, sums, products, powers, and
    sqrt/exp/log/sin/cos/asin/acos; anything else is an :class:`~bounds.errors.ArgumentError`.
    """
    if isinstance(value, arb):
        return value
    if isinstance(value, Ball):
        return value.arb()
    if isinstance(value, int):
        return arb(fmpz(value))
    if isinstance(value, Fraction):
        return arb(fmpq(value.numerator, value.denominator))
    if isinstance(value, sympy.Expr):
        return _expression_to_arb(value)
    raise ArgumentError("number", value, "an int, Fraction, Ball, arb or sympy number")


_ARB_FUNCTIONS: dict[object, Callable[[arb], arb]] = {
    sympy.exp: lambda x: x.exp(),
    sympy.log: lambda x: x.log(),
    sympy.sin: lambda x: x.sin(),
    sympy.cos: lambda x: x.cos(),
    sympy.asin: lambda x: x.asin(),
    sympy.acos: lambda x: x.acos(),
}


def _expression_to_arb(value: sympy.Expr) -> arb:
    if isinstance(value, sympy.Rational):
        return arb(fmpq(int(value.p), int(value.q)))
    if value is sympy.pi:
        return arb.pi()
    if value is sympy.E:
        return arb.const_e()
    if isinstance(value, sympy.Add):
        return sum((_expression_to_arb(term) for term in value.args), arb(0))
    if isinstance(value, sympy.Mul):
        return math.prod((_expression_to_arb(factor) for factor in value.args), start=arb(1))
    if isinstance(value, sympy.Pow):
        base, exponent = value.args
        if exponent.is_Integer:
            return _integer_power(_expression_to_arb(base), int(exponent))
        if exponent == sympy.Rational(1, 2):
            return _expression_to_arb(base).sqrt()
        return _expression_to_arb(base) ** _expression_to_arb(exponent)
    if value.func in _ARB_FUNCTIONS:
        return _ARB_FUNCTIONS[value.func](_expression_to_arb(value.args[0]))
    raise ArgumentError("number", value, "built of rationals, pi, sums, products, powers, sqrt")


def _integer_power(base: arb, exponent: int) -> arb:
    # flint's real power is nan for a ball that contains zero; its complex power is not
    return (acb(base) ** exponent).real


def exact_rational(value: object, name: str) -> Fraction:
    """``value`` as the exact rational it says.

    Takes int, Fraction, Decimal, a finite float (at its exact value), a numpy or sympy number of
    these kinds, or text such as ``"1/20"`` or ``"0.05"`` (the decimal it says).

    >>> exact_rational("0.05", "error"), exact_rational(0.5, "error")
    (Fraction(1, 20), Fraction(1, 2))
    """
    allowed = "a finite rational: int, Fraction, Decimal, float, or text like '1/20' or '0.05'"
    if isinstance(value, str):
        return _parse_rational(value, name, allowed)
    if isinstance(value, bool | np.bool_):
        raise ArgumentError(name, value, allowed)
    if isinstance(value, fmpz | fmpq):
        return Fraction(int(fmpq(value).p), int(fmpq(value).q))
    if isinstance(value, sympy.Rational):
        return Fraction(int(value.p), int(value.q))
    if isinstance(value, numbers.Rational | np.integer):
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, float | np.floating) and np.isfinite(value):
        return Fraction(*map(int, value.as_integer_ratio()))
    if (
        isinstance(value, decimal.Decimal)
        and value.is_finite()
        and abs(value.adjusted()) < _EXPONENT_LIMIT
    ):
        return Fraction(value)
    raise ArgumentError(name, value, allowed)


def exact_integer(value: object, name: str, minimum: int, maximum: int | None = None) -> int:
    """``value`` as a Python int; floats and booleans are refused, numpy and flint integers are not."""
    allowed = f"an integer >= {minimum}" + ("" if maximum is None else f" and <= {maximum}")
    is_integer = isinstance(value, numbers.Integral | np.integer | fmpz | sympy.Integer)
    if not is_integer or isinstance(value, bool | np.bool_):
        raise ArgumentError(name, value, allowed)
    number: int = int(value)  # type: ignore[call-overload]
    if number < minimum or (maximum is not None and number > maximum):
        raise ArgumentError(name, value, allowed)
    return number


def square(value: arb) -> arb:
    """``value`` squared; flint's own ``value ** 2`` is nan for a ball that contains zero."""
    return value * value


def certify(
    attempt: Callable[[int], T | None],
    what: str,
    *,
    start: int = 128,
    limit: int = PRECISION_LIMIT,
) -> T:
    """The first answer of ``attempt(bits)`` that is not ``None``, the precision doubling each time.

    ``attempt`` runs with that working precision in force. At the limit an
    :class:`~bounds.errors.UndecidedError` says ``what`` could not be decided.
    """
    bits = start
    while bits <= limit:
        with precision(bits):
            answer = attempt(bits)
        if answer is not None:
            return answer
        bits *= 2
    raise UndecidedError(f"{what} is undecided at {limit} bits of precision")


def certified_ball(attempt: Callable[[int], arb], digits: int, what: str) -> Ball:
    """The value of ``attempt(bits)`` to a relative radius of at most ``10**-digits``."""

    def narrow(bits: int) -> Ball | None:
        value = attempt(bits)
        wide = not value.is_finite() or value.rel_accuracy_bits() < bits_of_digits(digits)
        return None if wide else Ball.from_arb(value)

    return certify(narrow, what, start=bits_of_digits(digits) + 64)


def bits_of_digits(digits: int) -> int:
    """Bits that carry ``digits`` decimal digits."""
    return digits * 10 // 3 + 4


def certain_ceiling(value: arb) -> int | None:
    """The least integer >= the number in the ball, or ``None`` when the ball does not decide it."""
    if not value.is_finite():
        return None
    low, high = (end.ceil().unique_fmpz() for end in (value.lower(), value.upper()))
    return int(low) if low is not None and low == high else None


def ceiling(value: Fraction) -> int:
    """The least integer >= an exact rational."""
    return -((-value.numerator) // value.denominator)


def log2_text(value: int, digits: int = 4) -> str:
    """log2 of a positive integer of any size, rounded down to ``digits`` decimals."""
    if value < 1:
        raise ArgumentError("value", value, "a positive integer")

    def attempt(_: int) -> int | None:
        if value & (value - 1) == 0:
            return int((value.bit_length() - 1) * 10**digits)
        units = (to_arb(value).log() / arb.const_log2() * 10**digits).floor().unique_fmpz()
        return None if units is None else int(units)

    units = certify(attempt, "log2")
    return f"{units // 10**digits}.{units % 10**digits:0{digits}d}"


def integer_text(value: int) -> str:
    """Decimal digits of an integer of any size (the interpreter limits ``str(int)``)."""
    return str(fmpz(value))


def rational_text(value: Fraction) -> str:
    """An exact rational for a person: as it is when short, else six digits."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) < 64:
        text = str(value)
        if len(text) <= 20:
            return text
    return Ball.of(value, 64).decimal(6)


def parse_integer(text: str) -> int:
    """The integer of any size that :func:`integer_text` wrote."""
    return int(fmpz(text))


def _dyadic(man: int, exp: int) -> Fraction:
    return Fraction(man << exp) if exp >= 0 else Fraction(man, 1 << -exp)


def _float_nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _float_toward(value: Fraction, direction: float) -> float:
    nearest = _float_nearest(value)
    if math.isinf(nearest):
        return nearest if (nearest > 0) == (direction > 0) else math.nextafter(nearest, 0.0)
    if (Fraction(nearest) > value) if direction < 0 else (Fraction(nearest) < value):
        return math.nextafter(nearest, direction)
    return nearest


def _parse_rational(text: str, name: str, allowed: str) -> Fraction:
    parts = [_parse_decimal(part) for part in text.strip().split("/")]
    if len(parts) > 2 or None in parts or (len(parts) == 2 and parts[1] == 0):
        raise ArgumentError(name, text, allowed)
    top, bottom = (parts[0], parts[1] if len(parts) == 2 else Fraction(1))
    assert top is not None
    assert bottom is not None
    return top / bottom


def _parse_decimal(text: str) -> Fraction | None:
    match = _DECIMAL.fullmatch(text.strip())
    if match is None:
        return None
    sign, whole, decimals, exponent = ((part or "").replace("_", "") for part in match.groups())
    digits = whole + decimals
    shift = int(exponent or 0) - len(decimals)
    if not digits or abs(shift) > _EXPONENT_LIMIT:
        return None
    value = Fraction(int(fmpz(digits)) * (-1 if sign == "-" else 1))
    power: int = 10 ** abs(shift)
    return value * power if shift >= 0 else value / power
