r"""The rank of matrices near the identity: what one head needs for scores that single out a match.

Alon's method [Alon2003, Alon2009] with constants that are proved in docs/related-results.md; the
simplest case, $k = 1$, needs no symmetry.
"""

from __future__ import annotations

from fractions import Fraction
from math import comb

import sympy

from bounds.arithmetic import ceiling, exact_integer, exact_rational
from bounds.bound import Bound
from bounds.errors import ArgumentError
from bounds.model import Model

SOURCE = "[attention-bounds, R2]"

_n, _r, _k = sympy.symbols("n r k", integer=True, positive=True)
_eps = sympy.Symbol("epsilon", nonnegative=True)

STATEMENT = sympy.Ge(sympy.binomial(_r + _k - 1, _k), _n / (1 + (_n - 1) * _eps ** (2 * _k)))


def perturbed_identity_rank(size: int, deviation: object) -> Bound:
    r"""A lower bound for the rank $r$ of a real matrix that is the identity up to $\varepsilon$.

    ``size`` $n$: an $n \times n$ matrix with unit diagonal (not necessarily symmetric) whose other
    entries are at most ``deviation`` $\varepsilon \in [0, 1]$ in size. For every $k \ge 1$,
    $\binom{r+k-1}{k} \ge n/(1+(n-1)\varepsilon^{2k})$; $k = 1$ is
    $r \ge n/(1+(n-1)\varepsilon^2)$. The least $r$ that no $k$ up to $4\log_2 n$ excludes; an exact
    int. One head whose scores are 1 on a permutation and at most $\varepsilon$ in size elsewhere
    has $d_k \ge r$, whatever the embeddings. Sharp at $\varepsilon = 0$, $r = n$, and at
    $\varepsilon = 1$, $r = 1$. Source: [attention-bounds, R2].

    >>> bound = perturbed_identity_rank(1024, "1/10")
    >>> bound.value, bound.parameters["power"]
    (92, 1)
    >>> perturbed_identity_rank(10**12, "1/10").parameters["power"]
    6
    """
    n = exact_integer(size, "size", 1)
    epsilon = exact_rational(deviation, "deviation")
    if not 0 <= epsilon <= 1:
        raise ArgumentError("deviation", deviation, "between 0 and 1")
    value, power = 0, 1
    for k in range(1, 4 * n.bit_length() + 1):
        needed = ceiling(n / (1 + (n - 1) * epsilon ** (2 * k)))
        if comb(value + k - 1, k) < needed:
            value, power = _least_rank(k, needed, value), k
    return Bound(
        quantity="rank",
        value=value,
        kind="lower",
        status="proved" if value > 1 else "vacuous",
        sentence=f"a matrix of size {n} with unit diagonal and other entries at most "
        f"{epsilon} in size has rank at least {{value}}",
        statement=STATEMENT,
        hypotheses=("a real matrix of unit diagonal", f"other entries at most {epsilon} in size"),
        model=Model(
            task="relations", attention="generalized", readout="max-threshold", embeddings="free"
        ),
        source=SOURCE,
        parameters={"size": n, "deviation": Fraction(epsilon), "power": power},
    )


def _least_rank(k: int, needed: int, low: int) -> int:
    """The least r > low with C(r + k - 1, k) >= needed, where low is too small."""
    high = max(2 * low, 1)
    while comb(high + k - 1, k) < needed:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if comb(middle + k - 1, k) >= needed else (middle, high)
    return high
