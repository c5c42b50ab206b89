"""Reading what users bring: every file is read as it says, or refused with its name and place."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from bounds.errors import ArgumentError
from verification import reading
from verification.reading import (
    InputFileError,
    read_edges,
    read_embeddings,
    read_vocabulary,
    token_example,
)

BOM = b"\xef\xbb\xbf"


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


GOOD: dict[str, tuple[str, str | bytes, tuple[str, str] | None]] = {
    "plain": ("e.csv", "0,1\n2,0\n", None),
    "no last line end": ("e.csv", "0,1\n2,0", None),
    "header": ("e.csv", "source,target\n0,1\n2,0\n", ("source", "target")),
    "quoted header": ("e.csv", '"source, the","target"\n0,1\n2,0\n', ("source, the", "target")),
    "crlf": ("e.csv", "0,1\r\n2,0\r\n", None),
    "cr": ("e.csv", "0,1\r2,0\r", None),
    "bom": ("e.csv", BOM + b"0,1\n2,0\n", None),
    "bom and header": ("e.csv", BOM + b"from,to\r\n0,1\r\n2,0\r\n", ("from", "to")),
    "blank lines": ("e.csv", "\n\n0,1\n   \n2,0\n\n", None),
    "header after blank lines": ("e.csv", "\n \na,b\n0,1\n2,0\n", ("a", "b")),
    "quotes": ("e.csv", '"0","1"\n2,"0"\n', None),
    "spaces": ("e.csv", " 0 , 1\n2 ,0 \n", None),
    "signs and zeros": ("e.csv", "+0,01\n2,-0\n", None),
    "tabs": ("e.tsv", "0\t1\n2\t0\n", None),
    "tabs and header": ("e.TSV", "a,x\tb\n0\t1\n2\t0\n", ("a,x", "b")),
}


@pytest.mark.parametrize("name", GOOD)
def test_edges_by_index(tmp_path: Path, name: str) -> None:
    file, content, header = GOOD[name]
    found = read_edges(written(tmp_path, file, content), 3)
    assert found.edges.tolist() == [[0, 1], [2, 0]]
    assert found.edges.dtype == np.int64
    assert found.header == header


BAD: dict[str, tuple[str, str | bytes, str]] = {
    "negative": ("e.csv", "0,1\n-1,2\n", "line 2: -1 is not an item: there are 3"),
    "negative in the first line": ("e.csv", "-1,2\n", "line 1: -1"),
    "out of range": ("e.csv", "0,1\n\n1,3\n", "line 3: 3 is not an item"),
    "duplicate": ("e.csv", "a,b\n0,1\n1,2\n0,1\n", "line 4: the edge .* stands in line 2 too"),
    "duplicate in other words": ("e.csv", "0,1\n 00,+1\n", "line 2: .* line 1"),
    "three columns": ("e.csv", "0,1\n1,2,3\n", "line 2: 3 columns"),
    "one column": ("e.csv", "0,1\n1\n", "line 2: 1 columns"),
    "wrong delimiter": ("e.tsv", "0,1\n", "line 1: 1 columns"),
    "semicolons": ("e.csv", "0;1\n", "line 1: 1 columns"),
    "word later": ("e.csv", "0,1\nx,y\n", "line 2: 'x' is not an index"),
    "half a header": ("e.csv", "0,target\n1,2\n", "line 1: 'target' is not an index"),
    "two headers": ("e.csv", "a,b\nc,d\n0,1\n", "line 2: 'c' is not an index"),
    "floats": ("e.csv", "0.0,1.0\n0,1\n", "line 1: '0.0' is not an index"),
    "nan": ("e.csv", "nan,nan\n0,1\n", "line 1: 'nan'"),
    "underscores": ("e.csv", "0,1_0\n", "line 1: '1_0'"),
    "other digits": ("e.csv", "0,٢\n", "line 1: '٢'"),
    "empty cells": ("e.csv", ",\n0,1\n", "line 1: '' is not an index"),
    "empty cells later": ("e.csv", "0,1\n,\n", "line 2: '' is not an index"),
    "one empty cell": ("e.csv", "0,1\n2,\n", "line 2: '' is not an index"),
    "long digits": ("e.csv", "0," + "9" * 5000, "line 1: .* is not an index"),
    "empty": ("e.csv", "", "no edges"),
    "only a bom": ("e.csv", BOM, "no edges"),
    "only a header": ("e.csv", "source,target\n", "no edges"),
    "only blanks": ("e.csv", "\n \n\n", "no edges"),
    "open quote": ("e.csv", '0,1\n"1,2\n2,0\n', "line [234]: .*"),
    "text after quote": ("e.csv", '0,1\n"1"x,2\n', "line 2"),
    "huge cell": ("e.csv", "0,1\n" + "x" * 200_000 + ",1\n", "line 2: field larger"),
    "utf-16": ("e.csv", "0,1\n".encode("utf-16"), "not UTF-8"),
    "utf-16 without bom": ("e.csv", "0,1\n2,0\n".encode("utf-16-le"), "line [12]|no edges"),
    "latin-1": ("e.csv", b"\xe9,1\n", "not UTF-8"),
    "suffix": ("e.txt", "0,1\n", "must be .csv, .tsv or .npy"),
    "no suffix": ("edges", "0,1\n", "must be .csv, .tsv or .npy"),
    "npy of text": ("e.npy", "0,1\n", "cannot be read as numpy"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_edges_are_refused_with_their_place(tmp_path: Path, name: str) -> None:
    file, content, message = BAD[name]
    path = written(tmp_path, file, content)
    with pytest.raises(InputFileError, match=message) as failure:
        read_edges(path, 3)
    assert str(failure.value).startswith(str(path))
    assert len(str(failure.value)) < 300 + 5000 * (name == "long digits")


def test_missing_files(tmp_path: Path) -> None:
    for read in (read_embeddings, read_vocabulary, lambda path: read_edges(path, 3)):
        for name in ("none.csv", "none.npy", "none.npz", "none.safetensors"):
            with pytest.raises(InputFileError, match="none"):
                read(tmp_path / name)
    with pytest.raises(InputFileError, match="directory"):
        read_vocabulary(tmp_path)


# ---------------------------------------------------------------- by token

WORDS = ["cat", "cats", " the", "a,b", "3", "0", "naïve", 'say "x"', "x y", "日本"]


def test_edges_by_token(tmp_path: Path) -> None:
    text = 'singular,plural\ncat,cats\n cat , the\n"a,b",3\n0,"say ""x"""\nnaïve,日本\n'
    found = read_edges(written(tmp_path, "e.csv", text), len(WORDS), WORDS)
    assert found.header == ("singular", "plural")
    wanted = [("cat", "cats"), ("cat", " the"), ("a,b", "3"), ("0", 'say "x"'), ("naïve", "日本")]
    assert found.edges.tolist() == [[WORDS.index(a), WORDS.index(b)] for a, b in wanted]


