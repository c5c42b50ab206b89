"""The command: exit codes, pure JSON, and files that appear only when a layer was verified."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from bounds import Ball, Bound, key_dimension
from constructions import AttentionLayer, load, relation_target, save
from verification import command_line, console, layer_commands
from verification.command_line import app, main
from verification.finding import Finding
from verification.layer_size import layer_size

WORDS = ["cat", "cats", "dog", "dogs", "a,b", "3"]
SCRIPT = Path(sys.executable).with_name("attention-bounds")


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    """``main()`` in this process: exit code, stdout, stderr."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["attention-bounds", *map(str, arguments)])
        patch.setattr(console, "out", Console(width=200))
        patch.setattr(console, "err", Console(stderr=True, width=200))
        with pytest.raises(SystemExit) as stopped:
            main()
    seen = capsys.readouterr()
    code = stopped.value.code
    assert isinstance(code, int) or code is None
    return code or 0, seen.out, seen.err


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 4))
    np.save(tmp_path / "x.npy", x / np.linalg.norm(x, axis=1, keepdims=True))
    (tmp_path / "words.txt").write_text("\n".join(WORDS) + "\n")
    (tmp_path / "edges.csv").write_text("0,1\n2,3\n4,5\n")
    (tmp_path / "named.csv").write_text('singular,plural\ncat,cats\ndog,dogs\n"a,b",3\n')
    return tmp_path


def pair(files: Path) -> list[Any]:
    return ["--embeddings", files / "x.npy", "--edges", files / "edges.csv"]


