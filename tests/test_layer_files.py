"""Layer files: bit for bit, the same bytes, whole or not at all, and no damage unseen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import save as save_tensors

import constructions.layer_files as layer_files
from constructions import AttentionLayer, LayerFileError, full_rank_nearest_neighbor, load, save
from verification.certificate import layer_digest

GROUPS = ("w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v")
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def assert_equal(one: AttentionLayer, two: AttentionLayer) -> None:
    for group in GROUPS:
        a, b = getattr(one, group), getattr(two, group)
        assert len(a) == len(b)
        for left, right in zip(a, b, strict=True):
            assert left.shape == right.shape
            assert left.tobytes() == right.tobytes()
            assert not right.flags.writeable
    for name in ("kind", "logit_scale", "threshold", "blocks", "method", "seed", "package_version"):
        assert getattr(one, name) == getattr(two, name)
        assert type(getattr(one, name)) is type(getattr(two, name))
    assert layer_digest(one) == layer_digest(two)


@st.composite
def layers(draw: Any) -> AttentionLayer:
    d, heads = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    sizes = [draw(st.integers(1, 3)) for _ in range(heads)]

    def some(*shape: int) -> np.ndarray:
        return draw(arrays(np.float64, shape, elements=FINITE))

    values, biases = draw(st.booleans()), draw(st.booleans())
    return AttentionLayer(
        w_q=[some(d, k) for k in sizes],
        w_k=[some(d, k) for k in sizes],
        w_v=[some(d, 2) for _ in sizes] if values else (),
        w_o=[some(d, 2) for _ in sizes] if values else (),
        b_q=[some(k) for k in sizes] if biases else (),
        b_v=[some(2) for _ in sizes] if biases and values else (),
        kind=draw(st.sampled_from(["hard", "soft"])),
        logit_scale=draw(st.floats(min_value=5e-324, allow_infinity=False)),
        threshold=draw(st.none() | FINITE),
        blocks=draw(
            st.lists(st.tuples(st.text(), st.integers(0, 3), st.integers(0, 9)), max_size=3)
        ),
        method=draw(st.text()),
        seed=draw(st.none() | st.integers(0, 2**70)),
        package_version=draw(st.text(max_size=5)),
    )


@settings(max_examples=60)
@given(layers())
def test_round_trip_bit_for_bit(tmp_path_factory: Any, layer: AttentionLayer) -> None:
    path = tmp_path_factory.mktemp("layers") / "layer.safetensors"
    save(layer, path)
    assert_equal(layer, load(path))
    first = path.read_bytes()
    save(load(str(path)), str(path))
    assert path.read_bytes() == first


def sample() -> AttentionLayer:
    rng = np.random.default_rng(0)
    return AttentionLayer(
        w_q=[rng.standard_normal((3, 2)), rng.standard_normal((3, 1))],
        w_k=[rng.standard_normal((3, 2)), rng.standard_normal((3, 1))],
        b_k=[rng.standard_normal(2), rng.standard_normal(1)],
        threshold=0.3, blocks=[("α", 0, 2), ("rest", 2, 3)], method="sample", seed=5,
    )  # fmt: skip


def test_numpy_numbers_are_taken(tmp_path: Path) -> None:
    layer = AttentionLayer(
        w_q=[np.eye(2)], w_k=[np.eye(2)], threshold=np.float32(0.1), logit_scale=np.float64(2),
        seed=np.int64(3), blocks=[("x", np.int64(0), np.int64(2))],  # type: ignore[arg-type, list-item]
    )  # fmt: skip
    save(layer, tmp_path / "layer")
    assert_equal(layer, load(tmp_path / "layer"))


def test_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    script = (
        "import sys; from constructions import AttentionLayer, save; import numpy as np; "
        "save(AttentionLayer(w_q=[np.eye(3)] * 12, w_k=[np.ones((3, 3))] * 12, threshold=.5, "
        "blocks=[('a', 0, 1)], seed=1), sys.argv[1])"
    )
    contents = set()
    for hash_seed in ("1", "2"):
        path = tmp_path / hash_seed
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-c", script, str(path)], check=True, env=environment)
        contents.add(path.read_bytes())
    assert len(contents) == 1


def test_truncated_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "layer.safetensors"
    save(sample(), path)
    content = path.read_bytes()
    for size in [*range(0, len(content), 7), len(content) - 1]:
        path.write_bytes(content[:size])
        with pytest.raises(LayerFileError, match=r"layer\.safetensors"):
            load(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(LayerFileError):
        load(path)


def test_every_changed_byte_is_seen_or_harmless(tmp_path: Path) -> None:
    """A flipped bit in weights, names, shapes or metadata: refused, or the very same layer."""
    path = tmp_path / "layer.safetensors"
    save(sample(), path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            found = load(path)
        except LayerFileError:
            refused += 1
        else:
            assert_equal(sample(), found)  # a blank more or less in the header
    assert refused > 0.99 * len(content)


def rewritten(path: Path, change: Any) -> None:
    """The sample's file with other metadata and tensors, and a digest that fits them."""
    tensors = {
        f"{group}.{head}": array
        for group in GROUPS
        for head, array in enumerate(getattr(sample(), group))
    }
    save(sample(), path)
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    metadata = json.loads(header["__metadata__"]["attention-bounds"])
    del metadata["sha256"]
    change(metadata, tensors)
    metadata["sha256"] = layer_files._digest(metadata, tensors)
    path.write_bytes(save_tensors(tensors, {"attention-bounds": json.dumps(metadata)}))