def test_tokens_that_look_like_numbers_are_tokens(tmp_path: Path) -> None:
    """ "3" is the item with that name (4), not the item with that index; "1" is no token at all."""
    found = read_edges(written(tmp_path, "e.csv", "3,0\n"), len(WORDS), WORDS)
    assert found.edges.tolist() == [[4, 5]]
    with pytest.raises(InputFileError, match="line 1: '1' is not a token"):
        read_edges(written(tmp_path, "e.csv", "1,2\n3,0\n"), len(WORDS), WORDS)


@pytest.mark.parametrize(
    ("text", "message"),
    [("cat,dog\n", "line 1: 'dog' is not a token"), ("cat,cats\ndog,cat\n", "line 2: 'dog'"),
     ("Cat,Cats\n", "no edges"), ("a,b,3\n", "line 1: 3 columns"),
     ("cat,cats\ncat , cats\n", "line 2: the edge .* line 1"), ("cat,\n", "line 1: ''")],
)  # fmt: skip
def test_bad_tokens(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputFileError, match=message):
        read_edges(written(tmp_path, "e.csv", text), len(WORDS), WORDS)


def test_an_empty_token_is_not_a_blank_line(tmp_path: Path) -> None:
    path = written(tmp_path, "e.csv", '"",b\n"",""\n')
    assert read_edges(path, 2, ["", "b"]).edges.tolist() == [[0, 1], [0, 0]]


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1, max_size=5)