def built(files: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    out = files / "layer.safetensors"
    code, _, _ = run(
        capsys, "build", "relations", *pair(files), "--method", "rank-one", "--out", out
    )
    assert code == 0
    return out


# ---------------------------------------------------------------- figures


def test_heads(capsys: pytest.CaptureFixture[str]) -> None:
    """The reference values of H2."""
    for d, r, error, values, wanted in [
        (16, 4, "1/10", "general", 27),
        (16, 4, "0.1", "scalar", 130),
        (64, 8, "1/10", "general", 2355),
        (64, 16, "1/20", "scalar", 775586125),
    ]:
        code, out, _ = run(
            capsys, "heads", "--dim", d, "--rank", r, "--error", error, "--values", values, "--json"
        )
        found = [Bound.from_json(json.dumps(data)) for data in json.loads(out)["bounds"]]
        assert code == 0
        assert found[0].value == wanted
        assert found[1].quantity == "softmax scale"
    code, out, _ = run(capsys, "heads", "--dim", 16, "--rank", 4, "--error", "1/10")
    assert code == 0
    assert "27" in out


def test_capacity(capsys: pytest.CaptureFixture[str]) -> None:
    """The table of C1."""
    for m, d, bits, wanted in [
        (256, 16, 16, 4),
        (256, 16, 8, 7),
        (256, 16, 1, 53),
        (1024, 64, 8, 9),
    ]:
        code, out, _ = run(
            capsys, "capacity", "--items", m, "--d-model", d, "--bits", bits, "--json"
        )
        (found,) = (Bound.from_json(json.dumps(data)) for data in json.loads(out)["bounds"])
        assert code == 0
        assert found.value == wanted
    code, out, _ = run(
        capsys, "capacity", "--items", 100, "--d-model", 8, "--bits", 8,
        "--family", "digraph", "--relations", 50,
    )  # fmt: skip
    assert code == 0
    assert out.startswith("realizing every directed graph with 50 relations on 100 items")


CAPACITY: list[tuple[list[Any], dict[str, Any], dict[str, Any], str]] = [
    # arguments, the same for the function, candidates, winner
    ([1024, 64], {}, {"C2": 4}, "C2"),
    ([1024, 64, "--bits", 8], {"bits": 8}, {"C2": 4, "C1": 9}, "C1"),
    ([256, 16, "--bits", 16], {"bits": 16}, {"C2": 4, "C1": 4}, "C2"),
    (
        [1024, 64, "--margin", "1/10", "--weight-norm", 2],
        {"margin": "1/10", "weight_norm": 2},
        {"C2": 4, "C3": 11, "C3 packing": 2},
        "C3",
    ),
    (
        [
            2**20,
            512,
            "--margin",
            "0.5",
            "--key-norm",
            "1/1",
            "--family",
            "out-degree",
            "--degree",
            1,
        ],
        {"margin": "0.5", "key_norm": "1", "family": "out-degree", "degree": 1},
        {},
        "",
    ),
    (
        [1024, 64, "--family", "regular", "--degree", 3, "--heads", 8],
        {"family": "regular", "degree": 3, "heads": 8},
        {},
        "C2",
    ),
]


@pytest.mark.parametrize(("arguments", "options", "candidates", "winner"), CAPACITY)
def test_capacity_shows_the_best_bound_and_all_others(
    capsys: pytest.CaptureFixture[str],
    arguments: list[Any],
    options: dict[str, Any],
    candidates: dict[str, Any],
    winner: str,
) -> None:
    items, d_model, *rest = arguments
    found = key_dimension(items, d_model, **options)
    full = ["capacity", "--items", items, "--d-model", d_model, *rest]
    code, out, _ = run(capsys, *full, "--json")
    data = json.loads(out)
    assert code == 0
    assert data["winner"] == found.winner
    assert not winner or found.winner == winner
    (best,) = (Bound.from_json(json.dumps(each)) for each in data["bounds"])
    others = {name: Bound.from_json(json.dumps(each)) for name, each in data["candidates"].items()}
    assert others == dict(found.candidates)
    assert best == others[data["winner"]] == found.best
    assert best.value == max(bound.value for bound in others.values())  # type: ignore[type-var]
    assert not candidates or {name: bound.value for name, bound in others.items()} == candidates
    code, out, _ = run(capsys, *full)
    first, second = out.splitlines()
    assert (code, first) == (0, str(found.best))
    assert second == f"winner: {found.winner}, of " + ", ".join(
        f"{name} ≥ {bound.value_text()}" for name, bound in found.candidates
    )


@pytest.mark.parametrize("by", ["index", "token"])
def test_capacity_of_a_graph_under_other_names(
    files: Path, capsys: pytest.CaptureFixture[str], by: str
) -> None:
    """Three separate relations on six items: 6!/3! relabelings."""
    source = ["--edges", files / "edges.csv"]
    if by == "token":
        source = ["--edges", files / "named.csv", "--vocabulary", files / "words.txt"]
    full = ["capacity", "--items", 6, "--d-model", 1, "--bits", 1, *source]
    for family in ([], ["--family", "relabelings"]):
        code, out, err = run(capsys, *full, *family, "--json")
        bound = Bound.from_json(json.dumps(json.loads(out)["candidates"]["C1"]))
        assert (code, bound.value) == (0, 4)  # log2(120) is between 6 and 7
        assert ("skipped the header" in err) == (by == "token")
    assert key_dimension(6, 1, "relabelings", edges=[(0, 1), (2, 3), (4, 5)], bits=1).value == 4


USAGE: dict[str, tuple[list[Any], str]] = {
    "no rank": (["heads", "--dim", 16, "--error", "1/10"], "--rank"),
    "rank text": (["heads", "--dim", 16, "--rank", "four", "--error", "1/10"], "--rank"),
    "large rank": (["heads", "--dim", 16, "--rank", 14, "--error", "1/10"], "r <= d - 3"),
    "zero rank": (["heads", "--dim", 16, "--rank", 0, "--error", "1/10"], "r = 0|rank = 0"),
    "negative error": (["heads", "--dim", 16, "--rank", 4, "--error=-1/10"], "error"),
    "error text": (["heads", "--dim", 16, "--rank", 4, "--error", "small"], "error = 'small'"),
    "values": (["heads", "--dim", 16, "--rank", 4, "--error", ".1", "--values", "v"], "values"),
    "items": (["capacity", "--items", 0, "--d-model", 16, "--bits", 8], "items = 0|m = 0"),
    "bits": (["capacity", "--items", 9, "--d-model", 16, "--bits", 0], "bits = 0"),
    "family": (
        ["capacity", "--items", 9, "--d-model", 16, "--bits", 8, "--family", "tree"],
        "family",
    ),
    "no relations": (
        ["capacity", "--items", 9, "--d-model", 2, "--bits", 8, "--family", "digraph"],
        "relations",
    ),
    "too few heads": (
        ["capacity", "--items", 1024, "--d-model", 4, "--heads", 1],
        "enough heads for the family",
    ),
    "no margin": (["capacity", "--items", 9, "--d-model", 2, "--key-norm", 1], "key_norm = '1'"),
    "large margin": (["capacity", "--items", 9, "--d-model", 2, "--margin", 2], "margin = 2"),
    "margin text": (["capacity", "--items", 9, "--d-model", 2, "--margin", "x"], "margin = 'x'"),
    "no degree": (["capacity", "--items", 9, "--d-model", 2, "--family", "regular"], "degree"),
    "no graph": (["capacity", "--items", 9, "--d-model", 2, "--family", "relabelings"], "edges"),
    "graph of a family": (
        ["capacity", "--items", 6, "--d-model", 2, "--family", "digraph", "--edges", "EDGES"],
        "edges = .*relabelings",
    ),
    "graph too large": (
        ["capacity", "--items", 5, "--d-model", 2, "--edges", "EDGES"],
        "5 is not an item",
    ),
    "words without a graph": (
        ["capacity", "--items", 6, "--d-model", 2, "--vocabulary", "WORDS"],
        "vocabulary",
    ),
    "too few words": (
        ["capacity", "--items", 7, "--d-model", 2, "--edges", "EDGES", "--vocabulary", "WORDS"],
        "6 tokens for 7 items",
    ),
    "command": (["solve"], "solve"),
    "option": (["check", "--fast"], "--fast"),
    "build what": (["build", "nothing"], "nothing"),
    "dim": (["build", "nearest-neighbor", "--dim", 0, "--out", "OUT"], "d = 0"),
    "build error": (
        ["build", "nearest-neighbor", "--dim", 8, "--error", 0, "--out", "OUT"],
        "error",
    ),
    "d = 2": (["build", "nearest-neighbor", "--dim", 2, "--error", ".1", "--out", "OUT"], "d >= 3"),
    "method": (
        ["build", "relations", "PAIR", "--method", "magic", "--out", "OUT"],
        "method = 'magic'",
    ),
    "key dim": (["build", "relations", "PAIR", "--key-dim", 0, "--out", "OUT"], "key_dim = 0"),
    "no embeddings": (
        ["build", "relations", "--embeddings", "nowhere.npy", "--edges", "e.csv", "--out", "OUT"],
        "nowhere.npy",
    ),
    "no edges": (
        ["build", "relations", "--embeddings", "X", "--edges", "nowhere.csv", "--out", "OUT"],
        "nowhere.csv",
    ),
    "no folder": (
        ["build", "nearest-neighbor", "--dim", 3, "--out", "OUT/deeper"],
        "no such folder",
    ),
    "verify nothing": (["verify", "nowhere.safetensors"], "nowhere.safetensors does not exist"),
    "verify an array": (["verify", "X"], "x.npy"),
}


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("name", USAGE)
def test_wrong_usage_is_exit_2_and_names_the_argument(
    files: Path, capsys: pytest.CaptureFixture[str], name: str, as_json: bool
) -> None:
    arguments, message = USAGE[name]
    out = files / "never"
    places = {"EDGES": files / "edges.csv", "WORDS": files / "words.txt"}
    places |= {"X": files / "x.npy", "OUT": out, "OUT/deeper": out / "deeper"}
    full: list[Any] = []
    for argument in arguments:
        full += pair(files) if argument == "PAIR" else [places.get(argument, argument)]
    before = sorted(files.iterdir())
    code, stdout, stderr = run(
        capsys, *full, *(["--json"] if as_json and name != "command" else [])
    )
    assert code == 2
    assert stdout == ""
    assert re.search(message, stderr)
    assert "Traceback" not in stderr
    assert sorted(files.iterdir()) == before


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--version")
    assert (code, out.split()[0]) == (0, "attention-bounds")
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for command in ("check", "heads", "capacity", "build", "verify"):
        assert command in out


# ---------------------------------------------------------------- build and verify


def test_nearest_neighbor(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hard, soft = files / "hard", files / "soft"
    code, out, _ = run(capsys, "build", "nearest-neighbor", "--dim", 5, "--out", hard)
    assert code == 0
    assert "verified" in out
    assert f"wrote {hard}" in out
    code, out, _ = run(
        capsys, "build", "nearest-neighbor", "--dim", 5, "--error", "1/10", "--out", soft, "--json"
    )
    data = json.loads(out)
    assert (code, data["verdict"], data["written"]) == (0, "verified", str(soft))
    assert Ball.parse(data["error"]["ball"]).upper < 0.1
    assert (load(hard).kind, load(soft).kind) == ("hard", "soft")
    for arguments, wanted, verdict in [
        ([hard], 0, "verified"),
        ([soft, "--error", "1/10"], 0, "verified"),
        ([soft, "--error", "1/1000"], 1, "refuted"),
        ([soft, "--error", "1/2", "--samples", 500], 0, "verified"),
        ([soft, "--error", "1/1000", "--samples", 100, "--seed", 3], 1, "undecided"),
        ([hard, "--error", "1/10", "--samples", 200, "--context", 5], 0, "verified"),
    ]:
        code, out, _ = run(capsys, "verify", *arguments, "--json")
        assert (code, json.loads(out)["verdict"]) == (wanted, verdict)
        code, out, _ = run(capsys, "verify", *arguments)
        assert code == wanted
        assert out.startswith(verdict)
    for arguments, message in [
        ([soft], "error"),
        ([soft, "--error", "x"], "error"),
        ([hard, "--samples", 5], "error"),
        ([hard, "--samples", 0, "--error", 1], "samples"),
        ([hard, "--samples", 5, "--error", 1, "--confidence", 2], "confidence"),
        ([hard, "--embeddings", files / "x.npy"], "embeddings, edges"),
        ([hard, *pair(files)], "threshold"),
    ]:
        code, out, err = run(capsys, "verify", *arguments)
        assert (code, out) == (2, "")
        assert message in err


def test_an_error_that_any_scale_reaches(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For errors from 1/2 on the sufficient scale is 0, which is no scale of a layer."""
    out = files / "layer"
    code, _, _ = run(capsys, "build", "nearest-neighbor", "--dim", 4, "--error", ".6", "--out", out)
    assert code == 0
    assert load(out).kind == "soft"


@pytest.mark.parametrize("method", ["rank-one", "compact"])
@pytest.mark.parametrize("by", ["index", "token"])
def test_relations(files: Path, capsys: pytest.CaptureFixture[str], method: str, by: str) -> None:
    out = files / "layer.safetensors"
    source = pair(files)
    if by == "token":
        source = [
            *pair(files)[:2],
            "--edges",
            files / "named.csv",
            "--vocabulary",
            files / "words.txt",
        ]
    code, stdout, stderr = run(
        capsys,
        "build",
        "relations",
        *source,
        "--method",
        method,
        "--seed",
        2,
        "--json",
        "--out",
        out,
    )
    data = json.loads(stdout)
    assert (code, data["verdict"], data["checked"], data["seed"]) == (0, "verified", 36, 2)
    assert ("skipped the header ('singular', 'plural')" in stderr) == (by == "token")
    layer = load(out)
    target = relation_target(np.load(files / "x.npy"), [[0, 1], [2, 3], [4, 5]])
    np.testing.assert_array_equal(layer.recognize(target.embeddings), target.rows(0, 6))
    code, stdout, _ = run(capsys, "verify", out, *source)
    assert code == 0
    assert stdout.startswith("verified: the layer recognizes exactly the 3 relations among 6 items")


def test_a_wrong_layer_is_refuted_with_the_pair(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = built(files, capsys)
    (files / "named.csv").write_text("cat,cats\ndog,dogs\n")
    source = [*pair(files)[:2], "--edges", files / "named.csv", "--vocabulary", files / "words.txt"]
    code, stdout, _ = run(capsys, "verify", out, *source)
    assert code == 1
    assert "refuted" in stdout
    assert "('a,b', '3')" in stdout
    assert "recognized, but no relation" in stdout
    code, stdout, _ = run(capsys, "verify", out, *source, "--json")
    data = json.loads(stdout)
    assert (code, data["counterexample"]["indices"], data["written"]) == (1, [4, 5], None)
    assert float(data["counterexample"]["score - threshold"]) > 0


def test_size_of_a_layer(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer = built(files, capsys)
    code, out, _ = run(capsys, "size", layer, *pair(files))
    assert code == 0
    first, second = out.splitlines()
    assert first.startswith("verified: the layer recognizes exactly the 3 relations")
    assert second.startswith("D_K = 3; every graph of the family: at least C2 ")
    code, out, _ = run(
        capsys, "size", layer, *pair(files), "--family", "out-degree", "--degree", 1, "--json"
    )
    found = json.loads(out)
    by_hand = layer_size(
        load(layer),
        relation_target(np.load(files / "x.npy"), [[0, 1], [2, 3], [4, 5]]),
        "out-degree",
        degree=1,
    )
    assert code == 0
    assert found == json.loads(json.dumps(by_hand.to_dict()))
    assert set(found["family_bounds"]) == {"C2", "C1", "C3", "C3 packing"}
    (files / "other.csv").write_text("0,1\n3,2\n")
    code, _, error = run(
        capsys, "size", layer, "--embeddings", files / "x.npy", "--edges", files / "other.csv"
    )
    assert code == 1
    assert "refuted" in error
    code, _, error = run(capsys, "size", layer, *pair(files), "--family", "permutation")
    assert code == 2
    assert "holds the target's graph" in error
    code, _, error = run(capsys, "size", layer, *pair(files), "--bits", 1)
    assert code == 2
    assert "bits" in error


def test_a_failed_build_writes_nothing(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = files / "layer.safetensors"
    out.write_bytes(b"old")
    x = np.load(files / "x.npy")
    x[3] = x[2]
    np.save(files / "twins.npy", x)
    code, stdout, stderr = run(
        capsys,
        "build",
        "relations",
        "--embeddings",
        files / "twins.npy",
        "--edges",
        files / "edges.csv",
        "--out",
        out,
    )
    assert (code, stdout) == (1, "")
    assert "items 2 and 3 have equal embeddings" in stderr
    np.save(files / "line.npy", np.arange(1.0, 7.0)[:, None])
    code, stdout, stderr = run(
        capsys,
        "build",
        "relations",
        "--embeddings",
        files / "line.npy",
        "--edges",
        files / "edges.csv",
        "--method",
        "rank-one",
        "--json",
        "--out",
        out,
    )
    assert (code, stdout) == (1, "")
    assert re.search("error: item .* does not stand out|error: the pair", stderr)
    assert out.read_bytes() == b"old"
    assert not [path for path in files.iterdir() if path.name.startswith(".")]


def test_a_layer_that_is_not_verified_is_not_written(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the builder returns, the judge decides."""
    real = layer_commands.relation_layer

    def worse(*arguments: Any, **options: Any) -> AttentionLayer:
        layer = real(*arguments, **options)
        return AttentionLayer(w_q=layer.w_q, w_k=layer.w_k, threshold=1e9)

    monkeypatch.setattr(layer_commands, "relation_layer", worse)
    out = files / "layer"
    code, stdout, stderr = run(capsys, "build", "relations", *pair(files), "--out", out)
    assert (code, stdout) == (1, "")
    assert "was not verified" in stderr
    assert not out.exists()


def test_mismatched_files(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "short.txt").write_text("cat\ncats\n")
    for arguments, message in [
        ([*pair(files), "--vocabulary", files / "short.txt"], "2 tokens for 6 embeddings"),
        ([*pair(files), "--vocabulary", files / "words.txt"], "line 1: '0' is not a token"),
        ([*pair(files)[:2], "--edges", files / "named.csv"], "line 2: 'cat' is not an index"),
        (["--embeddings", files / "edges.csv", "--edges", files / "edges.csv"], "must be .npy"),
    ]:
        out = files / "never"
        code, stdout, stderr = run(capsys, "build", "relations", *arguments, "--out", out)
        assert (code, stdout) == (2, "")
        assert message in stderr
        assert not out.exists()


def test_overflow_is_an_error_and_no_traceback(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    big = AttentionLayer(
        w_q=[1e300 * np.eye(2)], w_k=[np.eye(2)], w_v=[1e300 * np.eye(2)], w_o=[1e300 * np.eye(2)]
    )
    save(big, files / "big")
    code, stdout, stderr = run(capsys, "verify", files / "big", "--samples", 10, "--error", 1)
    assert (code, stdout) == (1, "")
    assert "overflow" in stderr
    assert "Traceback" not in stderr


# ---------------------------------------------------------------- the main job, and the real command


def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    """Once in full, as JSON; the table is made from the same findings."""
    code, out, _ = run(capsys, "check", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["holds"] is True
    assert len(data["findings"]) >= 7
    for finding in data["findings"]:
        assert finding["holds"] is True
        assert finding["evidence"]
        assert all(finding[key] for key in ("result", "subject", "bound", "built"))
    with pytest.MonkeyPatch.context() as patch:
        first = command_line.CATALOGUE[0]
        broken = Finding("H0", "nothing", "x", "y", False, {})
        patch.setattr(command_line, "CATALOGUE", (first, lambda: broken))
        code, out, _ = run(capsys, "check")
        assert code == 1
        assert "1 of 2 hold" in out
        assert "FAILS" in out
        assert "holds" in out
        code, out, _ = run(capsys, "check", "--json")
        assert (code, json.loads(out)["holds"]) == (1, False)


def test_the_installed_command(files: Path) -> None:
    """Exit codes 0, 1 and 2 of a real process, and that nothing but JSON is on stdout."""

    def call(*arguments: Any) -> tuple[int, str, str]:
        done = subprocess.run(
            [SCRIPT, *map(str, arguments)], capture_output=True, text=True, check=False, cwd=files
        )
        return done.returncode, done.stdout, done.stderr

    code, out, err = call(
        "build", "nearest-neighbor", "--dim", 3, "--error", "1/4", "--out", "n", "--json"
    )
    assert (code, err) == (0, "")
    assert json.loads(out)["written"] == "n"
    code, out, _ = call("verify", "n", "--error", "1/1000")
    assert (code, out[:7]) == (1, "refuted")
    code, out, err = call("verify", "edges.csv")
    assert (code, out) == (2, "")
    assert err.startswith("error: edges.csv")


def test_runner_help_of_every_command() -> None:
    for arguments in (
        ["check"],
        ["heads"],
        ["capacity"],
        ["verify"],
        ["build", "relations"],
        ["build", "nearest-neighbor"],
    ):
        result = CliRunner().invoke(app, [*arguments, "--help"])
        assert result.exit_code == 0
        assert "--json" in result.stdout
