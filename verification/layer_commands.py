"""Commands on layers in files: build, verify, size."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from threadpoolctl import threadpool_limits

from bounds import ArgumentError, softmax_scale
from constructions import (
    RealizationError,
    full_rank_nearest_neighbor,
    load,
    nearest_neighbor,
    relation_layer,
    save,
)
from verification.console import (
    DelayedBar,
    EdgesFile,
    EmbeddingsFile,
    Json,
    VocabularyFile,
    print_certificate,
    print_json,
    read_target,
    say,
)
from verification.finding import upper_float
from verification.layer_size import layer_size
from verification.verify import verify as judge

build_app = typer.Typer(help="Build a layer, judge it, and write it.", no_args_is_help=True)


@build_app.command("nearest-neighbor")
def build_nearest_neighbor(
    dim: Annotated[int, typer.Option(help="The dimension d of the points.")],
    out_file: Annotated[Path, typer.Option("--out", help="The safetensors file to write.")],
    error: Annotated[
        str | None, typer.Option(help="Softmax, at a scale enough for this error; else hard.")
    ] = None,
    as_json: Json = False,
) -> None:
    """One full-rank head that finds the nearest neighbor (H1)."""
    scale = None
    if error is not None:  # any scale is enough for an error of 1/2, where the bound is 0
        scale = upper_float(softmax_scale(dim, error)) or 1.0
        if scale == math.inf:
            raise ArgumentError("error", error, "large enough for a logit scale in float64")
    layer = full_rank_nearest_neighbor(dim, scale)
    certificate = judge(layer, nearest_neighbor, error=error)
    _finish_build(certificate.holds, out_file, lambda: save(layer, out_file))
    print_certificate(certificate, as_json, out_file)


@build_app.command("relations")
def build_relations(
    embeddings: EmbeddingsFile,
    edges: EdgesFile,
    out_file: Annotated[Path, typer.Option("--out", help="The safetensors file to write.")],
    vocabulary: VocabularyFile = None,
    method: Annotated[str, typer.Option(help="compact or rank-one.")] = "compact",
    key_dim: Annotated[int | None, typer.Option(help="d_k of each head; chosen if absent.")] = None,
    heads_wanted: Annotated[
        int | None, typer.Option("--heads", help="Number of heads; chosen if absent.")
    ] = None,
    bias: Annotated[bool, typer.Option(help="Give compact heads biases.")] = False,
    seed: Annotated[int, typer.Option(help="Fixes the result.")] = 0,
    as_json: Json = False,
) -> None:
    """A layer that recognizes exactly the given relations among all pairs (C4, C5)."""
    target = read_target(embeddings, edges, vocabulary)
    with DelayedBar("fitting heads") as bar, threadpool_limits(1, "blas"):
        layer = relation_layer(
            target.embeddings, target.edges, method=method, key_dim=key_dim,  # type: ignore[arg-type]
            heads=heads_wanted, bias=bias, seed=seed, progress=bar,
        )  # fmt: skip
    with DelayedBar("checking all pairs") as bar:
        certificate = judge(layer, target, progress=bar)
    _finish_build(certificate.holds, out_file, lambda: save(layer, out_file))
    print_certificate(certificate, as_json, out_file)


def verify(
    layer_file: Annotated[Path, typer.Argument(help="A layer written by 'build'.")],
    embeddings: Annotated[Path | None, typer.Option(help="As for 'build relations'.")] = None,
    edges: Annotated[Path | None, typer.Option(help="As for 'build relations'.")] = None,
    vocabulary: VocabularyFile = None,
    error: Annotated[
        str | None, typer.Option(help="The error to allow (nearest neighbor).")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Sample the error (nearest neighbor).")
    ] = None,
    context: Annotated[int, typer.Option(help="Points in a sampled context.")] = 2,
    confidence: Annotated[float, typer.Option(help="Of the sampled interval.")] = 0.999,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 0,
    as_json: Json = False,
) -> None:
    """Judge a layer: on relations when embeddings and edges are given, else on nearest neighbor."""
    layer = load(layer_file)
    if (embeddings is None) != (edges is None):
        raise ArgumentError("embeddings, edges", "only one", "given together")
    with DelayedBar("checking") as bar:
        if embeddings is not None and edges is not None:
            target = read_target(embeddings, edges, vocabulary)
            certificate = judge(layer, target, error=error, samples=samples, progress=bar)
        else:
            certificate = judge(
                layer, nearest_neighbor, error=error, samples=samples, context=context,
                confidence=confidence, seed=seed,
            )  # fmt: skip
    print_certificate(certificate, as_json, None)


def size(
    layer_file: Annotated[Path, typer.Argument(help="A relation layer written by 'build'.")],
    embeddings: EmbeddingsFile,
    edges: EdgesFile,
    vocabulary: VocabularyFile = None,
    family: Annotated[
        str | None,
        typer.Option(
            help="That every graph of is to be realized: as for 'capacity'; if absent, permutations "
            "when the relations are one, else digraphs with as many relations."
        ),
    ] = None,
    degree: Annotated[
        int | None, typer.Option(help="Of regular, out-regular and out-degree graphs.")
    ] = None,
    bits: Annotated[int, typer.Option(help="Bits that a weight is stored in.")] = 64,
    as_json: Json = False,
) -> None:
    """A verified layer's total key dimension, beside every lower bound at its own numbers (C1-C3)."""
    layer, target = load(layer_file), read_target(embeddings, edges, vocabulary)
    with DelayedBar("checking all pairs") as bar:
        found = layer_size(layer, target, family, degree=degree, bits=bits, progress=bar)  # type: ignore[arg-type]
    if as_json:
        print_json(found.to_dict())
        return
    say(str(found.certificate))
    say(str(found))


def _finish_build(holds: bool, path: Path, write: Any) -> None:
    if not holds:
        raise RealizationError(f"the layer built was not verified, so {path} was not written")
    write()
