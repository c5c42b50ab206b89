r"""Warren's count: how many strict sign patterns $F$ polynomials in $n$ real unknowns can have.

For polynomials of degree at most $\delta$, with $D = \max(2,\delta)$,
$$\#\{\text{strict sign patterns}\} \le \sum_{l \le n} \binom{F+1}{l} 2^l (2D)^n
\le \Bigl(\frac{4eD(F+1)}{n}\Bigr)^n \qquad (1 \le n \le F+1 \text{ for the second}).$$
The theorem is Warren's [Warren1968, Theorem 3]; constants differ between publications. These two
forms are the ones that have been verified by machine, in Lean 4 with Mathlib: Josef Greilhuber,
``SignPatterns.sign_patterns`` and ``SignPatterns.sign_patterns_warren`` (2026), in
https://github.com/josefgreilhuber/DiscretePhaseRetrieval (``Warren/SignPatterns``).
The use is in docs/C2-real-weights.md.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from flint import arb, ctx

from bounds.arithmetic import Ball, certified_ball, exact_integer, to_arb
from bounds.errors import ArgumentError, HypothesisError
from bounds.graph_families import log_binomial

PatternForm = Literal["sum", "closed"]


def sign_pattern_bound(unknowns: int, polynomials: int, degree: int = 2) -> int:
    r"""$\min\{2^F, \sum_{l\le n}\binom{F+1}{l}2^l(2D)^n\}$, exactly; for sizes worth writing out.

    ``unknowns`` $n$, ``polynomials`` $F$, ``degree`` $\delta$ ($D = \max(2, \delta)$): ints
    $\ge 0$, $\ge 1$, $\ge 1$. Source: [Warren1968, Theorem 3].

    >>> sign_pattern_bound(1, 10), sign_pattern_bound(2, 3)
    (92, 8)
    """
    n, count, base = _arguments(unknowns, polynomials, degree)
    if 2 * n >= count:  # (2D)^n >= 4^n >= 2^F already
        return 1 << count
    total, term = 0, 1
    for power in range(n + 1):
        total += term
        term = term * 2 * (count + 1 - power) // (power + 1)
    total *= base**n
    return int(total if total.bit_length() <= count else 1 << count)


def sign_pattern_log2(
    unknowns: int,
    polynomials: int,
    degree: int = 2,
    *,
    form: PatternForm = "sum",
    digits: int = 15,
) -> Ball:
    r"""$\log_2$ of a bound for the number of strict sign patterns, as a certified ball.

    ``form``: ``"sum"`` for :func:`sign_pattern_bound` at any size, ``"closed"`` for
    $n\log_2(4eD(F+1)/n)$, which needs $1 \le n \le F + 1$. Source: [Warren1968, Theorem 3].

    >>> sign_pattern_log2(1, 10).decimal(6), sign_pattern_log2(1, 10, form="closed").decimal(6)
    ('6.52356', '7.90213')
    """
    arguments = _arguments(unknowns, polynomials, degree)
    digits = exact_integer(digits, "digits", 1)
    if form not in ("sum", "closed"):
        raise ArgumentError("form", form, "'sum' or 'closed'")
    if arguments[0] == 0 and form == "sum":
        return Ball.of(0)
    return certified_ball(
        lambda _: pattern_log2_arb(*arguments, form), digits, "log2 of the number of sign patterns"
    )


def pattern_log2_arb(n: int, count: int, base: int, form: PatternForm) -> arb:
    """The same at the precision in force; ``base`` is 2 D."""
    if form == "closed":
        if not 1 <= n <= count + 1:
            raise HypothesisError("Warren's count", "1 <= n <= F + 1", f"n = {n}, F = {count}")
        ratio = to_arb(Fraction(2 * base * (count + 1), n)) * arb.const_e()
        return to_arb(n) * ratio.log() / arb.const_log2()
    if 2 * n >= count:
        return to_arb(count)
    log = log_binomial(count + 1, n) + _top_terms(n, count).log()
    log2 = n + log / arb.const_log2() + to_arb(n) * (to_arb(base).log() / arb.const_log2())
    return log2.min(to_arb(count))


def _top_terms(n: int, count: int) -> arb:
    r"""$\sum_{l\le n}\binom{F+1}{l}2^{l}$ over its last term, for $2n < F$: ratios below 1/2, falling."""
    term, total, ratio = arb(1), arb(1), arb(0)
    for power in range(n, 0, -1):
        ratio = to_arb(Fraction(power, 2 * (count + 2 - power)))
        term = term * ratio
        total = total + term
        if term < arb(2) ** -ctx.prec * total:
            return total.union(total + term)  # what is left: at most term * ratio / (1 - ratio)
    return total


def _arguments(unknowns: object, polynomials: object, degree: object) -> tuple[int, int, int]:
    n = exact_integer(unknowns, "unknowns", 0)
    count = exact_integer(polynomials, "polynomials", 1)
    return n, count, 2 * max(2, exact_integer(degree, "degree", 1))
