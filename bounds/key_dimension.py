r"""C1: the total key dimension $D_K$ that a relation graph must pay, with weights of $b$ bits.

The weights that recognise a graph are :func:`constructions.relations.relation_layer`; the proof is
in docs/C1-key-dimension.md.
"""

from __future__ import annotations

from fractions import Fraction
from math import comb, factorial
from typing import Literal

import sympy
from flint import arb

from bounds.arithmetic import Ball, certain_ceiling, certified_ball, certify, exact_integer, to_arb
from bounds.bound import Bound
from bounds.errors import ArgumentError
from bounds.model import Model

Family = Literal["permutation", "functional", "digraph"]

SOURCE = "[attention-bounds, C1]"

_EXACT_BITS = 1 << 16

_m, _edges, _D, _dm, _b = sympy.symbols("m m' D_K d_model b", integer=True, positive=True)
_G = sympy.Symbol("G", positive=True)

FAMILY_SIZE = {
    "permutation": sympy.factorial(_m),
    "functional": _m**_m,
    "digraph": sympy.binomial(_m**2, _edges),
}
"""The number of graphs in each family, as sympy expressions in m and m'."""

STATEMENT = sympy.Ge(2 * _dm * _D * _b, sympy.log(_G) / sympy.log(2))
EFFICIENCY_STATEMENT = sympy.Le(sympy.log(_G) / sympy.log(2) / (2 * _dm * _D * _b), 1)


def family_log2(
    items: int, family: Family = "permutation", relations: int | None = None, *, digits: int = 15
) -> Ball:
    r"""$\log_2 G$ of a family of graphs on ``items`` $m$ vertices, as a certified ball.

    ``"permutation"``: $G = m!$; ``"functional"`` (each vertex has one successor): $m^m$;
    ``"digraph"`` with ``relations`` $m'$ edges, self-loops allowed: $\binom{m^2}{m'}$. Any size:
    large ones by log-Gamma. Source: [attention-bounds, C1].

    >>> family_log2(256).decimal(6)
    '1684.00'
    """
    m, edges = _family_arguments(items, family, relations)
    digits = exact_integer(digits, "digits", 1)
    if _is_single(m, family, edges):
        return Ball.of(0)
    return certified_ball(lambda _: _log2_size(m, family, edges), digits, "log2 of the family")


def key_dimension_bits(
    items: int,
    d_model: int,
    bits: int,
    *,
    family: Family = "permutation",
    relations: int | None = None,
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
    m, edges = _family_arguments(items, family, relations)
    d_model = exact_integer(d_model, "d_model", 1)
    bits = exact_integer(bits, "bits", 1)
    threshold_bits = exact_integer(threshold_bits, "threshold_bits", 0)
    value = _least_key_dimension(m, family, edges, 2 * d_model * bits, threshold_bits)
    return Bound(
        quantity="key dimension",
        value=value,
        kind="lower",
        status="proved" if value > 0 else "vacuous",
        sentence=f"realizing every {_family_text(m, family, edges)} with {bits}-bit weights and "
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
        parameters=_parameters(m, family, edges)
        | {"d_model": d_model, "bits": bits, "threshold_bits": threshold_bits},
    )


def storage_efficiency(
    items: int,
    d_model: int,
    key_dim: int,
    bits: int,
    *,
    family: Family = "permutation",
    relations: int | None = None,
    digits: int = 15,
) -> Bound:
    r"""$\log_2 G / (2\,d_{model}D_K\,b)$: how much of the weights' capacity a construction uses.

    At most 1 for sizes at which every graph of the family is realised; the closer to 1, the closer
    to the limit C1. ``key_dim`` is the total $D_K$. Source: [attention-bounds, C1].

    >>> print(storage_efficiency(256, 16, 80, 16).value.decimal(4))
    0.04111
    """
    m, edges = _family_arguments(items, family, relations)
    d_model = exact_integer(d_model, "d_model", 1)
    key_dim = exact_integer(key_dim, "key_dim", 1)
    bits = exact_integer(bits, "bits", 1)
    capacity = 2 * d_model * key_dim * bits
    log2_size = family_log2(m, family, edges, digits=digits + 1)
    value = certified_ball(
        lambda _: log2_size.arb() / to_arb(capacity), digits, "the storage efficiency"
    ) if log2_size != Ball.of(0) else Ball.of(0)  # fmt: skip
    return Bound(
        quantity="storage efficiency",
        value=value,
        kind="exact",
        status="certified",
        sentence=f"a layer of total key dimension {key_dim} with {bits}-bit weights and d_model = "
        f"{d_model} that realizes a {_family_text(m, family, edges)} stores {{value}} of its limit",
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
        parameters=_parameters(m, family, edges)
        | {"d_model": d_model, "key_dim": key_dim, "bits": bits},
    )


def _least_key_dimension(m: int, family: Family, edges: int | None, unit: int, spare: int) -> int:
    """The least D >= 0 with unit * D + spare >= log2 G, exactly."""
    with_log = certify(
        lambda _: _settled(_log2_size(m, family, edges)), "log2 of the family", limit=1 << 12
    )
    if with_log.upper() < _EXACT_BITS:
        missing = (_exact_size(m, family, edges) - 1).bit_length() - spare  # ceil(log2 G) - spare
        return max(0, -(-missing // unit))

    def attempt(_: int) -> int | None:
        return certain_ceiling((_log2_size(m, family, edges) - spare) / unit)

    if family == "functional" and m & (m - 1) == 0:  # log2 G = m log2 m is an integer
        return max(0, -(-(m * (m.bit_length() - 1) - spare) // unit))
    return max(0, certify(attempt, "the least key dimension", limit=1 << 14))


def _settled(value: arb) -> arb | None:
    return value if value.is_finite() and value.rad() < 1 else None


def _log2_size(m: int, family: Family, edges: int | None) -> arb:
    items = to_arb(m)
    if family == "permutation":
        return (items + 1).lgamma() / arb.const_log2()
    if family == "functional":
        return items * items.log() / arb.const_log2()
    pairs, count = to_arb(m * m), to_arb(edges or 0)
    choose = (pairs + 1).lgamma() - (count + 1).lgamma() - (pairs - count + 1).lgamma()
    return choose / arb.const_log2()


def _exact_size(m: int, family: Family, edges: int | None) -> int:
    if family == "permutation":
        return factorial(m)
    if family == "functional":
        return int(m**m)
    return comb(m * m, edges or 0)


def _is_single(m: int, family: Family, edges: int | None) -> bool:
    return m == 1 or (family == "digraph" and edges in (0, m * m))


def _family_arguments(items: object, family: object, relations: object) -> tuple[int, int | None]:
    m = exact_integer(items, "items", 1)
    if family not in FAMILY_SIZE:
        raise ArgumentError("family", family, f"one of {tuple(FAMILY_SIZE)}")
    if family == "digraph":
        if relations is None:
            raise ArgumentError("relations", None, "given for the family 'digraph'")
        return m, exact_integer(relations, "relations", 0, m * m)
    if relations is not None and exact_integer(relations, "relations", 0) != m:
        raise ArgumentError("relations", relations, f"absent or {m} for the family {family!r}")
    return m, None


def _family_text(m: int, family: Family, edges: int | None) -> str:
    if family == "digraph":
        return f"directed graph with {edges} relations on {m} items"
    return f"{family} graph on {m} items"


def _parameters(
    m: int, family: Family, edges: int | None
) -> dict[str, int | Fraction | str | None]:
    return {"items": m, "family": family, "relations": edges}
