"""The ``attention-bounds`` command: exit 0 = holds, 1 = refuted or falls short, 2 = usage."""

from __future__ import annotations

import csv
import dataclasses
import io
import sys
import time
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.table import Table
from threadpoolctl import threadpool_limits

from bounds import (
    ArgumentError,
    HypothesisError,
    UndecidedError,
    key_dimension,
    min_heads,
    softmax_scale,
)
from bounds.bound import VERSION
from constructions import LayerFileError, RealizationError
from constructions.layer_files import write_whole
from verification import console, layer_commands
from verification.catalogue import CATALOGUE
from verification.console import (
    DelayedBar,
    Json,
    VocabularyFile,
    complain,
    print_bounds,
    print_json,
    read_pairs,
    say,
)
from verification.phase import PhaseRow, phase_rows, plot_phase, transitions
from verification.plots import plot_sandwich
from verification.reading import InputFileError, read_vocabulary
from verification.sandwich import sandwich

app = typer.Typer(
    help="Certified bounds for attention layers, weights that attain them, and verdicts on both.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(layer_commands.build_app, name="build")
app.command()(layer_commands.verify)
app.command()(layer_commands.size)

Values = Annotated[str, typer.Option(help="'general' (any V) or 'scalar' (V = a I).")]


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
        print_json(data | {"findings": [finding.to_dict() for finding in findings]})
    else:
        table = Table("result", "on", "bound", "built and judged", "verdict")
        for finding in findings:
            verdict = "[green]holds[/green]" if finding.holds else "[red]FAILS[/red]"
            table.add_row(finding.result, finding.subject, finding.bound, finding.built, verdict)
        console.out.print(table)
        good = sum(finding.holds for finding in findings)
        seconds = time.monotonic() - began
        say(f"{good} of {len(findings)} hold, checked in {seconds:.0f} s")
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
    print_bounds([bound, softmax_scale(dim, error)], as_json)


@app.command()
def capacity(
    items: Annotated[int, typer.Option(help="The number m of items.")],
    d_model: Annotated[int, typer.Option(help="The dimension of an embedding.")],
    bits: Annotated[
        int | None, typer.Option(help="Bits of a stored weight (C1); absent: real weights.")
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            help="permutation, functional, digraph, regular, out-regular, out-degree or relabelings; "
            "if absent, relabelings with --edges, else permutation."
        ),
    ] = None,
    relations: Annotated[int | None, typer.Option(help="Edges m' of a digraph.")] = None,
    degree: Annotated[
        int | None, typer.Option(help="Of regular, out-regular and out-degree graphs.")
    ] = None,
    edges: Annotated[
        Path | None, typer.Option(help="The graph to relabel, as for 'build relations'.")
    ] = None,
    vocabulary: VocabularyFile = None,
    heads_wanted: Annotated[
        int | None, typer.Option("--heads", help="At most so many heads (C2).")
    ] = None,
    margin: Annotated[
        str | None, typer.Option(help="Of the scores about the threshold (C3), as '1/10' or '0.1'.")
    ] = None,
    weight_norm: Annotated[
        str | None, typer.Option(help="With a margin: Frobenius norm of W_Q and W_K of a head.")
    ] = None,
    key_norm: Annotated[
        str | None,
        typer.Option(help="With a margin: norm of queries and keys, 1 if none is given."),
    ] = None,
    as_json: Json = False,
) -> None:
    """What total key dimension a family of relation graphs takes: the best of C1, C2 and C3."""
    graph = None
    if edges is not None:
        if family not in (None, "relabelings"):
            raise ArgumentError(
                "edges", str(edges), "absent, or given with the family 'relabelings'"
            )
        names = None if vocabulary is None else read_vocabulary(vocabulary)
        if names is not None and len(names) != items:
            raise InputFileError(f"{vocabulary}: {len(names)} tokens for {items} items")
        graph = [(source, target) for source, target in read_pairs(edges, items, names).tolist()]
    elif vocabulary is not None:
        raise ArgumentError("vocabulary", str(vocabulary), "given with edges")
    found = key_dimension(
        items, d_model, family or ("permutation" if graph is None else "relabelings"),  # type: ignore[arg-type]
        relations=relations, degree=degree, edges=graph, bits=bits, margin=margin,
        weight_norm=weight_norm, key_norm=key_norm, heads=heads_wanted,
    )  # fmt: skip
    if as_json:
        candidates = {name: bound.to_dict() for name, bound in found.candidates}
        data = {"bounds": [found.best.to_dict()], "winner": found.winner}
        print_json(data | {"candidates": candidates})
        return
    print_bounds([found.best], as_json)
    values = ", ".join(f"{name} ≥ {bound.value_text()}" for name, bound in found.candidates)
    say(f"winner: {found.winner}, of {values}")


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
        print_json(
            {
                "rows": [dataclasses.asdict(row) for row in rows],
                "transitions": [dataclasses.asdict(row) for row in located],
            }
        )
        return
    for row in located:
        least = "no D_K" if row.key_dimension is None else f"D_K = {row.key_dimension}"
        say(f"m = {row.items}, {row.heads} heads: half recovered at {least}")


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
    print_bounds([pair.lower, pair.upper], as_json)
    raise typer.Exit(0 if pair.holds else 1)


def _stop(failure: Exception, code: int) -> NoReturn:
    complain(f"error: {failure}")
    sys.exit(code)
