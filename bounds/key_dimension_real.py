r"""C2: the total key dimension that a family of graphs takes with real weights of any precision.

Counting of sign patterns (:mod:`bounds.sign_patterns`) for the scores as polynomials of the
weights. A head is free in $d_k(2d_{model} - d_k)$ directions only: the proof is in
docs/C2-real-weights.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import comb
from typing import Literal

import sympy
from flint import arb, ctx

from bounds.arithmetic import Ball, certified_ball, certify, exact_integer, precision, to_arb
from bounds.bound import Bound
from bounds.errors import ArgumentError, HypothesisError
from bounds.graph_families import Family, GraphFamily, graph_family, log_binomial_sum
from bounds.key_dimension import family_parameters
from bounds.model import Model
from bounds.sign_patterns import PatternForm, pattern_log2_arb, sign_pattern_bound

RealReadout = Literal["max-threshold", "row-argmax"]

SOURCE = "[attention-bounds, C2]"

_n, _F, _l, _h, _d = sympy.symbols("n F l h d", integer=True, positive=True)
_G = sympy.Symbol("G", positive=True)

_PATTERNS = {
    "sum": 4**_n * sympy.Sum(sympy.binomial(_F + 1, _l) * 2**_l, (_l, 0, _n)),
    "closed": (8 * sympy.E * (_F + 1) / _n) ** _n,
}
_ONE_HEAD = sympy.Sum(sympy.binomial(_F / _h, _l), (_l, 0, _d**2))
STATEMENT = sympy.Le(_G, 2 * _PATTERNS["sum"])
HEADS_STATEMENT = sympy.And(
    sympy.Le(_G, 2 * sympy.Sum(sympy.binomial(_F - 1, _l), (_l, 0, _h * _d**2))),
    sympy.Le(_G, 2 * sympy.binomial(_ONE_HEAD + _h - 1, _h)),
)

_EXACT_UNKNOWNS = 2_000
_LARGEST_BITS = 2048


@dataclass(frozen=True, slots=True)
class _Count:
    """Graphs realised: 2^signs times the sign patterns of F quadratics in n unknowns.

    Or, if that is less, the regions of F hyperplanes in the ``entries`` of the forms W_Q W_K^T of
    all heads, or the unions of one graph from each of ``heads`` heads (by max and threshold).
    """

    unknowns: int
    polynomials: int
    signs: int
    form: PatternForm
    entries: int | None = None
    heads: int | None = None

    @property
    def hyperplanes(self) -> int:
        return self.polynomials - self.signs  # with the threshold they pass through the origin

    def log2_arb(self) -> arb:
        patterns = self.signs + pattern_log2_arb(self.unknowns, self.polynomials, 4, self.form)
        if self.entries is None:
            return patterns
        regions = log_binomial_sum(self.hyperplanes, min(self.entries, self.hyperplanes))
        if self.heads is not None:
            regions = regions.min(_log_unions(*self._one_head(), self.heads))
        return patterns.min(self.signs + regions / arb.const_log2())

    def exact(self) -> int:
        patterns = sign_pattern_bound(self.unknowns, self.polynomials) << self.signs
        if self.entries is None:
            return patterns
        regions = _binomial_sum(self.hyperplanes, min(self.entries, self.hyperplanes))
        if self.heads is not None:
            graphs = _binomial_sum(*self._one_head())
            regions = min(regions, comb(graphs + self.heads - 1, self.heads))
        return min(patterns, regions << self.signs)

    def _one_head(self) -> tuple[int, int]:
        """The pairs of one head, and its entries."""
        assert self.heads is not None
        assert self.entries is not None
        pairs = self.polynomials // self.heads
        return pairs, min(self.entries // self.heads, pairs)


def _binomial_sum(top: int, last: int) -> int:
    total, term = 0, 1
    for power in range(last + 1):
        total += term
        term = term * (top - power) // (power + 1)
    return total


def _log_unions(pairs: int, entries: int, heads: int) -> arb:
    r"""$\ln\binom{A+h-1}h$ with $A = \sum_{l\le n}\binom Fl$: multisets of h graphs out of A."""
    orders = to_arb(heads + 1).lgamma()
    # A >= 2^n, and A >= (F / n)^n
    bits = entries * max(1, (pairs // max(1, entries)).bit_length() - 1)
    if bits > 2 * heads.bit_length() + ctx.prec + 8:
        # A^h <= A (A + 1) ... (A + h - 1) <= (A exp(h / A))^h
        more = arb(0).union(arb(2) ** (2 * heads.bit_length() - bits))
        return heads * log_binomial_sum(pairs, entries) + more - orders
    graphs = _binomial_sum(pairs, entries)  # there are few terms
    with precision(2 * ctx.prec + 8 * (graphs + heads).bit_length()):
        rising = to_arb(graphs + heads).lgamma() - to_arb(graphs).lgamma()
    return rising - orders


def head_freedom(d_model: int, key_dim: int) -> int:
    r"""$d_k(2d_{model} - d_k)$ with $d_k \le d_{model}$: the free entries of one head's $W_QW_K^\top$.

    For generic weights the first $d_k$ rows of $W_Q$ are invertible, and can be made the identity
    without changing a score; a head of $d_k \ge d_{model}$ has any $d_{model} \times d_{model}$
    matrix. Source: [attention-bounds, C2].

    >>> head_freedom(64, 8), head_freedom(64, 64), head_freedom(64, 100)
    (960, 4096, 4096)
    """
    d_model = exact_integer(d_model, "d_model", 1)
    key_dim = min(exact_integer(key_dim, "key_dim", 0), d_model)
    return key_dim * (2 * d_model - key_dim)


def realized_graphs_log2(
    items: int,
    d_model: int,
    key_dim: int,
    *,
    heads: int | None = None,
    readout: RealReadout = "max-threshold",
    biases: bool = False,
    gauge: bool = True,
    form: PatternForm = "sum",
    digits: int = 15,
) -> Ball:
    r"""$\log_2$ of a bound for how many graphs layers of total key dimension $D_K$ can realise.

    The arguments of :func:`key_dimension_real`; ``key_dim`` is $D_K \ge 1$. The count as proved: it
    may exceed the $m^2$ bits of all graphs (row argmax: $m\log_2m$).
    Source: [attention-bounds, C2].
    """
    width, heads = _width(items, d_model, biases, gauge), _heads(heads)
    key_dim = exact_integer(key_dim, "key_dim", 1)
    _check(readout, form)
    count = _count(exact_integer(items, "items", 1), width, key_dim, heads, readout, gauge, form)
    return certified_ball(
        lambda _: count.log2_arb(), exact_integer(digits, "digits", 1), "log2 of realised graphs"
    )


def key_dimension_real(
    items: int,
    d_model: int,
    *,
    family: Family | GraphFamily = "permutation",
    relations: int | None = None,
    degree: int | None = None,
    edges: Iterable[tuple[int, int]] | None = None,
    heads: int | None = None,
    readout: RealReadout = "max-threshold",
    biases: bool = False,
    gauge: bool = True,
    form: PatternForm = "sum",
) -> Bound:
    r"""The least $D_K$ with which real weights could realise every graph of a family.

    The realised graphs are at most $2\cdot4^n\sum_{l\le n}\binom{F+1}l2^l$ with $F = hm^2$
    scores and $n = \sum_kd_k(2d - d_k)$ free weights, $d = \min(d_{model}, m)$; the best split of
    $D_K$ over ``heads`` $h$ (at most so many; ``None``: any number) is taken. The threshold may
    depend on the graph. Nor are there more than $2\sum_{l\le hd^2}\binom{F-1}l$, however large the
    $d_k$, nor than $2\binom{A+h-1}h$ with $A = \sum_{l\le d^2}\binom{m^2}l$ (unions of one
    graph a head): the smallest count is taken. ``biases``: one more coordinate. ``readout``
    ``"row-argmax"`` (graphs of one successor each): $F = 2m\binom{hm}2$ comparisons and no factor
    2 in front (nor the $-1$). ``gauge=False``: the plain count of
    $2d_{model}D_K + 1$ unknowns; ``form="closed"``: $(8e(F+1)/n)^n$. Exact int; a
    :class:`~bounds.errors.HypothesisError` where no $D_K$ is enough for so few heads.
    Source: [attention-bounds, C2].

    >>> key_dimension_real(16384, 512).value
    9
    """
    graphs = graph_family(items, family, relations, degree=degree, edges=edges)
    width, heads = _width(items, d_model, biases, gauge), _heads(heads)
    _check(readout, form)
    if readout == "row-argmax" and graphs.name not in ("permutation", "functional"):
        raise HypothesisError("C2 by row argmax", "one successor for each item", f"a {graphs}")

    def suffices(key_dim: int) -> bool:
        return _suffices(graphs, _count(graphs.items, width, key_dim, heads, readout, gauge, form))

    value = 0 if graphs.is_single else least_integer(suffices, _most(heads, width, gauge))
    if value is None:
        needed = "enough heads for the family"
        if readout == "max-threshold":
            least = least_heads(items, d_model, family=graphs, biases=biases)
            needed += f", at least {least.value_text()}"
        raise HypothesisError(
            "C2 as a bound on the key dimension",
            needed,
            f"with {_heads_text(heads)} of any size fewer graphs are realised than there are",
        )
    return Bound(
        quantity="key dimension",
        value=value,
        kind="lower",
        status="proved" if value > 0 else "vacuous",
        sentence=f"realizing every {graphs} with real weights and d_model = {d_model} takes a "
        "total key dimension of at least {value}",
        statement=_statement(readout, gauge, form),
        hypotheses=(
            "embeddings and head sizes fixed in advance, "
            + ("any number of heads" if heads is None else f"at most {_heads_text(heads)}")
            + ("" if readout == "row-argmax" else "; the threshold may depend on the graph"),
            "real weights of any precision; " + ("biases" if biases else "no biases"),
        ),
        model=Model(task="relations", attention="generalized", readout=readout, embeddings="fixed"),
        source=SOURCE,
        parameters=family_parameters(graphs)
        | {"d_model": int(d_model), "heads": heads, "biases": int(biases)},
    )


def least_heads(
    items: int,
    d_model: int,
    *,
    family: Family | GraphFamily = "permutation",
    relations: int | None = None,
    degree: int | None = None,
    edges: Iterable[tuple[int, int]] | None = None,
    biases: bool = False,
) -> Bound:
    r"""The least number of heads, of any key dimension, that could realise every graph of a family.

    $G \le 2\sum_{l\le hd^2}\binom{hm^2-1}l$ and $G \le 2\binom{A+h-1}h$, $A =
    \sum_{l\le d^2}\binom{m^2}l$, with $d = \min(d_{model}, m)$: the scores are linear in the entries of
    the $W_QW_K^\top$, and a graph is the union of one a head. Real weights, readout by max and
    threshold. Exact int.
    Source: [attention-bounds, C2].

    >>> least_heads(1024, 64).value, least_heads(1024, 8).value
    (1, 9)
    """
    graphs = graph_family(items, family, relations, degree=degree, edges=edges)
    width = _width(items, d_model, biases, True)

    def suffices(heads: int) -> bool:
        total, readout = heads * width, "max-threshold"
        return _suffices(graphs, _count(graphs.items, width, total, heads, readout, True, "sum"))

    value = 0 if graphs.is_single else least_integer(suffices, None)
    return Bound(
        quantity="heads",
        value=value or 0,
        kind="lower",
        status="proved" if value and value > 1 else "vacuous",
        sentence=f"realizing every {graphs} with real weights and d_model = {d_model} takes at "
        "least {value} heads, of any size",
        statement=HEADS_STATEMENT,
        hypotheses=(
            "embeddings fixed in advance; head sizes and threshold may depend on the graph",
            "real weights of any precision; " + ("biases" if biases else "no biases"),
        ),
        model=Model(
            task="relations", attention="generalized", readout="max-threshold", embeddings="fixed"
        ),
        source=SOURCE,
        parameters=family_parameters(graphs) | {"d_model": int(d_model), "biases": int(biases)},
    )


def least_integer(suffices: Callable[[int], bool], most: int | None) -> int | None:
    """The least D >= 1 with a monotone property; ``None`` when not even ``most`` has it."""
    high = 1
    while not suffices(high):
        if most is not None and high >= most:
            return None
        high *= 2
        if high.bit_length() > _LARGEST_BITS:
            raise HypothesisError(
                "the search for the least integer",
                f"one of at most {_LARGEST_BITS} bits",
                "it is larger for so many items",
            )
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def _statement(readout: str, gauge: bool, form: PatternForm) -> sympy.Basic:
    signs = 1 if gauge and readout == "max-threshold" else 0
    patterns = sympy.Le(_G, 2**signs * _PATTERNS[form])
    if not gauge or form == "closed":
        return patterns
    if signs:
        return sympy.And(patterns, HEADS_STATEMENT)
    return sympy.And(patterns, sympy.Le(_G, sympy.Sum(sympy.binomial(_F, _l), (_l, 0, _h * _d**2))))


def _suffices(graphs: GraphFamily, count: _Count) -> bool:
    def attempt(_: int) -> bool | None:
        have, need = count.log2_arb(), graphs.log2_arb()
        return True if have > need else False if have < need else None

    if count.form == "sum" and max(count.unknowns, count.entries or 0) <= _EXACT_UNKNOWNS:
        near = graphs.log2_near()
        if near < 1 << 14:
            return graphs.size() <= count.exact()
    return certify(attempt, "the least key dimension", limit=1 << 16)


def _count(
    m: int, width: int, key_dim: int, heads: int | None, readout: str, gauge: bool,
    form: PatternForm,
) -> _Count:  # fmt: skip
    """The largest count over the ways to split D_K over at most so many heads."""
    used = key_dim if heads is None else min(heads, key_dim)
    size, larger = divmod(key_dim, used)  # an even split leaves the most freedom
    if gauge:
        unknowns = larger * head_freedom(width, size + 1)
        unknowns += (used - larger) * head_freedom(width, size)
    else:
        unknowns = 2 * width * key_dim + 1
    polynomials = used * m * m if readout == "max-threshold" else 2 * m * comb(used * m, 2)
    if form == "closed":
        unknowns = min(unknowns, polynomials + 1)
    signs = 1 if gauge and readout == "max-threshold" else 0
    entries = used * width**2 if gauge and form == "sum" else None
    unions = used if signs and entries is not None else None
    return _Count(unknowns, max(1, polynomials), signs, form, entries, unions)


def _most(heads: int | None, width: int, gauge: bool) -> int | None:
    return None if heads is None or not gauge else heads * width


def _width(items: object, d_model: object, biases: bool, gauge: bool) -> int:
    if not isinstance(biases, bool):
        raise ArgumentError("biases", biases, "True or False")
    width = exact_integer(d_model, "d_model", 1) + biases
    # embeddings of m items span at most m dimensions
    return min(width, exact_integer(items, "items", 1)) if gauge else width


def _heads_text(heads: int | None) -> str:
    return "1 head" if heads == 1 else f"{heads} heads"


def _heads(heads: object) -> int | None:
    return None if heads is None else exact_integer(heads, "heads", 1)


def _check(readout: object, form: object) -> None:
    if readout not in ("max-threshold", "row-argmax"):
        raise HypothesisError(
            "C2", "readout 'max-threshold' or 'row-argmax'", f"readout = {readout!r}"
        )
    if form not in ("sum", "closed"):
        raise ArgumentError("form", form, "'sum' or 'closed'")
