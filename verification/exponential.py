r"""$e^x$ of float64 arrays, rounded in a given direction with certainty.

$x = a + b/1024 + r$ with integers $a$, $0 \le b < 1024$ and $0 \le r < 2^{-10}$, all exact in
float64. $e^a$ and $e^{b/1024}$ come from tables of certified balls, and
$1+r+r^2/2+r^3/6 \le e^r \le 1+r+r^2/2+(1+2^{-11})r^3/6$. At most nine roundings are covered by a
factor $1\pm2^{-49}$.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from bounds.arithmetic import Ball, precision
from constructions.attention import FloatArray

_LIMIT = 700
_SLACK = 2.0**-49


def exp_upper(x: FloatArray) -> FloatArray:
    """Floats no smaller than $e^x$; inf beyond 700."""
    clipped = np.clip(x, -_LIMIT, _LIMIT)
    whole, part, r = _split(clipped)
    wholes, parts = _tables()
    value = (
        wholes[1][whole + _LIMIT]
        * parts[1][part]
        * (1 + r * (1 + r * (0.5 + r * ((1 + 2.0**-11) / 6))))
    )
    return np.where(x > _LIMIT, np.inf, value * (1 + _SLACK))


def exp_lower(x: FloatArray) -> FloatArray:
    """Floats no larger than $e^x$; 0 below -700."""
    clipped = np.clip(x, -_LIMIT, _LIMIT)
    whole, part, r = _split(clipped)
    wholes, parts = _tables()
    value = wholes[0][whole + _LIMIT] * parts[0][part] * (1 + r * (1 + r * (0.5 + r / 6)))
    return np.where(x < -_LIMIT, 0.0, value * (1 - _SLACK))


def _split(x: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]:
    steps = np.floor(x * 1024)
    index = steps.astype(np.int64)
    return index >> 10, index & 1023, x - steps / 1024


@cache
def _tables() -> tuple[FloatArray, FloatArray]:
    """Lower and upper ends of $e^a$ for $|a| \\le 700$, and of $e^{b/1024}$ for $0 \\le b < 1024$."""
    with precision(64):
        wholes = [Ball.from_arb(arb(a).exp()) for a in range(-_LIMIT, _LIMIT + 1)]
        parts = [Ball.from_arb(arb(fmpq(b, 1024)).exp()) for b in range(1024)]
    first, second = (
        np.array([[ball.lower_float() for ball in balls], [ball.upper_float() for ball in balls]])
        for balls in (wholes, parts)
    )
    return first, second
