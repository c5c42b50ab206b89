r"""Reading the identities of neighbours from the sum of their embeddings by a linear threshold.

Items $x_1,\dots,x_m \in \mathbb R^d$ are *read* by vectors $r_1,\dots,r_m$ and a threshold $\theta$:
from the sum $g$ of the embeddings of a set $S$, item $j$ is named when
$\langle g, r_j\rangle > \theta$. The readout is right on $S$ when it names exactly $S$. Here: the
dimension that sets of at most $D$ items need, whatever the embeddings and the readout
(:func:`readout_dimension`), and the $D$ that random unit embeddings, read by themselves, allow
(:func:`random_readout_degree`). Proofs are in docs/C6-identities.md; the weights are
:mod:`constructions.identity_readout`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from math import comb
from typing import Literal

import sympy
from flint import arb

from bounds.arithmetic import ceiling, exact_integer, exact_rational, precision, to_arb
from bounds.bound import Bound
from bounds.errors import ArgumentError
from bounds.model import Model

Sets = Literal["any", "graph"]

SOURCE = "[attention-bounds, C6]"

_m, _d, _D, _k = sympy.symbols("m d D k", integer=True, positive=True)
_delta = sympy.Symbol("delta", positive=True)
_eta = sympy.Symbol("eta", nonnegative=True)

_t = (1 - 2 * _eta) / (2 * _D - 1)
DIMENSION_STATEMENT = sympy.Gt(_d, _m * (_D - 1) ** 2 / (_m - 1 + (_D - 1) ** 2))
ANY_SET_STATEMENT = sympy.Le(
    sympy.binomial(_m, 2) * (1 - _t**2) ** ((_d - 1) / sympy.Integer(2)), _delta
)
GRAPH_STATEMENT = sympy.Ge(
    (sympy.Rational(1, 2) - _eta) ** 2 * _d / (2 * _D),
    sympy.log(_m**2 / _delta) + sympy.log(_k),
)
"""For a graph: k contexts, or k = 2^D for all of them at once."""


def readout_dimension(items: int, degree: int) -> Bound:
    r"""A lower bound for $d$ when every set of at most ``degree`` $D$ of ``items`` $m$ is read.

    The best of five, each an exact integer: $d \ge \min(D, m)$ (regions of an arrangement of
    hyperplanes); $d \ge 2$ for $m \ge 3$ (extreme points); and for $2 \le D < m$
    $d > m(D-1)^2/(m-1+(D-1)^2)$ (projection on the dependencies),
    $((2D+1)/(D-1))^d \ge m$ (packing), and
    $\binom{d+k-1}k \ge m/(1+\max(1,(m-1)/(D-1)^{2k}))$ for all $k$ (rank of Hadamard powers).
    ``parameters["winner"]`` says which. Sharp for $D \ge m$, for $m = D+1$ (the simplex), and for
    $D = 1$ (the circle). Source: [attention-bounds, C6].

    >>> bound = readout_dimension(1000, 10)
    >>> bound.value, bound.parameters["winner"]
    (76, 'projection')
    >>> [readout_dimension(m, 4).value for m in (3, 4, 5, 6)]
    [3, 4, 4, 4]
    """
    m = exact_integer(items, "items", 1, 2**62)
    d = exact_integer(degree, "degree", 1)
    found = {"regions": min(d, m), "extreme points": 2 if m >= 3 else 1}
    if 2 <= d < m:
        square = (d - 1) ** 2
        found["projection"] = m * square // (m - 1 + square) + 1
        found["packing"] = _packing(m, d)
        found["powers"] = _powers(m, square)
    winner = max(found, key=lambda name: found[name])
    return Bound(
        quantity="model dimension",
        value=found[winner],
        kind="lower",
        status="proved" if found[winner] > 1 else "vacuous",
        sentence=f"a linear threshold readout that names every set of at most {d} of {m} items from "
        "the sum of their embeddings needs d_model >= {value}",
        statement=DIMENSION_STATEMENT,
        hypotheses=("real embeddings and readout vectors, one threshold",),
        model=_model("free"),
        source=SOURCE,
        parameters={"items": m, "degree": d, "winner": winner},
    )


def _packing(m: int, degree: int) -> int:
    """The least d with ((2D+1)/(D-1))^d >= m."""
    ratio, power, d = Fraction(2 * degree + 1, degree - 1), Fraction(1), 0
    while power < m:
        power, d = power * ratio, d + 1
    return d


def _powers(m: int, square: int) -> int:
    """The largest d that some power k forces; ``square`` is (D-1)^2."""
    best = 1
    for k in range(1, 2 * m.bit_length() + 1):
        needed = ceiling(m / (1 + max(Fraction(1), Fraction(m - 1, square**k))))
        dimensions = range(m + 1)
        best = max(best, bisect_left(dimensions, needed, key=partial(_monomials, k)))
    return best


def _monomials(degree: int, variables: int) -> int:
    """How many monomials of one degree there are."""
    return comb(variables + degree - 1, degree)


def random_readout_degree(
    items: int,
    d_model: int,
    delta: int | float | str | Fraction,
    *,
    sets: Sets = "any",
    contexts: int | None = None,
    deviation: int | float | str | Fraction = 0,
) -> Bound:
    r"""The largest degree $D$ proved for ``items`` $m$ random unit embeddings read by themselves.

    Embeddings are independent and uniform on the sphere of $\mathbb R^d$, $d$ = ``d_model`` $\ge 2$,
    and $r_j = x_j$; with probability at least $1-$ ``delta`` every sum of at most $D$ embeddings is
    read right even when coordinates $\langle g, r_j\rangle$ are off by less than ``deviation``
    $\eta < 1/2$. ``sets="any"``: all sets of at most $D$ items at once,
    $\binom m2(1-t^2)^{(d-1)/2} \le \delta$ with $t = (1-2\eta)/(2D-1)$. ``sets="graph"``: the
    neighbours in a graph of out-degree at most $D$ that is fixed before the embeddings are drawn,
    $\theta = 1/2$, $(1/2-\eta)^2d/(2D) \ge \ln(m^2/\delta)+\ln k$, in ``contexts`` $k$ contexts, or,
    for ``None``, in all of them, $k = 2^D$ (or as for any set, where that allows more). So $D$
    grows like $\sqrt{d/\ln m}$, like $d/\ln m$, and like $\min(\sqrt d, d/\ln m)$.
    Source: [attention-bounds, C6].

    >>> [random_readout_degree(1000, 4096, "1/100", sets=s, contexts=c).value
    ...  for s, c in (("any", None), ("graph", 1), ("graph", None))]
    [5, 27, 16]
    """
    m, d = exact_integer(items, "items", 2), exact_integer(d_model, "d_model", 2)
    failure, eta = exact_rational(delta, "delta"), exact_rational(deviation, "deviation")
    if not 0 < failure < 1:
        raise ArgumentError("delta", delta, "between 0 and 1")
    if not 0 <= eta < Fraction(1, 2):
        raise ArgumentError("deviation", deviation, "at least 0 and below 1/2")
    if sets not in ("any", "graph"):
        raise ArgumentError("sets", sets, "'any' or 'graph'")
    if contexts is not None:
        contexts = exact_integer(contexts, "contexts", 1)
        if sets == "any":
            raise ArgumentError("contexts", contexts, "absent for any set of items")

    def any_set(degree: int) -> bool:
        t = (1 - 2 * eta) / (2 * degree - 1)
        if t == 1:
            return True  # distinct embeddings are enough, and they are distinct
        log = to_arb(Fraction(m * (m - 1), 2) / failure).log()
        return bool(log + to_arb(1 - t * t).log() * (d - 1) / 2 <= 0)

    def graph(degree: int) -> bool:
        log = to_arb(m * m / failure).log()
        log += arb.const_log2() * degree if contexts is None else to_arb(contexts).log()
        return bool(to_arb((Fraction(1, 2) - eta) ** 2 * d / (2 * degree)) >= log)

    value = _largest(any_set if sets == "any" else lambda n: graph(n) or any_set(n), m)
    scope = {
        "any": "every set of at most {value} items",
        "graph": "the neighbors in a graph of out-degree at most {value}, "
        + ("in all contexts" if contexts is None else f"in {contexts} contexts"),
    }[sets]
    return Bound(
        quantity="degree",
        value=value,
        kind="lower",
        status="proved" if value else "vacuous",
        sentence=f"{m} random unit embeddings in {d} dimensions, read by themselves, name {scope}, "
        f"with probability at least 1 - {failure}",
        statement=ANY_SET_STATEMENT if sets == "any" else GRAPH_STATEMENT,
        hypotheses=(
            "independent uniform unit embeddings",
            "any set" if sets == "any" else "the graph and the contexts are fixed before them",
            f"coordinates are off by less than {eta}" if eta else "exact sums",
        ),
        model=_model("random-sphere"),
        source=SOURCE,
        parameters={
            "items": m, "d_model": d, "delta": failure, "sets": sets,
            "contexts": contexts, "deviation": eta,
        },
    )  # fmt: skip


def _largest(holds: Callable[[int], bool], limit: int) -> int:
    """The largest D <= limit for which a falling property certainly holds, or 0."""
    low, high = 0, limit + 1
    with precision(128 + 4 * limit.bit_length()):  # 1 - t^2 at t near 1/(2 D)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _model(embeddings: Literal["free", "random-sphere"]) -> Model:
    return Model(task="relations", attention="generalized", readout="sum", embeddings=embeddings)
