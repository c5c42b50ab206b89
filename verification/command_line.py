"""The ``attention-bounds`` command: exit 0 = holds, 1 = refuted or falls short, 2 = usage."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Table
from threadpoolctl import threadpool_limits

from bounds import (
    ArgumentError,
    Bound,
    HypothesisError,
    UndecidedError,
    key_dimension_bits,
    min_heads,
    softmax_scale,
)
from bounds.bound import VERSION
from constructions import (
    LayerFileError,
    RealizationError,
    full_rank_nearest_neighbor,
    load,
    nearest_neighbor,
    relation_layer,
    relation_target,
    save,
)
from constructions.layer_files import write_whole
from constructions.relations import RelationTarget
from verification.catalogue import CATALOGUE
from verification.finding import upper_float
from verification.phase import PhaseRow, phase_rows, plot_phase, transitions
from verification.plots import plot_sandwich
from verification.reading import InputFileError, read_edges, read_embeddings, read_vocabulary
from verification.sandwich import sandwich
from verification.verify import verify as judge

app = typer.Typer(
    help="Certified bounds for attention layers, weights that attain them, and verdicts on both.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
build_app = typer.Typer(help="Build a layer, judge it, and write it.", no_args_is_help=True)
app.add_typer(build_app, name="build")

out = Console()
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Values = Annotated[str, typer.Option(help="'general' (any V) or 'scalar' (V = a I).")]
EmbeddingsFile = Annotated[Path, typer.Option(help="(m, d_model): .npy, .npz or .safetensors.")]
EdgesFile = Annotated[Path, typer.Option(help="Pairs by index or token: .csv, .tsv or .npy.")]
VocabularyFile = Annotated[
    Path | None, typer.Option(help="One token a line, in the order of the embeddings.")
]


class DelayedBar:
    """A progress bar on stderr that appears after two seconds, and only in a terminal."""

    def __init__(self, title: str) -> None:
        self._bar = Bar(console=err, transient=True, disable=not err.is_terminal)
        self._task = self._bar.add_task(title, total=None)
        self._began = time.monotonic()
        self._shown = False

    def __enter__(self) -> DelayedBar:
        return self

    def __call__(self, done: int, total: int) -> None:
        """Report progress."""
        if not self._shown and time.monotonic() - self._began > 2:
            self._bar.start()
            self._shown = True
        self._bar.update(self._task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._bar.stop()


def main() -> None:
    """Run the command line; errors in arguments and files end with exit code 2.

    What could not be built, decided, or held in memory ends with exit code 1.
    """
    try:
        app(standalone_mode=True)
    except (ArgumentError, HypothesisError, InputFileError, LayerFileError) as failure:
        _stop(failure, 2)
    except (RealizationError, UndecidedError) as failure:
        _stop(failure, 1)
    except OSError as failure:
        _stop(failure, 2)
    except (ImportError, MemoryError) as failure:
        _stop(failure, 2)
    except OverflowError as failure:
        _stop(failure, 1)


@app.callback(invoke_without_command=True)
def version_option(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Certified bounds for attention layers, weights that attain them, and verdicts on both."""
    if version:
        print(f"attention-bounds {VERSION}")
        raise typer.Exit


@app.command()
def check(as_json: Json = False) -> None:
    """Judge every result of the catalogue at its standard parameters (the main job)."""
    began = time.monotonic()
    findings = []
    # many small products: a second BLAS thread only waits
    with DelayedBar("checking") as bar, threadpool_limits(1, "blas"):
        for done, entry in enumerate(CATALOGUE):
            findings.append(entry())
            bar(done + 1, len(CATALOGUE))
    holds = all(finding.holds for finding in findings)
    if as_json:
        data = {"holds": holds, "package_version": VERSION}
        _print_json(data | {"findings": [finding.to_dict() for finding in findings]})
    else:
        table = Table("result", "on", "bound", "built and judged", "verdict")
        for finding in findings:
            verdict = "[green]holds[/green]" if finding.holds else "[red]FAILS[/red]"
            table.add_row(finding.result, finding.subject, finding.bound, finding.built, verdict)
        out.print(table)
        good = sum(finding.holds for finding in findings)
        seconds = time.monotonic() - began
        out.print(f"{good} of {len(findings)} hold, checked in {seconds:.0f} s", highlight=False)
    raise typer.Exit(0 if holds else 1)


@app.command()
def heads(
    dim: Annotated[int, typer.Option(help="The dimension d of the points.")],
    rank: Annotated[int, typer.Option(help="The query/key dimension r of a head, r <= d - 3.")],
    error: Annotated[str, typer.Option(help="The error to reach, as '1/10' or '0.1'.")],
    values: Values = "general",
    as_json: Json = False,
) -> None:
    """How many rank-r heads nearest neighbor search takes (H2), against one full-rank head."""
    bound = min_heads(dim, rank, error, values=values)  # type: ignore[arg-type]
    _print_bounds([bound, softmax_scale(dim, error)], as_json)


@app.command()
def capacity(
    items: Annotated[int, typer.Option(help="The number m of items.")],
    d_model: Annotated[int, typer.Option(help="The dimension of an embedding.")],
    bits: Annotated[int, typer.Option(help="Bits of a stored weight.")],
    family: Annotated[
        str, typer.Option(help="permutation, functional or digraph.")
    ] = "permutation",
    relations: Annotated[int | None, typer.Option(help="Edges m' of a digraph.")] = None,
    as_json: Json = False,
) -> None:
    """What total key dimension a family of relation graphs takes (C1)."""
    bound = key_dimension_bits(items, d_model, bits, family=family, relations=relations)  # type: ignore[arg-type]
    _print_bounds([bound], as_json)