@given(
    st.lists(CELLS, min_size=2, max_size=6, unique_by=str.strip),
    st.data(),
    st.sampled_from([",", "\t"]),
)
def test_whatever_the_csv_module_writes_is_read(
    tmp_path_factory: Any, words: list[str], data: Any, delimiter: str
) -> None:
    cells = st.integers(0, len(words) - 1)
    edges = data.draw(st.lists(st.tuples(cells, cells), min_size=1, unique=True))
    text = io.StringIO()
    writer = csv.writer(
        text, delimiter=delimiter, lineterminator=data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    )
    writer.writerows([words[i], words[j]] for i, j in edges)
    folder = tmp_path_factory.mktemp("edges")
    path = written(folder, "e.csv" if delimiter == "," else "e.tsv", text.getvalue())
    found = read_edges(path, len(words), words)
    assert found.edges.tolist() == [list(edge) for edge in edges]
    assert found.header is None


PIECES = [
    "0",
    "1",
    "2",
    "02",
    "+1",
    "-1",
    "3",
    "x",
    " x",
    "",
    " ",
    "1_0",
    "٢",
    "0.5",
    '"1"',
    '"a,b"',
    "9" * 19,
]
ROWS = st.lists(st.sampled_from(PIECES), min_size=2, max_size=2).map(",".join)
ODD_ROWS = st.sampled_from(
    ["", " ", '""', "1", "0,1,2", "source,target", '"0', "0\t1", ",", '"x"y,1']
)


@given(
    st.lists(ROWS | ROWS | ODD_ROWS, max_size=6), st.sampled_from([None, ["0", " x", "", "a,b"]])
)
def test_reading_at_once_is_reading_by_row(
    tmp_path_factory: Any, rows: list[str], words: list[str] | None
) -> None:
    path = written(tmp_path_factory.mktemp("edges"), "e.csv", "\n".join(rows))
    for items in (3, 4):
        outcomes = []
        for at_once in (reading._edges_at_once, lambda *_: None):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(reading, "_edges_at_once", at_once)
                try:
                    found = read_edges(path, items, words)
                except InputFileError as failure:
                    outcomes.append(str(failure))
                else:
                    outcomes.append(repr((found.edges.tolist(), found.header)))
        assert outcomes[0] == outcomes[1]


def right_rows(count: int) -> list[str]:
    return [f"{i},{(i * i + 7) % count}" for i in range(count)]


@pytest.mark.parametrize(
    ("place", "row", "message"),
    [(2999, "0,7", "line 3001: the edge .* stands in line 2 too"), (2500, "1,3000", "line 2502: 3000"),
     (1024, "5", "line 1026: 1 columns"), (2048, "x,1", "line 2050: 'x'"), (1, '"2', "line 3001: unexpected"),
     (7, "0,1000000000000000000000", "line 9: '1000000000000000000000' is not"),
     (1023, "1,-2", "line 1025: -2")],
)  # fmt: skip
def test_a_wrong_row_anywhere_is_found(tmp_path: Path, place: int, row: str, message: str) -> None:
    rows = right_rows(3000)
    right = read_edges(written(tmp_path, "e.csv", "\n".join(["a,b", *rows])), 3000)
    assert right.edges.tolist() == [[int(cell) for cell in row.split(",")] for row in rows]
    rows[place] = row
    with pytest.raises(InputFileError, match=message):
        read_edges(written(tmp_path, "e.csv", "\n".join(["a,b", *rows])), 3000)


