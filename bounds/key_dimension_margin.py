r"""C3: the total key dimension that a margin costs, with weights or keys of bounded norm.

A layer realises a graph with margin $\gamma$ when its relations have a largest score of at least
$\tau + \gamma$ and all other pairs at most $\tau - \gamma$. Volume arguments; the proofs are in
docs/C3-margins.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

import sympy
from flint import arb

from bounds.arithmetic import (
    certify,
    exact_integer,
    exact_rational,
    precision,
    rational_text,
    to_arb,
)
from bounds.bound import Bound, Parameter
from bounds.errors import ArgumentError, HypothesisError
from bounds.graph_families import Family, GraphFamily, graph_family
from bounds.key_dimension import family_parameters
from bounds.key_dimension_real import least_integer
from bounds.model import Model

SOURCE = "[attention-bounds, C3]"

_D, _dm, _c = sympy.symbols("D_K d_model c", integer=True, positive=True)
_G, _B, _R, _gamma = sympy.symbols("G B R gamma", positive=True)

STATEMENT = sympy.Ge(
    2 * _dm * _D * sympy.log(1 + 2 * _B**2 / _gamma) / sympy.log(2), sympy.log(_G) / sympy.log(2)
)
PACKING_STATEMENT = sympy.Ge(_D, sympy.log(_c) / sympy.log(1 + _R**2 / _gamma))

_EXACT_BITS = 1 << 16


def key_dimension_margin(
    items: int,
    d_model: int,
    margin: object,
    weight_norm: object,
    *,
    family: Family | GraphFamily = "permutation",
    relations: int | None = None,
    degree: int | None = None,
    edges: Iterable[tuple[int, int]] | None = None,
    biases: bool = False,
) -> Bound:
    r"""The least $D_K$ with which every graph of a family can be realised with a margin.

    $2\,d\,D_K\log_2(1 + 2B^2/\gamma) \ge \log_2 G$ for unit embeddings and
    $\|W_Q^k\|_F, \|W_K^k\|_F \le B$, $d = \min(d_{model}, m)$; with ``biases`` (a row of the
    weights: their norms count) $d_{model} + 1$ and $4B^2$ in place of $2B^2$. Any number of heads
    fixed in advance; the threshold may depend on the graph. ``margin`` $\gamma$ and
    ``weight_norm`` $B$: positive rationals. For graphs of out-degree at most $d$ those of one
    out-degree are counted. Exact int. Source: [attention-bounds, C3].

    >>> key_dimension_margin(1024, 64, "1/10", 2).value
    11
    """
    graphs = graph_family(items, family, relations, degree=degree, edges=edges)
    gamma, norm = _positive(margin, "margin"), _positive(weight_norm, "weight_norm")
    shown, longest = rational_text(gamma), rational_text(norm)
    if not isinstance(biases, bool):
        raise ArgumentError("biases", biases, "True or False")
    counted = _one_edge_count(graphs)
    square = norm**2 * (1 + biases)  # bounds the scores
    _check_margin(graphs, gamma, square)
    width = min(exact_integer(d_model, "d_model", 1) + biases, graphs.items)
    value = 0 if counted.is_single else _least(counted, 1 + 2 * square / gamma, 2 * width)
    return _bound(
        graphs,
        value,
        f"with margin {shown} and weights of norm at most {longest}, d_model = {d_model},",
        STATEMENT,
        (
            "unit embeddings fixed in advance; head sizes fixed in advance",
            f"Frobenius norms of W_Q and W_K of each head at most {longest}"
            + (", biases included" if biases else "; no biases"),
            f"relations score at least tau + {shown}, other pairs at most tau - {shown}",
        ),
        {"d_model": int(d_model), "margin": gamma, "weight_norm": norm, "biases": int(biases)},
    )


def key_dimension_packing(
    items: int,
    margin: object,
    key_norm: object = 1,
    *,
    family: Family | GraphFamily = "permutation",
    relations: int | None = None,
    degree: int | None = None,
    edges: Iterable[tuple[int, int]] | None = None,
) -> Bound:
    r"""$D_K \ge \ln c/\ln(1 + R^2/\gamma)$: distinct neighbourhoods need keys that lie apart.

    For one graph with $c$ distinct in-neighbourhoods (a permutation has $c = m$), queries and keys
    of norm at most ``key_norm`` $R$ in every head, and margin $\gamma$; whatever the embeddings
    (free ones too), the number of heads, and biases. For a family: one of its graphs needs it.
    With distinct out-neighbourhoods the same holds for the queries. Exact int.
    Source: [attention-bounds, C3].

    >>> key_dimension_packing(1024, "1/2").value
    7
    """
    graphs = graph_family(items, family, relations, degree=degree, edges=edges)
    gamma, norm = _positive(margin, "margin"), _positive(key_norm, "key_norm")
    shown, longest = rational_text(gamma), rational_text(norm)
    _check_margin(graphs, gamma, norm**2)
    base, columns = 1 + norm**2 / gamma, graphs.columns
    value = least_integer(lambda key_dim: _power_reaches(base, key_dim, columns), None)
    return _bound(
        graphs,
        (value or 0) if columns > 1 else 0,
        f"with margin {shown} and queries and keys of norm at most {longest}",
        PACKING_STATEMENT,
        (
            f"norms of queries and keys of each head at most {longest}",
            f"relations score at least tau + {shown}, other pairs at most tau - {shown}",
        ),
        {"margin": gamma, "key_norm": norm, "columns": columns},
        embeddings_free=True,
    )


def _bound(
    graphs: GraphFamily, value: int, condition: str, statement: sympy.Basic,
    hypotheses: tuple[str, ...], parameters: dict[str, Parameter], *, embeddings_free: bool = False,
) -> Bound:  # fmt: skip
    return Bound(
        quantity="key dimension",
        value=value,
        kind="lower",
        status="proved" if value > 0 else "vacuous",
        sentence=f"realizing every {graphs} {condition} takes a total key dimension of at least "
        "{value}",
        statement=statement,
        hypotheses=hypotheses,
        model=Model(
            task="relations",
            attention="generalized",
            readout="max-threshold",
            embeddings="free" if embeddings_free else "fixed",
        ),
        source=SOURCE,
        parameters=family_parameters(graphs) | parameters,
    )


def _one_edge_count(graphs: GraphFamily) -> GraphFamily:
    """The family, or a part of it in which all graphs have equally many edges."""
    if graphs.name != "out-degree":
        return graphs
    degree = min(graphs.degree or 0, graphs.items // 2)
    return graph_family(graphs.items, "out-regular", degree=degree)


def _check_margin(graphs: GraphFamily, gamma: Fraction, largest: Fraction) -> None:
    edges = graphs.edge_count
    if edges is None:  # some graph has one edge, if there is room for another pair
        edges = min(graphs.degree or 0, 1)
    mixed = 0 < edges < graphs.items**2
    if gamma > largest and mixed:
        raise HypothesisError(
            "C3",
            f"a margin of at most {rational_text(largest)}, the largest size of a score",
            f"margin = {rational_text(gamma)}",
        )


def _least(graphs: GraphFamily, base: Fraction, unit: int) -> int:
    """The least D >= 1 with base^(unit D) >= G."""
    near = graphs.log2_near()
    if near < _EXACT_BITS:
        size = graphs.size()
        found = least_integer(lambda key_dim: _power_reaches(base, unit * key_dim, size), None)
    else:
        found = least_integer(
            lambda key_dim: _decided(lambda: unit * key_dim * _log2(base) - graphs.log2_arb()), None
        )
    return found or 0


def _power_reaches(base: Fraction, power: int, size: int) -> bool:
    """Whether base^power >= size, by logarithms unless they come too near."""
    with_logs = _near(lambda: power * _log2(base) - _log2(Fraction(size)))
    return base**power >= size if with_logs is None else with_logs


def _near(difference: Callable[[], arb]) -> bool | None:
    with precision(256):
        value = difference()
        return True if value > 0 else False if value < 0 else None


def _decided(difference: Callable[[], arb]) -> bool:
    def attempt(_: int) -> bool | None:
        value = difference()
        return True if value > 0 else False if value < 0 else None

    return certify(attempt, "the least key dimension", limit=1 << 16)


def _log2(value: Fraction) -> arb:
    return to_arb(value).log() / arb.const_log2()


def _positive(value: object, name: str) -> Fraction:
    number = exact_rational(value, name)
    if number <= 0:
        raise ArgumentError(name, value, "positive")
    return number
