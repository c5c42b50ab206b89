"""What the commands share: the terminal they print to, and the files they read."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import Progress as Bar

from bounds import Bound
from constructions import relation_target
from constructions.relations import IntArray, RelationTarget
from verification.certificate import Certificate
from verification.reading import InputFileError, read_edges, read_embeddings, read_vocabulary

out = Console()
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
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


def say(text: str) -> None:
    """A line on stdout, as it is."""
    out.print(text, highlight=False, markup=False, soft_wrap=True)


def complain(text: str) -> None:
    """A line on stderr, as it is."""
    err.print(text, highlight=False, markup=False, soft_wrap=True)


def print_bounds(bounds: list[Bound], as_json: bool) -> None:
    """Bounds as sentences, or as one JSON document."""
    if as_json:
        print_json({"bounds": [bound.to_dict() for bound in bounds]})
        return
    for bound in bounds:
        say(str(bound))


def print_certificate(certificate: Certificate, as_json: bool, written: Path | None) -> NoReturn:
    """A verdict, and the exit code that goes with it."""
    if as_json:
        print_json(certificate.to_dict() | {"written": None if written is None else str(written)})
    else:
        say(str(certificate))
        if written is not None:
            say(f"wrote {written}")
    raise typer.Exit(0 if certificate.holds else 1)


def print_json(data: dict[str, Any]) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False, indent=1) + "\n")


def read_target(embeddings: Path, edges: Path, vocabulary: Path | None) -> RelationTarget:
    """Relations on embeddings, from files."""
    tokens = read_embeddings(embeddings)
    names = None if vocabulary is None else read_vocabulary(vocabulary)
    if names is not None and len(names) != len(tokens):
        raise InputFileError(f"{vocabulary}: {len(names)} tokens for {len(tokens)} embeddings")
    return relation_target(tokens, read_pairs(edges, len(tokens), names), names)


def read_pairs(edges: Path, items: int, names: tuple[str, ...] | None) -> IntArray:
    """The pairs of a file, by index or by name; a header is skipped and said so."""
    found = read_edges(edges, items, names)
    if found.header is not None:
        complain(f"{edges}: skipped the header {found.header}")
    return found.edges
