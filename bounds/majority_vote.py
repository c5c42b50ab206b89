r"""H7: two layers of rank-1 heads, the first of which votes: exact error, and heads that suffice.

Each of $H$ random heads is right with probability $p(t) = \frac12 + \frac1\pi\arcsin|t|$,
$t = \langle w, y\rangle$, independently given $w, y$; the majority decides. The weights are in
:mod:`constructions.majority_vote`, the proofs in docs/H7-majority-vote.md.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import comb

import sympy
from flint import acb, arb, ctx, fmpq

from bounds.arithmetic import certified_ball, certify, exact_integer, to_arb
from bounds.bound import Bound, Kind, Parameter, Status, Value, count_text
from bounds.harmonics import density_constant_ball
from bounds.head_floor import exact_error
from bounds.model import Model

SOURCE = "[attention-bounds, H7]"

_d, _n = sympy.symbols("d n", integer=True, positive=True)
_s, _u = sympy.symbols("s u", real=True)
_c = sympy.Function("c")(_d)
_error = sympy.Symbol("E", nonnegative=True)
_epsilon = sympy.Symbol("epsilon", positive=True)

CEILING = sympy.pi * _c * sympy.binomial(2 * _n, _n) / 4**_n
r"""A closed upper bound on the error, $n = \lceil H/2\rceil$, as a sympy expression."""

ERROR = (
    CEILING
    * (4 * _n / sympy.pi)
    * sympy.Integral(
        (1 - _s**2) ** (_n - 1) * sympy.cos(_u) ** (_d - 2), (_u, 0, sympy.pi * _s / 2), (_s, 0, 1)
    )
)
r"""The error, exactly, $n = \lceil H/2\rceil$, as a sympy expression."""

ERROR_STATEMENT = sympy.Eq(_error, ERROR)
CEILING_STATEMENT = sympy.Le(_error, CEILING)
HEADS_STATEMENT = sympy.Le(ERROR, _epsilon)


def majority_vote_error(d: int, heads: int, *, digits: int = 15) -> Bound:
    r"""The expected error of a majority vote of $H$ random rank-1 hard heads, exactly.

    On $\mathcal D_2$ it is
    $2\,\mathbb E_t[\Pr(\mathrm{Bin}(H,p(t)) < \frac H2) + \frac12\Pr(= \frac H2)]$, which is
    $\pi c_d\binom{2n}n4^{-n}\,\mathbb E_j\,{}_1F_2(1;\frac32,n+1;-\frac{\pi^2}{16}j^2)$ with
    $n = \lceil H/2\rceil$ and $j$ a sum of $d-2$ random signs. Over the draw of the heads and the
    points: some draw is at least as good. An even $H$ is worth no more than $H-1$.
    $d \ge 2$, $H \ge 1$; ``digits``: the ball's relative radius is at most $10^{-digits}$.
    Source: [attention-bounds, H7].

    >>> print(majority_vote_error(32, 4001).value.decimal(10))
    0.08676761969
    """
    d, heads = exact_integer(d, "d", 2), exact_integer(heads, "heads", 1)
    digits = exact_integer(digits, "digits", 1)
    n = (heads + 1) // 2
    value = certified_ball(lambda _: _error_ball(d, n), digits, "the majority vote's error")
    return _bound(
        "error",
        value,
        "exact",
        f"a majority vote of {count_text(heads)} random rank-1 hard heads has expected error "
        f"{{value}} on nearest neighbor, d = {d}",
        ERROR_STATEMENT,
        {"d": d, "heads": heads},
    )


def majority_vote_ceiling(d: int, heads: int, *, digits: int = 15) -> Bound:
    r"""A closed upper bound on :func:`majority_vote_error`.

    $\pi c_d\binom{2n}n4^{-n} < c_d\sqrt{2\pi/(H+\frac12)}$, $n = \lceil H/2\rceil$: smaller by a
    factor $\pi$ than what Hoeffding's inequality gives. Equal to the error at $d = 2$, and tight
    as $H \to \infty$: the error is at least $1 - \frac{\pi^2(d-2)}{24(n+1)}$ of it. Vacuous at 1,
    the error of a random choice.
    $d \ge 2$, $H \ge 1$. Source: [attention-bounds, H7].

    >>> print(majority_vote_ceiling(32, 4001).value.decimal(10))
    0.08729983176
    """
    d, heads = exact_integer(d, "d", 2), exact_integer(heads, "heads", 1)
    digits = exact_integer(digits, "digits", 1)
    n = (heads + 1) // 2
    value = certified_ball(lambda _: _ceiling_ball(d, n), digits, "the majority vote's ceiling")
    return _bound(
        "error",
        value,
        "upper",
        f"a majority vote of {count_text(heads)} random rank-1 hard heads has expected error <= "
        f"{{value}} on nearest neighbor, d = {d}",
        CEILING_STATEMENT,
        {"d": d, "heads": heads},
        "vacuous" if value.upper >= 1 else "proved",
    )


def majority_vote_heads(d: int, error: float | str | Fraction) -> Bound:
    r"""The least $H$ whose majority vote has expected error at most ``error`` on $\mathcal D_2$.

    An upper bound on the heads that a two-layer rank-1 network needs (one more head in its second
    layer). The error falls strictly over the odd $H$, and an even $H$ is worth $H-1$: the least
    $H$ is odd, and is found exactly. About $2\pi c_d^2/\varepsilon^2 \approx d/\varepsilon^2$.
    $d \ge 2$; ``error`` $\varepsilon > 0$, exact as in :func:`bounds.head_floor.min_heads`.
    Source: [attention-bounds, H7].

    >>> majority_vote_heads(64, "1/10").value
    6147
    """
    d = exact_integer(d, "d", 2)
    epsilon = exact_error(error)
    heads = 2 * _first(lambda n: _reaches(d, n, epsilon)) - 1
    return _bound(
        "heads",
        heads,
        "upper",
        f"{{value}} random rank-1 hard heads, and one that reads their vote, have expected error "
        f"<= {float(epsilon):.6g} on nearest neighbor, d = {d}",
        HEADS_STATEMENT,
        {"d": d, "error": epsilon},
    )


def _ceiling_ball(d: int, n: int) -> arb:
    """pi c_d binom(2n, n) / 4^n, by Gamma functions: any size of n."""
    half = arb.gamma_fmpq(fmpq(2 * n + 1, 2)) / arb(n + 1).gamma()
    return arb.const_sqrt_pi() * density_constant_ball(d) * half


def _error_ball(d: int, n: int) -> arb:
    return _ceiling_ball(d, n) * _attenuation(d, n)


def _attenuation(d: int, n: int) -> arb:
    """The mean of 1F2(1; 3/2, n+1; -(pi j/4)^2) over j = k - 2i, i binomial(k, 1/2), k = d-2."""
    k = d - 2
    total, left = arb(0), 1 << k  # what is left of the 2^k subsets
    for i in range(k // 2, -1, -1):
        if left >> max(0, k - ctx.prec) == 0:
            total += arb(0, left)  # each function value lies in [-1, 1]
            break
        count = comb(k, i) if 2 * i == k else 2 * comb(k, i)  # j and -j
        z = acb(-((arb.pi() * (k - 2 * i) / 4) ** 2))
        total += count * z.hypgeom([acb(1)], [acb(3) / 2, acb(n + 1)]).real
        left -= count
    return total / (arb(2) ** k)


def _reaches(d: int, n: int, epsilon: Fraction) -> bool:
    """Whether 2n - 1 heads have error at most ``epsilon``, certified."""

    def attempt(bits: int) -> bool | None:
        low, high = _bracket(d, n)
        target = to_arb(epsilon)
        if high <= target or low > target:
            return bool(high <= target)
        if d == 2 and bits > 256:  # the error is rational, and may be epsilon itself
            return Fraction(comb(2 * n, n), 4**n) <= epsilon
        value = _error_ball(d, n)
        return True if value <= target else False if value > target else None

    what = f"whether {count_text(2 * n - 1)} voting heads have an error that small"
    return certify(attempt, what, limit=1 << 16)


def _bracket(d: int, n: int) -> tuple[arb, arb]:
    """Closed bounds on the error: cos^k >= 1 - k theta^2 / 2 gives the lower one."""
    ceiling = _ceiling_ball(d, n)
    loss = arb.pi() ** 2 * (d - 2) / (24 * (n + 1))
    return ceiling * (1 - loss), ceiling


def _first(holds: Callable[[int], bool]) -> int:
    """The first n >= 1 for which a condition that stays true once true holds."""
    high = 1
    while not holds(high):
        high *= 2
    low = high // 2  # fails, or is 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _bound(
    quantity: str,
    value: Value,
    kind: Kind,
    sentence: str,
    statement: sympy.Basic,
    parameters: dict[str, Parameter],
    status: Status | None = None,
) -> Bound:
    return Bound(
        quantity=quantity,
        value=value,
        kind=kind,
        status=status or ("certified" if kind == "exact" else "proved"),
        sentence=sentence,
        statement=statement,
        hypotheses=(
            "d >= 2",
            "two orthonormal points, uniform among such frames, an independent query",
            "two layers; the keys of the first are independent and uniform on the sphere",
        ),
        model=Model(
            task="nearest-neighbor",
            attention="hard",
            values="general",
            readout="sum",
            embeddings="random-frame",
            rank=1,
            context=2,
            layers=2,
        ),
        source=SOURCE,
        parameters=parameters,
    )