def test_many_edges_are_read_at_once(tmp_path: Path, monkeypatch: Any) -> None:
    """Headers, blank lines, quotes, spaces and signs included: never row by row."""
    monkeypatch.delattr(reading, "_edges_by_row")
    rows = right_rows(50_000)
    rows[100], rows[200], rows[300] = '"7", +9 ', "", "  "
    path = written(tmp_path, "e.csv", "\r\n".join(["source,target", *rows, ""]))
    words = [f"word {i}" for i in range(50_000)]
    start = time.process_time()
    found = read_edges(path, 50_000)
    named = written(
        tmp_path, "w.tsv", "".join(f"{words[i]}\t {words[j]} \n" for i, j in found.edges.tolist())
    )
    assert np.array_equal(read_edges(named, 50_000, words).edges, found.edges)
    assert time.process_time() - start < 3
    assert len(found.edges) == 49_998
    assert found.edges[100].tolist() == [7, 9]


# ---------------------------------------------------------------- vocabulary


@pytest.mark.parametrize(
    "content", ["a\n b\nc,d\n", "a\r\n b\r\nc,d", "a\r b\rc,d\r", BOM + b"a\n b\nc,d\n"]
)
def test_vocabulary(tmp_path: Path, content: str | bytes) -> None:
    assert read_vocabulary(written(tmp_path, "v.txt", content)) == ("a", " b", "c,d")


def test_vocabulary_keeps_odd_tokens(tmp_path: Path) -> None:
    """Only line feeds end a token: other separators and an empty line are tokens."""
    text = "a\u2028b\n\n\x0c\n\x85\n"
    assert read_vocabulary(written(tmp_path, "v.txt", text)) == ("a\u2028b", "", "\x0c", "\x85")


@pytest.mark.parametrize(
    ("content", "message"),
    [("a\nb\na\n", "line 3: 'a' stands in line 1 too"), ("", "empty"), (BOM, "empty"),
     ("a\nb\n".encode("utf-16"), "not UTF-8"), ("a\n\n\n", "line 3: '' stands in line 2")],
)  # fmt: skip
def test_bad_vocabularies(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = written(tmp_path, "v.txt", content)
    with pytest.raises(InputFileError, match=message) as failure:
        read_vocabulary(path)
    assert str(failure.value).startswith(str(path))


# ---------------------------------------------------------------- arrays

X = np.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i1", "u4", "i8", "?"])
def test_embeddings_of_any_real_dtype(tmp_path: Path, dtype: str) -> None:
    array = X.astype(dtype)
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "x.npz", array)
    np.savez_compressed(tmp_path / "named.npz", embeddings=array, other=np.ones(3))
    names = ["x.npy", "x.npz", "named.npz"]
    if dtype != ">f8":  # safetensors has no byte order
        save_file({"anything": array}, tmp_path / "x.safetensors")
        save_file({"embeddings": array, "other": np.ones(3)}, tmp_path / "named.safetensors")
        names += ["x.safetensors", "named.safetensors"]
    for name in names:
        found = read_embeddings(tmp_path / name)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, array.astype(np.float64))


def test_fortran_order_and_capital_suffixes(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.asfortranarray(X))
    (tmp_path / "x.npy").rename(tmp_path / "x.NPY")
    np.testing.assert_array_equal(read_embeddings(tmp_path / "x.NPY"), X)


