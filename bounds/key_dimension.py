r"""C1: the total key dimension $D_K$ that a relation graph must pay, with weights of $b$ bits.

The weights that recognise a graph are :func:`constructions.relations.relation_layer`; the proof is
in docs/C1-key-dimension.md.
"""

from __future__ import annotations

from collections.abc import Iterable

import sympy

from bounds.arithmetic import Ball, certain_ceiling, certified_ball, certify, exact_integer, to_arb
from bounds.bound import Bound, Parameter
from bounds.graph_families import FAMILY_SIZE, Family, GraphFamily, family_log2, graph_family
from bounds.model import Model

__all__ = [
    "FAMILY_SIZE",
    "Family",
    "family_log2",
    "family_parameters",
    "key_dimension_bits",
    "storage_efficiency",
]

SOURCE = "[attention-bounds, C1]"

_EXACT_BITS = 1 << 16

_D, _dm, _b = sympy.symbols("D_K d_model b", integer=True, positive=True)
_G = sympy.Symbol("G", positive=True)

STATEMENT = sympy.Ge(2 * _dm * _D * _b, sympy.log(_G) / sympy.log(2))
EFFICIENCY_STATEMENT = sympy.Le(sympy.log(_G) / sympy.log(2) / (2 * _dm * _D * _b), 1)


def key_dimension_bits(
    items: int,
    d_model: int,
    bits: int,
    *,
    family: Family | GraphFamily = "permutation",
    relations: int | None = None,
    degree: int | None = None,
    edges: Iterable[tuple[int, int]] | None = None,
    threshold_bits: int = 0,
) -> Bound:
    r"""The least $D_K = \sum_k d_k$ with which every graph of a family can be realised.

    $2\,d_{model}D_K\,b + b_\tau \ge \log_2 G$: distinct graphs need distinct weights. Some graph of
    the family (indeed all but a fraction $2^{-c}$ when $c$ bits are missing) needs at least this
    much, whatever the embeddings, heads and readout, as long as they are fixed in advance.

    ``items`` $m$, ``d_model``, ``bits`` $b$ per weight: ints $\ge 1$. ``threshold_bits`` $b_\tau$:
    bits spent on a stored threshold (0: the threshold is fixed in advance). The value is an exact
    int. Source: [attention-bounds, C1].

    >>> key_dimension_bits(1024, 64, 16).value
    5
    """
    graphs = graph_family(items, family, relations, degree=degree, edges=edges)
    d_model = exact_integer(d_model, "d_model", 1)
    bits = exact_integer(bits, "bits", 1)
    threshold_bits = exact_integer(threshold_bits, "threshold_bits", 0)
    value = _least_key_dimension(graphs, 2 * d_model * bits, threshold_bits)
    return Bound(
        quantity="key dimension",
        value=value,
        kind="lower",
        status="proved" if value > 0 else "vacuous",
        sentence=f"realizing every {graphs} with {bits}-bit weights and "
        f"d_model = {d_model} takes a total key dimension of at least {{value}}",
        statement=STATEMENT,
        hypotheses=(
            "embeddings, head sizes and readout fixed in advance"
            + ("" if threshold_bits else ", the threshold too"),
            "every weight of W_Q and W_K is one of 2^b values; no biases",
        ),
        model=Model(
            task="relations",
            attention="generalized",
            readout="max-threshold",
            embeddings="fixed",
            weight_bits=bits,
        ),
        source=SOURCE,
        parameters=family_parameters(graphs)
        | {"d_model": d_model, "bits": bits, "threshold_bits": threshold_bits},
    )


def storage_efficiency(
    items: int,
    d_model: int,
    key_dim: int,
    bits: int,
    *,
    family: Family | GraphFamily = "permutation",
    relations: int | None = None,
    degree: int | None = None,
    edges: Iterable[tuple[int, int]] | None = None,
    digits: int = 15,
) -> Bound:
    r"""$\log_2 G / (2\,d_{model}D_K\,b)$: how much of the weights' capacity a construction uses.

    At most 1 for sizes at which every graph of the family is realised; the closer to 1, the closer
    to the limit C1. ``key_dim`` is the total $D_K$. Source: [attention-bounds, C1].

    >>> print(storage_efficiency(256, 16, 80, 16).value.decimal(4))
    0.04111
    """
    graphs = graph_family(items, family, relations, degree=degree, edges=edges)
    d_model = exact_integer(d_model, "d_model", 1)
    key_dim = exact_integer(key_dim, "key_dim", 1)
    bits = exact_integer(bits, "bits", 1)
    capacity = 2 * d_model * key_dim * bits
    value = Ball.of(0) if graphs.is_single else certified_ball(
        lambda _: graphs.log2_arb() / to_arb(capacity), digits, "the storage efficiency"
    )  # fmt: skip
    return Bound(
        quantity="storage efficiency",
        value=value,
        kind="exact" if graphs.exact else "lower",
        status="certified",
        sentence=f"a layer of total key dimension {key_dim} with {bits}-bit weights and d_model = "
        f"{d_model} that realizes a {graphs} stores {{value}} of its limit",
        statement=EFFICIENCY_STATEMENT,
        hypotheses=("embeddings, head sizes, readout and threshold fixed in advance",),
        model=Model(
            task="relations",
            attention="generalized",
            readout="max-threshold",
            embeddings="fixed",
            weight_bits=bits,
        ),
        source=SOURCE,
        parameters=family_parameters(graphs)
        | {"d_model": d_model, "key_dim": key_dim, "bits": bits},
    )


def family_parameters(graphs: GraphFamily) -> dict[str, Parameter]:
    """What a bound records of the family that it is for."""
    own: dict[str, Parameter] = {
        "items": graphs.items,
        "family": graphs.name,
        "relations": graphs.relations,
    }
    if graphs.degree is not None:
        own["degree"] = graphs.degree
    if graphs.automorphisms is not None:
        own |= {"automorphisms": graphs.automorphisms, "isolated": graphs.isolated}
    return own


def _least_key_dimension(graphs: GraphFamily, unit: int, spare: int) -> int:
    """The least D >= 0 with unit * D + spare >= log2 G, exactly."""
    limit = max(1 << 14, 8 * graphs.items.bit_length())
    whole = graphs.log2_integer()
    if whole is None:
        near = graphs.log2_near()
        if near.upper() < _EXACT_BITS:
            whole = (graphs.size() - 1).bit_length()  # ceil(log2 G)
    if whole is not None:
        return max(0, -(-(whole - spare) // unit))

    def attempt(_: int) -> int | None:
        return certain_ceiling((graphs.log2_arb() - spare) / unit)

    return max(0, certify(attempt, "the least key dimension", limit=limit))