@app.command()
def phase(
    items: Annotated[int, typer.Option(help="The number m of items; m/4 and m/2 are run too.")],
    d_model: Annotated[int, typer.Option(help="The dimension of an embedding.")],
    seed: Annotated[
        int, typer.Option(help="Of the embeddings, the permutation and the codes.")
    ] = 0,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write every point here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the diagram here (extra 'plot').")] = None,
    as_json: Json = False,
) -> None:
    """Relations recovered over (m, D_K, heads), and where half of them are: the multi-head advantage."""
    with DelayedBar("building layers") as bar, threadpool_limits(1, "blas"):
        rows = phase_rows(items, d_model, seed=seed, progress=bar)
    with DelayedBar("locating the transitions"), threadpool_limits(1, "blas"):
        located = transitions(rows)
    if csv_file is not None:
        table = io.StringIO(newline="")
        writer = csv.DictWriter(table, [field.name for field in dataclasses.fields(PhaseRow)])
        writer.writeheader()
        writer.writerows(dataclasses.asdict(row) for row in rows)
        write_whole(csv_file, table.getvalue().encode())
    if plot is not None:
        plot_phase(rows, plot, located)
    if as_json:
        _print_json(
            {
                "rows": [dataclasses.asdict(row) for row in rows],
                "transitions": [dataclasses.asdict(row) for row in located],
            }
        )
        return
    for row in located:
        least = "no D_K" if row.key_dimension is None else f"D_K = {row.key_dimension}"
        out.print(f"m = {row.items}, {row.heads} heads: half recovered at {least}", highlight=False)


@app.command("sandwich")
def sandwich_command(
    dim: Annotated[int, typer.Option(help="The dimension d of the points.")],
    heads_wanted: Annotated[int, typer.Option("--heads", help="The number H of heads.")],
    rank: Annotated[int, typer.Option(help="The query/key dimension r of a head, r <= d - 3.")] = 1,
    values: Values = "scalar",
    seed: Annotated[int, typer.Option(help="Of the layer that is built.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(help="Draw both bounds up to H into this file (extra 'plot').")
    ] = None,
    as_json: Json = False,
) -> None:
    """The error of H rank-r heads on nearest neighbor, from below (H2, H8) and above (H6)."""
    pair = sandwich(dim, rank, heads_wanted, values=values, seed=seed)  # type: ignore[arg-type]
    if plot is not None:
        counts = sorted({2**k for k in range(heads_wanted.bit_length())} | {heads_wanted})
        plot_sandwich([dim], counts, plot, rank=rank, seed=seed)
    _print_bounds([pair.lower, pair.upper], as_json)
    raise typer.Exit(0 if pair.holds else 1)


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
    _print_certificate(certificate, as_json, out_file)


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
    target = _read_target(embeddings, edges, vocabulary)
    with DelayedBar("fitting heads") as bar, threadpool_limits(1, "blas"):
        layer = relation_layer(
            target.embeddings, target.edges, method=method, key_dim=key_dim,  # type: ignore[arg-type]
            heads=heads_wanted, bias=bias, seed=seed, progress=bar,
        )  # fmt: skip
    with DelayedBar("checking all pairs") as bar:
        certificate = judge(layer, target, progress=bar)
    _finish_build(certificate.holds, out_file, lambda: save(layer, out_file))
    _print_certificate(certificate, as_json, out_file)


@app.command()
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
            target = _read_target(embeddings, edges, vocabulary)
            certificate = judge(layer, target, error=error, samples=samples, progress=bar)
        else:
            certificate = judge(
                layer, nearest_neighbor, error=error, samples=samples, context=context,
                confidence=confidence, seed=seed,
            )  # fmt: skip
    _print_certificate(certificate, as_json, None)


def _read_target(embeddings: Path, edges: Path, vocabulary: Path | None) -> RelationTarget:
    tokens = read_embeddings(embeddings)
    names = None if vocabulary is None else read_vocabulary(vocabulary)
    if names is not None and len(names) != len(tokens):
        raise InputFileError(f"{vocabulary}: {len(names)} tokens for {len(tokens)} embeddings")
    found = read_edges(edges, len(tokens), names)
    if found.header is not None:
        err.print(f"{edges}: skipped the header {found.header}", highlight=False, markup=False)
    return relation_target(tokens, found.edges, names)


def _finish_build(holds: bool, path: Path, write: Any) -> None:
    if not holds:
        raise RealizationError(f"the layer built was not verified, so {path} was not written")
    write()


def _print_bounds(bounds: list[Bound], as_json: bool) -> None:
    if as_json:
        _print_json({"bounds": [bound.to_dict() for bound in bounds]})
        return
    for bound in bounds:
        out.print(str(bound), highlight=False, markup=False, soft_wrap=True)


def _print_certificate(certificate: Any, as_json: bool, written: Path | None) -> NoReturn:
    if as_json:
        _print_json(certificate.to_dict() | {"written": None if written is None else str(written)})
    else:
        out.print(str(certificate), highlight=False, markup=False, soft_wrap=True)
        if written is not None:
            out.print(f"wrote {written}", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(0 if certificate.holds else 1)


def _print_json(data: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(data, ensure_ascii=False, indent=1) + "\n")


def _stop(failure: Exception, code: int) -> NoReturn:
    err.print(f"error: {failure}", highlight=False, markup=False, soft_wrap=True)
    sys.exit(code)