def test_bad_arrays_name_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "object.npy", np.array([[1, None]], dtype=object), allow_pickle=True)
    np.save(tmp_path / "flat.npy", np.ones(3))
    np.save(tmp_path / "complex.npy", X * 1j)
    np.save(tmp_path / "nan.npy", X / X.sum(axis=1, keepdims=True) * np.nan)
    np.save(tmp_path / "text.npy", np.array([["a", "b"]]))
    np.savez(tmp_path / "two.npz", a=X, b=X)
    np.savez(tmp_path / "none.npz")
    np.savez(tmp_path / "object.npz", np.array([[1, None]], dtype=object), allow_pickle=True)
    (tmp_path / "archive.npy").write_bytes((tmp_path / "two.npz").read_bytes())
    (tmp_path / "array.npz").write_bytes((tmp_path / "flat.npy").read_bytes())
    save_file({"a": X, "b": X}, tmp_path / "two.safetensors")
    written(tmp_path, "empty.npy", "")
    written(tmp_path, "empty.npz", "")
    written(tmp_path, "empty.safetensors", "")
    written(tmp_path, "x.csv", "1,2\n")
    written(tmp_path, "x", "1,2\n")
    (tmp_path / "folder.npy").mkdir()
    messages = {
        "two.npz": r"holds \['a', 'b'\]", "two.safetensors": r"holds \['a', 'b'\]", "none.npz": r"holds \[\]",
        "archive.npy": "name it .npz", "array.npz": "not an .npz", "x.csv": "must be .npy", "x": "must be .npy",
    }  # fmt: skip
    for path in sorted(tmp_path.iterdir()):
        message = messages.get(path.name, "embeddings|cannot be read")
        with pytest.raises((InputFileError, ArgumentError), match=message) as failure:
            read_embeddings(path)
        assert str(path) in str(failure.value)


def test_bfloat16_is_read_or_refused(tmp_path: Path) -> None:
    header = b'{"x":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}}'
    content = len(header).to_bytes(8, "little") + header + b"\x80\x3f\x00\x40"
    path = written(tmp_path, "x.safetensors", content)
    try:
        found = read_embeddings(path)
    except (InputFileError, ArgumentError) as failure:
        assert str(path) in str(failure)  # noqa: PT017
    else:
        np.testing.assert_array_equal(found, [[1.0, 2.0]])


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors"])
def test_damaged_arrays_are_refused_or_read(tmp_path: Path, suffix: str) -> None:
    """Whatever byte is changed or cut: an array, or an error of ours that names the file."""
    path = tmp_path / f"x.{suffix}"
    if suffix == "npy":
        np.save(path, X)
    elif suffix == "npz":
        np.savez_compressed(path, X)
    else:
        save_file({"embeddings": X}, path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for trial in range(400):
        damaged = bytearray(content[: len(content) if trial % 2 else rng.integers(len(content))])
        for place in rng.integers(len(damaged), size=rng.integers(1, 4)) if damaged else ():
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            found = read_embeddings(path)
        except (InputFileError, ArgumentError) as failure:
            assert str(path) in str(failure)  # noqa: PT017
            refused += 1
        else:
            assert found.ndim == 2
            assert np.isfinite(found).all()
    assert refused > 150


def test_edges_as_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "e.npy", np.array([[2, 0], [0, 1]], dtype=np.uint16))
    assert read_edges(tmp_path / "e.npy", 3).edges.tolist() == [[0, 1], [2, 0]]
    for array, message in [
        (np.array([[0.0, 1.0]]), "integer dtype"), (np.array([[0, 3]]), r"\[0, 3\]"),
        (np.array([[0, 1], [0, 1]]), "duplicate"), (np.zeros((0, 2), dtype=int), "at least one"),
        (np.array([0, 1]), "shape"), (np.array([["a", "b"]]), "integer dtype"),
    ]:  # fmt: skip
        np.save(tmp_path / "e.npy", array)
        with pytest.raises(InputFileError, match=rf"e\.npy.*{message}"):
            read_edges(tmp_path / "e.npy", 3)


def test_the_shipped_example() -> None:
    target = token_example()
    assert target.names is not None
    assert len(set(target.names)) == target.items
    assert target.relations > 100
    named = {(target.names[i], target.names[j]) for i, j in target.edges}
    assert all(singular != plural for singular, plural in named)
    norms = np.linalg.norm(target.embeddings, axis=1)
    assert norms.min() > 0
