r"""Families of graphs on $m$ items and their sizes $G$: exact integers, or proved lower bounds.

What a key-query channel must be able to tell apart; :func:`bounds.key_dimension_bits` turns
$\log_2 G$ into a key dimension. The counts are proved in docs/graph-families.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import comb, factorial, perm
from typing import Literal

import sympy
from flint import arb, ctx, fmpz

from bounds.arithmetic import (
    PRECISION_LIMIT,
    Ball,
    certified_ball,
    certify,
    exact_integer,
    precision,
    to_arb,
)
from bounds.automorphisms import automorphism_parts
from bounds.bound import count_text
from bounds.errors import ArgumentError

Family = Literal[
    "permutation", "functional", "digraph", "regular", "out-regular", "out-degree", "relabelings"
]

_m, _edges, _d, _k = sympy.symbols("m m' d k", integer=True, positive=True)
_aut = sympy.Symbol("|Aut|", integer=True, positive=True)
_regular = sympy.Function("R")

FAMILY_SIZE = {
    "permutation": sympy.factorial(_m),
    "functional": _m**_m,
    "digraph": sympy.binomial(_m**2, _edges),
    "regular": _regular(_m, _d),
    "out-regular": sympy.binomial(_m, _d) ** _m,
    "out-degree": sympy.Sum(sympy.binomial(_m, _k), (_k, 0, _d)) ** _m,
    "relabelings": sympy.factorial(_m) / _aut,
}
"""The number of graphs in each family, as sympy expressions in m, m', d and the automorphisms."""

_EXACT_STATES = 1_000_000
_TERMS = 100_000
_RELABELED_ITEMS = 1_000_000


