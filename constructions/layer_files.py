"""Layers as safetensors files: arrays and one line of metadata, no pickle anywhere."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from constructions.attention import AttentionLayer, FloatArray

_FORMAT = "attention-bounds layer 1"
_KEY = "attention-bounds"
_GROUPS = ("w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v")


class LayerFileError(ValueError):
    """A file is not a layer that this package wrote, or is damaged."""


def save_layer(layer: AttentionLayer, path: str | os.PathLike[str]) -> None:
    """Write ``layer`` to ``path``: tensors ``w_q.0``, ... and metadata (shapes, kind, logit scale,
    threshold, blocks, method, seed, package version, SHA-256). The same layer gives the same bytes.
    The file appears whole or not at all; an ``OSError`` says why not.
    """
    tensors = _tensors(layer)
    metadata = {
        "format": _FORMAT,
        "heads": layer.heads,
        "shapes": {name: list(array.shape) for name, array in tensors.items()},
        "kind": layer.kind,
        "logit_scale": layer.logit_scale.hex(),
        "threshold": None if layer.threshold is None else layer.threshold.hex(),
        "blocks": layer.blocks,
        "method": layer.method,
        "seed": layer.seed,
        "package_version": layer.package_version,
    }
    metadata["sha256"] = _digest(metadata, tensors)
    # one key, because safetensors writes several in an order that changes from run to run
    write_whole(path, save(tensors, {_KEY: json.dumps(metadata, sort_keys=True)}))


def load_layer(path: str | os.PathLike[str]) -> AttentionLayer:
    """The layer that :func:`save_layer` wrote; ``LayerFileError`` for any other or damaged file."""
    if not Path(path).is_file():
        missing = "is not a file" if Path(path).exists() else "does not exist"
        raise LayerFileError(f"{path} {missing}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = _metadata(file.metadata(), path)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        digest = metadata.pop("sha256")
        if digest != _digest(metadata, arrays):
            raise LayerFileError(f"{path} is damaged: its content is not what was written")
        groups = {
            group: [arrays[f"{group}.{head}"] for head in range(metadata["heads"])]
            if f"{group}.0" in arrays
            else []
            for group in _GROUPS
        }
        threshold = metadata["threshold"]
        layer = AttentionLayer(
            **groups,
            kind=metadata["kind"],
            logit_scale=float.fromhex(metadata["logit_scale"]),
            threshold=None if threshold is None else float.fromhex(threshold),
            blocks=[tuple(block) for block in metadata["blocks"]],
            method=metadata["method"],
            seed=metadata["seed"],
            package_version=metadata["package_version"],
        )
        found = {name: (array.dtype, list(array.shape)) for name, array in arrays.items()}
        if found != {name: (np.float64, metadata["shapes"][name]) for name in _tensors(layer)}:
            raise LayerFileError(f"{path} is damaged: its tensors are not those it lists")
        return layer
    except LayerFileError:
        raise
    except (SafetensorError, OSError) as failure:
        raise LayerFileError(f"{path} cannot be read as safetensors: {failure}") from None
    except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError) as failure:
        raise LayerFileError(f"{path} is not a layer of this package: {failure}") from None


def _tensors(layer: AttentionLayer) -> dict[str, FloatArray]:
    return {
        f"{group}.{head}": array
        for group in _GROUPS
        for head, array in enumerate(getattr(layer, group))
    }


def _metadata(found: dict[str, str] | None, path: str | os.PathLike[str]) -> dict[str, Any]:
    if not found or _KEY not in found:
        raise LayerFileError(f"{path} is a safetensors file, but not a layer of attention-bounds")
    try:
        metadata: dict[str, Any] = json.loads(found[_KEY])
    except (json.JSONDecodeError, RecursionError) as failure:
        raise LayerFileError(f"{path} has damaged metadata: {failure}") from None
    if not isinstance(metadata, dict) or metadata.get("format") != _FORMAT:
        raise LayerFileError(f"{path} does not have the format {_FORMAT!r}")
    return metadata


def _digest(metadata: dict[str, Any], tensors: dict[str, FloatArray]) -> str:
    """SHA-256 of the metadata and of every tensor's name, dtype, shape and bytes."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file in one step: a failure leaves what was there before, never a part.

    A folder, a device or a pipe is refused with an ``OSError``.
    """
    place = Path(path)
    if place.exists() and not place.is_file():
        raise FileExistsError(errno.EEXIST, "exists and is not a file", str(place))
    if not place.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(place.parent))
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, place)
    except BaseException:
        os.unlink(name)
        raise