FORGED: dict[str, Any] = {
    "heads text": lambda m, t: m.update(heads="two"),
    "heads missing": lambda m, t: m.pop("heads"),
    "more heads": lambda m, t: m.update(heads=3),
    "fewer heads": lambda m, t: m.update(heads=1),
    "negative heads": lambda m, t: m.update(heads=-1),
    "logit scale": lambda m, t: m.update(logit_scale="wide"),
    "large logit scale": lambda m, t: m.update(logit_scale="0x1p99999"),
    "zero logit scale": lambda m, t: m.update(logit_scale="0x0p+0"),
    "nan threshold": lambda m, t: m.update(threshold="nan"),
    "threshold number": lambda m, t: m.update(threshold=0.3),
    "blocks": lambda m, t: m.update(blocks=[["a", 1]]),
    "block text": lambda m, t: m.update(blocks=[["a", "b", "c"]]),
    "blocks number": lambda m, t: m.update(blocks=3),
    "kind": lambda m, t: m.update(kind="medium"),
    "method": lambda m, t: m.update(method=7),
    "seed": lambda m, t: m.update(seed="five"),
    "lost tensor": lambda m, t: t.pop("w_k.1"),
    "stray tensor": lambda m, t: t.update({"w_x.0": np.eye(2)}),
    "stray head": lambda m, t: t.update({"w_q.2": np.eye(3)}),
    "nan weight": lambda m, t: t.update({"w_q.0": np.full((3, 2), np.nan)}),
    "single precision": lambda m, t: t.update({"w_q.0": np.ones((3, 2), dtype=np.float32)}),
    "other shape": lambda m, t: t.update({"w_q.0": np.ones((3, 5))}),
    "format": lambda m, t: m.update(format="attention-bounds layer 2"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_files_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "layer.safetensors"
    rewritten(path, FORGED[name])
    with pytest.raises(LayerFileError, match=r"layer\.safetensors"):
        load(path)


def test_the_forger_can_write_an_honest_file(tmp_path: Path) -> None:
    rewritten(tmp_path / "layer", lambda metadata, tensors: None)
    assert_equal(sample(), load(tmp_path / "layer"))


FOREIGN: dict[str, tuple[bytes, str]] = {
    "no metadata": (save_tensors({"w_q.0": np.eye(2)}), "not a layer"),
    "other metadata": (save_tensors({"w_q.0": np.eye(2)}, {"format": "pt"}), "not a layer"),
    "no json": (save_tensors({"w_q.0": np.eye(2)}, {"attention-bounds": "{"}), "metadata"),
    "deep json": (save_tensors({"w_q.0": np.eye(2)}, {"attention-bounds": "[" * 10**5}), "metadata"),
    "json list": (save_tensors({"w_q.0": np.eye(2)}, {"attention-bounds": "[]"}), "format"),
    "json null": (save_tensors({"w_q.0": np.eye(2)}, {"attention-bounds": "null"}), "format"),
    "bare format": (
        save_tensors({"w_q.0": np.eye(2)}, {"attention-bounds": '{"format": "attention-bounds layer 1"}'}),
        "sha256",
    ),
    "empty": (b"", "safetensors"),
    "text": (b"w_q,w_k\n1,2\n", "safetensors"),
    "huge header": (b"\xff" * 16, "safetensors"),
    "pickle": (b"\x80\x04K\x01.", "safetensors"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files_are_refused(tmp_path: Path, name: str) -> None:
    content, message = FOREIGN[name]
    path = tmp_path / "foreign.bin"
    path.write_bytes(content)
    with pytest.raises(LayerFileError, match=rf"foreign.bin.*{message}"):
        load(path)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(LayerFileError, match="does not exist"):
        load(tmp_path / "none")
    with pytest.raises(LayerFileError, match="is not a file"):
        load(tmp_path)
    with pytest.raises(OSError, match=r"no such folder.*nowhere"):
        save(sample(), tmp_path / "nowhere" / "layer")
    with pytest.raises(OSError, match="not a file"):
        save(sample(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    """Renaming onto a device would remove it; a pipe stands in for one here."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a file"):
        save(sample(), pipe)
    assert pipe.is_fifo()


class _FullDiskError(OSError):
    pass


@pytest.mark.parametrize("step", ["write", "chmod", "replace"])
def test_a_failed_write_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "layer"
    save(sample(), path)
    before = path.read_bytes()

    def fail(*_: Any) -> None:
        raise _FullDiskError

    if step == "write":
        real = os.fdopen

        def half_written(*arguments: Any) -> Any:
            file = real(*arguments)

            class Half:
                def __enter__(self) -> Any:
                    return self

                def __exit__(self, *_: Any) -> None:
                    file.close()

                def write(self, content: bytes) -> None:
                    file.write(content[: len(content) // 2])
                    raise _FullDiskError

            return Half()

        monkeypatch.setattr(layer_files.os, "fdopen", half_written)
    else:
        monkeypatch.setattr(layer_files.os, step, fail)
    with pytest.raises(_FullDiskError):
        save(full_rank_nearest_neighbor(4), path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["layer"]


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        save(sample(), tmp_path / "layer")
    finally:
        os.umask(old)
    assert (tmp_path / "layer").stat().st_mode & 0o777 == 0o640
