"""C5 and C6 on real token embeddings: relations of the shipped vocabulary, sizes against the bounds.

    python benchmarks/real_graphs.py [--quick] [--table FILE.npy --key-dim 16]

Each layer is verified on all pairs, rounded to the fewest bits at which it still is, and compared
with C1, C2 and C3 at that precision, its margin and its norms. The routing rows add the null token
and the certified leakage, the naming rows the readout of identities. `--table` takes other
embeddings, (m, d), for a permutation of its rows. Takes a few minutes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from constructions import (
    AttentionLayer,
    RealizationError,
    RelationTarget,
    RoutingLayer,
    dual_readout,
    identity_layer,
    relation_layer,
    relation_target,
)
from constructions.rounding import round_weights
from constructions.routing import routing_heads, routing_layer
from verification import verify, verify_identities
from verification.layer_size import layer_size
from verification.leakage import leakage_report
from verification.reading import read_embeddings, token_example
from verification.relation_checks import fewest_bits


@dataclass(frozen=True)
class Case:
    name: str
    target: RelationTarget
    key_dim: int
    heads: int | None
    bias: bool


def graphs(tokens: RelationTarget) -> dict[str, RelationTarget]:
    """The relations, all on the same 1000 tokens."""
    assert tokens.names is not None
    names, x = tokens.names, tokens.embeddings
    inside = [(i, j) for i, a in enumerate(names) for j, b in enumerate(names) if i != j and a in b]
    ending = [
        (i, j)
        for i, a in enumerate(names)
        for j, b in enumerate(names)
        if i != j and a[-4:] == b[-4:]
    ]
    shuffled = np.random.default_rng(0).permutation(tokens.items)
    permutation = np.stack([np.arange(tokens.items), shuffled], axis=1)
    return {
        "plural": tokens,
        "inside": relation_target(x, inside, names),
        "ending": relation_target(x, ending, names),
        "permutation": relation_target(x, permutation, names),
    }


def cases(quick: bool) -> list[Case]:
    found = graphs(token_example())
    shapes: list[tuple[str, int, int | None, bool]] = [
        ("plural", 8, 1, False),
        ("inside", 16, 1, False),
    ]
    if not quick:
        shapes += [
            ("plural", 6, 1, False), ("plural", 6, 1, True), ("plural", 4, 2, True),
            ("inside", 8, 1, False), ("inside", 8, 1, True), ("inside", 6, 1, False),
            ("ending", 16, 1, False), ("ending", 16, 1, True),
            ("permutation", 16, 1, False), ("permutation", 16, 1, True), ("permutation", 12, 1, False),
            ("permutation", 10, 1, False), ("permutation", 8, 2, False),
        ]  # fmt: skip
    return [Case(name, found[name], *shape) for name, *shape in shapes]  # type: ignore[misc,arg-type]


def row(case: Case) -> str:
    start = time.perf_counter()
    layer = relation_layer(
        case.target.embeddings,
        case.target.edges,
        key_dim=case.key_dim,
        heads=case.heads,
        bias=case.bias,
    )
    seconds = time.perf_counter() - start
    certificate = verify(layer, case.target)
    bits, _ = fewest_bits(layer, case.target)
    return (
        f"| {case.name} | {case.target.relations} | {'yes' if case.bias else 'no'} | {layer.heads} | "
        f"{layer.key_dimension} | {certificate.verdict}, margin {certificate.margin:.2g} | "
        f"{size_columns(layer, case.target, bits)} | {seconds:.0f} s |"
    )


def size_columns(layer: AttentionLayer, target: RelationTarget, bits: int) -> str:
    """Of the rounded layer: bits, C1, C2, C3, the packing bound for this graph, efficiency."""
    found = layer_size(round_weights(layer, bits), target, bits=bits)
    least = {name: bound.value_text() for name, bound in found.family_bounds.candidates}
    own = "none" if found.graph_bound is None else found.graph_bound.value_text()
    columns = [str(bits), least["C1"], least["C2"], least.get("C3", "none"), own]
    return " | ".join([*columns, found.efficiency.value_text()[:6]])


def routing_row(name: str, target: RelationTarget, key_dim: int) -> tuple[str, RoutingLayer]:
    start = time.perf_counter()
    heads = routing_heads(target.embeddings, target.edges, key_dim=key_dim)
    routing = routing_layer(heads, target, "1/1000")
    seconds = time.perf_counter() - start
    report = leakage_report(routing, target)
    text = (
        f"| {name} | {heads.heads} | {routing.layer.key_dimension} | {routing.margin:.2g} | "
        f"{routing.layer.logit_scale:.4g} | {report.leakage[1]:.2g} | {report.routing_error:.2g} | "
        f"{seconds:.0f} s |"
    )
    return text, routing


def naming_rows(name: str, target: RelationTarget, routing: RoutingLayer) -> Iterator[str]:
    """Each readout of the neighbours' identities, judged in every context."""
    x = target.embeddings
    readouts: dict[str, str | np.ndarray] = {
        "tied": "tied",
        "x / <x, x>": x / (x**2).sum(axis=1, keepdims=True),
        "dual, of all items": dual_readout(x),
        "dual": "dual",
        "fitted": "fitted",
    }
    for shown, readout in readouts.items():
        start = time.perf_counter()
        try:
            identity = identity_layer(routing, target, readout=readout)
        except RealizationError:
            yield f"| {name} | {shown} | no threshold | | | |"
            continue
        made = time.perf_counter()
        found = verify_identities(identity, target)
        share = "" if found.margin is None else f"{found.margin / identity.threshold:.2g}"
        moved = found.details["outputs are off exact sums by at most"]
        seconds = f"{made - start:.1f} + {time.perf_counter() - made:.1f} s"
        yield f"| {name} | {shown} | {found.verdict} | {share} | {moved:.1e} | {seconds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two relations, half a minute")
    parser.add_argument("--table", type=Path, help="embeddings (m, d) for a random permutation")
    parser.add_argument("--key-dim", type=int, default=16)
    options = parser.parse_args()
    print(
        "| relation | m' | biases | heads | D_K | all pairs | bits | C1 | C2 | C3 | packing "
        "| efficiency | fit |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    if options.table:
        x = read_embeddings(options.table)
        shuffled = np.random.default_rng(0).permutation(len(x))
        target = relation_target(x, np.stack([np.arange(len(x)), shuffled], axis=1))
        name = f"permutation of {len(x)}"
        print(row(Case(name, target, options.key_dim, 1, False)), flush=True)
        return
    for case in cases(options.quick):
        print(row(case), flush=True)
    print("\n| routing | heads | D_K | margin | logit scale | leakage ≤ | routing error ≤ | fit |")
    print("|---|---|---|---|---|---|---|---|")
    found = graphs(token_example())
    routed = [("plural", 8)] + ([] if options.quick else [("permutation", 16), ("inside", 4)])
    made = {}
    for name, key_dim in routed:
        text, made[name] = routing_row(name, found[name], key_dim)
        print(text, flush=True)
    print("\n| naming | readout | verdict | margin / theta | outputs move by ≤ | make + judge |")
    print("|---|---|---|---|---|---|")
    for name, routing in made.items():
        for text in naming_rows(name, found[name], routing):
            print(text, flush=True)


if __name__ == "__main__":
    main()