@dataclass(frozen=True, slots=True)
class GraphFamily:
    r"""A set of directed graphs on ``items`` $m$ vertices, self-loops allowed.

    Made by :func:`graph_family`. ``relations``: the edges of every graph, where the name does not
    say it (digraphs and relabellings), else ``None``. ``degree`` $d$ of regular, out-regular and
    out-degree graphs. Relabellings: the graph (or its complement) has ``isolated`` vertices
    without edges, and the rest of it has ``automorphisms`` of them (or at most so many).
    ``columns``: some graph of the family has this many distinct in-neighbourhoods (or
    out-neighbourhoods). ``exact``: the size is $G$ itself, not a lower bound for it.
    """

    name: Family
    items: int
    relations: int | None = None
    degree: int | None = None
    automorphisms: int | None = None
    isolated: int = 0
    columns: int = 1
    exact: bool = True

    @property
    def edge_count(self) -> int | None:
        """The number of edges that all graphs of the family have, ``None`` when it varies."""
        if self.name == "out-degree":
            return None
        if self.name in ("permutation", "functional"):
            return self.items
        return self.relations if self.degree is None else self.items * self.degree

    @property
    def is_single(self) -> bool:
        """Whether there is only one graph (as far as the counts say)."""
        if self.automorphisms is not None:
            with precision(128):
                surely_more = self._log_relabelings() > 1
            return not surely_more and self.size() == 1
        if self.degree is not None:
            full = (0,) if self.name == "out-degree" else (0, self.items)
            return self.degree in full
        return (self.name != "digraph" and self.items == 1) or self.relations in (0, self.items**2)

    def size(self) -> int:
        """$G$ as an integer, or the proved lower bound where ``exact`` is ``False``."""
        m, d = self.items, self.degree or 0
        if self.name == "permutation":
            return factorial(m)
        if self.name == "functional":
            return int(m**m)
        if self.name == "digraph":
            return comb(m * m, self.relations or 0)
        if self.name == "relabelings":
            return -(-perm(m, m - self.isolated) // (self.automorphisms or 1))
        if self.name == "out-regular":
            return int(comb(m, d) ** m)
        if self.name == "out-degree":
            return int(sum(comb(m, k) for k in range(d + 1)) ** m)
        return _regular_count(m, d) if self.exact else _regular_floor(m, d)

    def log2_integer(self) -> int | None:
        """$\\log_2 G$ where it is seen to be an integer, else ``None``."""
        if self.is_single:
            return 0
        base = {
            "functional": self.items,
            "out-regular": self.items if self.degree in (1, self.items - 1) else 0,
            "out-degree": 2**self.items if self.degree == self.items < 1 << 20 else 0,
        }.get(self.name, 0)
        return self.items * (base.bit_length() - 1) if base and not base & (base - 1) else None

    def log2_arb(self) -> arb:
        """$\\log_2$ of :meth:`size`, at the precision in force."""
        return self._log() / arb.const_log2()

    def log2_near(self) -> arb:
        """$\\log_2$ of :meth:`size` to within 1: how long an integer it is."""

        def attempt(_: int) -> arb | None:
            value = self.log2_arb()
            return value if value.is_finite() and value.rad() < 1 else None

        limit = max(PRECISION_LIMIT, 8 * self.items.bit_length())
        return certify(attempt, "log2 of the family", limit=limit)

    def _log(self) -> arb:
        m, d = to_arb(self.items), self.degree or 0
        if self.is_single:
            return arb(0)
        if self.name == "permutation":
            return (m + 1).lgamma()
        if self.name == "functional":
            return m * m.log()
        if self.name == "digraph":
            return log_binomial(self.items**2, self.relations or 0)
        if self.name == "relabelings":
            return self._log_relabelings()
        if self.name == "out-regular":
            return m * log_binomial(self.items, d)
        if self.name == "out-degree":
            return m * log_binomial_sum(self.items, d)
        if d in (1, self.items - 1):
            return (m + 1).lgamma()
        if self.exact:
            return to_arb(_regular_count(self.items, d)).log()
        return (2 * m - 1) * log_binomial(self.items, d) + (m - 1) * _log_spread(self.items, d)

    def _log_relabelings(self) -> arb:
        others = to_arb(self.automorphisms or 1).log()
        return (to_arb(self.items) + 1).lgamma() - (to_arb(self.isolated) + 1).lgamma() - others

    def __str__(self) -> str:
        items = f"on {count_text(self.items)} items"
        if self.name == "digraph":
            return f"directed graph with {count_text(self.relations or 0)} relations {items}"
        if self.name == "relabelings":
            return f"relabeling of a graph with {count_text(self.relations or 0)} relations {items}"
        if self.name in ("permutation", "functional"):
            return f"{self.name} graph {items}"
        degree = count_text(self.degree or 0)
        return {
            "regular": f"directed graph of in- and out-degree {degree} {items}",
            "out-regular": f"directed graph of out-degree {degree} {items}",
            "out-degree": f"directed graph of out-degree at most {degree} {items}",
        }[self.name]


def graph_family(
    items: int,
    family: Family | GraphFamily = "permutation",
    relations: int | None = None,
    *,
    degree: int | None = None,
    edges: Iterable[tuple[int, int]] | None = None,
) -> GraphFamily:
    r"""A family of graphs on ``items`` $m$ vertices, by name; a given one is passed through.

    ``"permutation"``, ``"functional"`` (one successor each), ``"digraph"`` with ``relations`` $m'$
    edges, ``"regular"`` (in- and out-degree ``degree`` $d$), ``"out-regular"`` ($d$ successors
    each), ``"out-degree"`` (at most $d$ successors each), ``"relabelings"`` of the graph
    ``edges``: $m!/|\mathrm{Aut}|$ of them, $m \le 10^6$. Source: [attention-bounds, C1].

    >>> graph_family(4, "regular", degree=2).size()
    90
    >>> graph_family(4, "relabelings", edges=[(0, 1), (1, 2), (2, 3), (3, 0)]).size()
    6
    """
    m = exact_integer(items, "items", 1)
    if isinstance(family, GraphFamily):
        if family.items != m:
            raise ArgumentError("items", items, f"{family.items}, as in the family")
        _refuse(family.name, relations=relations, degree=degree, edges=edges)
        return family
    if not isinstance(family, str) or family not in FAMILY_SIZE:
        raise ArgumentError("family", family, f"one of {tuple(FAMILY_SIZE)}")
    if family == "digraph":
        _refuse(family, degree=degree, edges=edges)
        if relations is None:
            raise ArgumentError("relations", None, "given for the family 'digraph'")
        count = exact_integer(relations, "relations", 0, m * m)
        return GraphFamily(family, m, relations=count, columns=_most_columns(m, count))
    if family in ("permutation", "functional"):
        _refuse(family, degree=degree, edges=edges)
        if relations is not None and exact_integer(relations, "relations", 0) != m:
            raise ArgumentError("relations", relations, f"absent or {m} for the family {family!r}")
        return GraphFamily(family, m, columns=m)
    if family == "relabelings":
        _refuse(family, relations=relations, degree=degree)
        return _relabelings(m, edges)
    _refuse(family, relations=relations, edges=edges)
    if degree is None:
        raise ArgumentError("degree", None, f"given for the family {family!r}")
    d = exact_integer(degree, "degree", 0, m)
    columns = 1 if d == 0 or (d == m and family != "out-degree") else m
    exact = family != "regular" or d in (0, 1, m - 1, m) or _states(m, d) <= _EXACT_STATES
    return GraphFamily(family, m, degree=d, columns=columns, exact=exact)


def family_log2(
    items: int,
    family: Family | GraphFamily = "permutation",
    relations: int | None = None,
    *,
    degree: int | None = None,
    edges: Iterable[tuple[int, int]] | None = None,
    digits: int = 15,
) -> Ball:
    r"""$\log_2 G$ of a family of graphs on ``items`` $m$ vertices, as a certified ball.

    The families of :func:`graph_family`. Any size: large ones by log-Gamma. Large regular
    families, and relabellings of graphs whose automorphisms are only bounded, have a lower bound
    for $G$ in its place (``GraphFamily.exact`` says so). Source: [attention-bounds, C1].

    >>> family_log2(256).decimal(6)
    '1684.00'
    """
    graphs = graph_family(items, family, relations, degree=degree, edges=edges)
    digits = exact_integer(digits, "digits", 1)
    if graphs.is_single:
        return Ball.of(0)
    return certified_ball(lambda _: graphs.log2_arb(), digits, "log2 of the family")


def _refuse(family: str, **arguments: object) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise ArgumentError(name, value, f"absent for the family {family!r}")


def _relabelings(m: int, edges: Iterable[tuple[int, int]] | None) -> GraphFamily:
    if edges is None:
        raise ArgumentError("edges", None, "given for the family 'relabelings'")
    if m > _RELABELED_ITEMS:
        raise ArgumentError("items", m, f"at most {_RELABELED_ITEMS} for relabelings")
    if not isinstance(edges, Iterable):
        raise ArgumentError("edges", edges, "pairs (source, target)")
    pairs: set[tuple[int, int]] = set()
    for edge in edges:
        try:
            source, target = edge
        except (TypeError, ValueError):
            raise ArgumentError("edges", edge, "pairs (source, target)") from None
        plain = type(source) is int and type(target) is int  # the rule, and then quick to check
        if not (plain and 0 <= source < m and 0 <= target < m):
            source = exact_integer(source, "edges", 0, m - 1)
            target = exact_integer(target, "edges", 0, m - 1)
        pairs.add((source, target))
    isolated, count, exact = automorphism_parts(m, pairs)
    return GraphFamily(
        "relabelings",
        m,
        relations=len(pairs),
        automorphisms=count,
        isolated=isolated,
        columns=most_neighborhoods(m, pairs),
        exact=exact,
    )


def most_neighborhoods(m: int, pairs: set[tuple[int, int]]) -> int:
    """The number of distinct in-neighbourhoods or of out-neighbourhoods, whichever is larger."""
    turned = {(target, source) for source, target in pairs}
    return max(distinct_neighborhoods(m, pairs), distinct_neighborhoods(m, turned))


def distinct_neighborhoods(m: int, pairs: set[tuple[int, int]]) -> int:
    """The number of distinct in-neighbourhoods of a graph, the empty one included where it occurs."""
    sources: dict[int, list[int]] = defaultdict(list)
    for source, target in pairs:
        sources[target].append(source)
    return len({tuple(sorted(near)) for near in sources.values()}) + (len(sources) < m)


def _most_columns(m: int, relations: int) -> int:
    """The most distinct in-neighbourhoods that a graph with so many edges is sure to allow.

    Loops at m' vertices: m' + 1 of them while m' < m. From m to m (m - 1) edges: the cyclic
    intervals that end at each vertex, of two consecutive lengths. Beyond: complements.
    """
    fewer = min(relations, m * m - relations)
    return min(m, fewer + 1)


def _states(m: int, d: int) -> int:
    smaller = min(d, m - d)
    # a lower bound is enough to see that a count is out of reach
    if smaller > 40 or (smaller > 1 and m > 10_000):
        return _EXACT_STATES + 1
    return comb(m + smaller, smaller) * comb(2 * smaller, smaller)


@lru_cache(maxsize=64)
def _regular_count(m: int, d: int) -> int:
    """The 0-1 matrices with all row and column sums d, row by row over what each column lacks."""
    d = min(d, m - d)  # complements
    lacking = Counter({(0,) * d + (m,): 1})  # how many columns lack 0, 1, ..., d ones
    for _ in range(m):
        after: Counter[tuple[int, ...]] = Counter()
        for columns, ways in lacking.items():
            for chosen, choices in _choices(columns, d):
                after[chosen] += ways * choices
        lacking = after
    return lacking[(m,) + (0,) * d]


def _choices(columns: tuple[int, ...], ones: int) -> Iterable[tuple[tuple[int, ...], int]]:
    """Ways to put a row's ones into columns that lack some, from the neediest columns down."""
    stack = [(len(columns) - 1, ones, columns, 1)]
    while stack:
        level, left, now, ways = stack.pop()
        if level == 0:
            if left == 0:
                yield now, ways
            continue
        free = columns[level]
        for taken in range(min(free, left) + 1):
            changed = list(now)
            changed[level] -= taken
            changed[level - 1] += taken
            stack.append((level - 1, left - taken, tuple(changed), ways * comb(free, taken)))


def _regular_floor(m: int, d: int) -> int:
    r"""$\lceil \binom md^{2m-1} (d^d(m-d)^{m-d}/m^m)^{m-1} \rceil$, a lower bound for their number."""
    spread = fmpz(d) ** d * fmpz(m - d) ** (m - d)
    top = fmpz(comb(m, d)) ** (2 * m - 1) * spread ** (m - 1)
    return int(-(-top // fmpz(m) ** (m * (m - 1))))


def _log_spread(m: int, d: int) -> arb:
    """log of d^d (m-d)^(m-d) / m^m, for 0 < d < m."""
    whole, part, rest = to_arb(m), to_arb(d), to_arb(m - d)
    return part * part.log() + rest * rest.log() - whole * whole.log()


def log_binomial(top: int, bottom: int) -> arb:
    r"""$\ln\binom nk$ at the precision in force."""
    n, k = to_arb(top), to_arb(bottom)
    return (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma()


def log_binomial_sum(m: int, d: int) -> arb:
    r"""$\ln\sum_{k\le d}\binom mk$ at the precision in force: falling ratios, so a geometric rest."""
    if d == m:
        return to_arb(m) * arb.const_log2()
    top = min(d, m // 2)  # the terms above the middle are counted as differences from 2^m
    if top < d:
        rest = (log_binomial_sum(m, m - d - 1) - to_arb(m) * arb.const_log2()).exp()
        return to_arb(m) * arb.const_log2() + (1 - rest).log()
    return log_binomial(m, d) + _falling_sum(m, d).log()


def _falling_sum(m: int, d: int) -> arb:
    """The sum of C(m, k) / C(m, d) over k <= d, for 2 d <= m, as a ball."""
    term, total = arb(1), arb(1)
    for step in range(min(d, _TERMS)):
        k = d - step
        ratio = to_arb(Fraction(k, m - k + 1))  # < 1, and smaller from here on
        term = term * ratio
        total = total + term
        if term * ratio / (1 - ratio) < arb(2) ** -ctx.prec * total:
            break
    else:
        if d <= _TERMS:
            return total
    rest = term * ratio / (1 - ratio)
    return total.union(total + rest)
