"""mpmath numbers as exact rationals, and distances of balls from them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any


def fraction_of(number: Any) -> Fraction:
    """The exact value of an mpmath float."""
    sign, mantissa, exponent, _ = number._mpf_
    value = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return -value if sign else value


def is_near(ball: Any, number: Any, relative: Fraction) -> bool:
    """Whether the ball contains the mpmath number, give or take its relative error."""
    truth = fraction_of(number)
    slack = abs(truth) * relative
    return bool(ball.lower - slack <= truth <= ball.upper + slack)
