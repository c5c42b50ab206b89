"""Reading embeddings, vocabularies and edges from files; every refusal names file and place."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from bounds.errors import ArgumentError
from constructions.attention import FloatArray, checked_array
from constructions.relations import IntArray, RelationTarget, checked_edges, relation_target

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_ROWS = 1 << 10  # of a text file, turned into items at once


class InputFileError(ValueError):
    """A file that a user named cannot be read as what it should be."""


@dataclass(frozen=True)
class EdgeFile:
    """Edges (m', 2), and the header row that was skipped, if there was one."""

    edges: IntArray
    header: tuple[str, str] | None


def read_embeddings(path: Path) -> FloatArray:
    """Embeddings (m, d_model) from ``.npy``, ``.npz`` or ``.safetensors``.

    In a file of several arrays the one named "embeddings" is taken, or the only one.
    """
    suffix = path.suffix.lower()
    if suffix == ".npy":
        array = _numpy_load(path)
    elif suffix == ".npz":
        array = _chosen(_npz_arrays(path), path)
    elif suffix == ".safetensors":
        array = _chosen(_safetensors_arrays(path), path)
    else:
        raise InputFileError(f"{path}: embeddings must be .npy, .npz or .safetensors")
    return checked_array(array, f"embeddings in {path}", 2)


def read_vocabulary(path: Path) -> tuple[str, ...]:
    """One token a line, in the order of the embeddings' rows; no token twice."""
    lines = _text(path).split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    if not lines:
        raise InputFileError(f"{path}: the vocabulary is empty")
    seen: dict[str, int] = {}
    for number, token in enumerate(lines, start=1):
        if token in seen:
            raise InputFileError(
                f"{path}, line {number}: {token!r} stands in line {seen[token]} too"
            )
        seen[token] = number
    return tuple(lines)


def read_edges(path: Path, items: int, vocabulary: Sequence[str] | None = None) -> EdgeFile:
    """Edges from ``.csv``, ``.tsv`` (two columns) or ``.npy`` ((m', 2) integers).

    Cells are indices in [0, items), or tokens when a vocabulary is given. A first row is a header
    when neither cell is an index (a token of the vocabulary), a number, or empty; it is returned,
    not dropped silently. Line ends of any kind, a byte-order mark and blank lines are allowed.
    Every row is checked, and the first wrong one is named; a million rows take a second or two.
    """
    suffix = path.suffix.lower()
    if suffix == ".npy":
        try:
            return EdgeFile(checked_edges(_numpy_load(path), items), None)
        except ArgumentError as failure:
            raise InputFileError(f"{path}: {failure}") from None
    if suffix not in _DELIMITERS:
        raise InputFileError(f"{path}: edges must be .csv, .tsv or .npy")
    lines = _text(path).split("\n")
    index = None if vocabulary is None else {token: i for i, token in enumerate(vocabulary)}
    found = _edges_at_once(
        csv.reader(lines, delimiter=_DELIMITERS[suffix], strict=True), items, index
    )
    if found is None:  # something is amiss: row by row, to name the place
        found = _edges_by_row(path, _rows(path, lines, _DELIMITERS[suffix]), items, index)
    return found


class _Items(dict[str, int]):
    """The item of each cell met so far, 0 or above; ``KeyError`` for a cell that is none."""

    def __init__(self, index: dict[str, int] | None) -> None:
        super().__init__(index or {})
        self._index = index

    def __missing__(self, cell: str) -> int:
        item = _item(_cell(cell, self._index), self._index)
        if item is None or item < 0:
            raise KeyError(cell)
        self[cell] = item
        return item


def _edges_at_once(
    reader: Iterator[list[str]], items: int, index: dict[str, int] | None
) -> EdgeFile | None:
    """The edges of a file in which every row is right; ``None`` for any other."""
    item_of = _Items(index)
    rows: Iterator[list[str]] = (
        row for row in reader if len(row) == 2 or not _is_blank(row, index)
    )
    header: tuple[str, str] | None = None
    parts: list[IntArray] = [np.zeros(0, dtype=np.int64)]
    try:
        first = next(rows, [])
        if len(first) == 2 and _is_header(first, index):
            header = _cell(first[0], index), _cell(first[1], index)
        else:
            rows = chain([first], rows)
        while cells := [cell for one, two in islice(rows, _ROWS) for cell in (one, two)]:
            if index is None and _are_digits(cells):
                parts.append(np.array([int(cell) for cell in cells], dtype=np.int64))
            else:
                parts.append(np.fromiter(map(item_of.__getitem__, cells), np.int64, len(cells)))
    except (csv.Error, ValueError, KeyError):  # not two cells, or a cell that is no item
        return None
    edges = np.concatenate(parts).reshape(-1, 2)
    if len(edges) == 0 or edges.max() >= items:
        return None
    keys = np.sort(edges @ np.array([items, 1]))
    return None if (keys[1:] == keys[:-1]).any() else EdgeFile(edges, header)


def _edges_by_row(
    path: Path, rows: Iterator[tuple[int, list[str]]], items: int, index: dict[str, int] | None
) -> EdgeFile:
    """The edges, or the first row that is wrong."""
    header: tuple[str, str] | None = None
    pairs: list[tuple[int, int]] = []
    seen: dict[tuple[int, int], int] = {}
    for line, row in rows:
        if _is_blank(row, index):
            continue
        cells = [_cell(cell, index) for cell in row]
        place = f"{path}, line {line}"
        if len(cells) != 2:
            raise InputFileError(f"{place}: {len(cells)} columns where two are needed: {row}")
        if not pairs and header is None and _is_header(row, index):
            header = cells[0], cells[1]
            continue
        found = [_item(cell, index) for cell in cells]
        pair = _checked_pair(cells, found, items, index is not None, place)
        if pair in seen:
            raise InputFileError(f"{place}: the edge {cells} stands in line {seen[pair]} too")
        seen[pair] = line
        pairs.append(pair)
    if not pairs:
        raise InputFileError(f"{path}: no edges")
    return EdgeFile(np.array(pairs, dtype=np.int64), header)


def token_example() -> RelationTarget:
    """The shipped example: real token embeddings and their singular→plural relations."""
    folder = files("verification.token_example")
    with (
        as_file(folder / "tokens.safetensors") as tensors,
        as_file(folder / "vocabulary.txt") as words,
    ):
        embeddings, vocabulary = read_embeddings(tensors), read_vocabulary(words)
    with as_file(folder / "singular_plural.csv") as pairs:
        edges = read_edges(pairs, len(embeddings), vocabulary).edges
    return relation_target(embeddings, edges, vocabulary)


def _cell(cell: str, index: dict[str, int] | None) -> str:
    """A token of the vocabulary as it stands; anything else without the space around it."""
    return cell if index is not None and cell in index else cell.strip()


def _are_digits(cells: list[str]) -> bool:
    """Whether each cell is at most 18 digits and nothing else; ``int`` refuses an empty one."""
    joined = "".join(cells)
    return joined.isascii() and joined.isdigit() and max(map(len, cells)) <= 18


def _is_blank(row: list[str], index: dict[str, int] | None) -> bool:
    return not row or (len(row) == 1 and not _cell(row[0], index))


def _is_header(row: list[str], index: dict[str, int] | None) -> bool:
    cells = [_cell(cell, index) for cell in row]
    return all(_item(cell, index) is None and not _is_numeric_or_empty(cell) for cell in cells)


def _item(cell: str, index: dict[str, int] | None) -> int | None:
    if index is not None:
        return index.get(cell)
    return int(cell) if re.fullmatch(r"[+-]?[0-9]{1,18}", cell) else None


def _is_numeric_or_empty(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return not cell
    return True


def _rows(path: Path, lines: list[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as failure:
        raise InputFileError(f"{path}, line {reader.line_num}: {failure}") from None


def _checked_pair(
    cells: list[str], found: list[int | None], items: int, by_token: bool, place: str
) -> tuple[int, int]:
    pair = []
    for cell, item in zip(cells, found, strict=True):
        if item is None:
            kind = "a token of the vocabulary" if by_token else "an index"
            shown = cell if len(cell) <= 60 else f"{cell[:50]}... ({len(cell)} characters)"
            raise InputFileError(f"{place}: {shown!r} is not {kind}")
        if not 0 <= item < items:
            raise InputFileError(f"{place}: {item} is not an item: there are {items}, from 0")
        pair.append(item)
    return pair[0], pair[1]


def _text(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise InputFileError(f"{path}: not UTF-8 text ({failure})") from None
    except OSError as failure:
        raise InputFileError(f"{path}: {failure.strerror}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _numpy_load(path: Path) -> NDArray[Any]:
    # opened here, because numpy leaves the file of a damaged archive open
    with _refused(path, "numpy data"), path.open("rb") as file:
        found = np.load(file, allow_pickle=False)
        if not isinstance(found, np.ndarray):
            found.close()
            raise ValueError("an archive where one array is needed: name it .npz")
        return found


def _npz_arrays(path: Path) -> dict[str, NDArray[Any]]:
    with _refused(path, "numpy data"), path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("not an .npz archive")
        with archive:
            return {name: archive[name] for name in archive.files}


def _safetensors_arrays(path: Path) -> dict[str, NDArray[Any]]:
    with _refused(path, "safetensors"), safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@contextmanager
def _refused(path: Path, kind: str) -> Iterator[None]:
    """Whatever a decoder raises on a damaged file, said as one error that names the file."""
    try:
        yield
    except Exception as failure:
        text = str(failure) or type(failure).__name__
        raise InputFileError(f"{path}: cannot be read as {kind}: {text}") from None


def _chosen(arrays: dict[str, NDArray[Any]], path: Path) -> NDArray[Any]:
    if "embeddings" in arrays:
        return arrays["embeddings"]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise InputFileError(
        f"{path}: holds {sorted(arrays)}; name the array of embeddings 'embeddings'"
    )
