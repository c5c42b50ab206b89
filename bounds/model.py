"""The model of attention that a bound speaks about, and when two bounds may be compared."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from bounds.arithmetic import exact_integer
from bounds.errors import ArgumentError
from bounds.harmonics import Values

Attention = Literal["generalized", "hard", "soft"]
Readout = Literal["sum", "max-threshold", "row-argmax", "null-token-softmax"]
Task = Literal["nearest-neighbor", "step-profile", "relations"]
Embeddings = Literal["random-frame", "random-sphere", "fixed", "free"]

_ALLOWED = {
    "task": ("nearest-neighbor", "step-profile", "relations"),
    "attention": ("generalized", "hard", "soft"),
    "values": ("general", "scalar", None),
    "readout": ("sum", "max-threshold", "row-argmax", "null-token-softmax"),
    "embeddings": ("random-frame", "random-sphere", "fixed", "free"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A class of attention layers with the task that they are judged on.

    ``task``: ``"nearest-neighbor"`` or ``"step-profile"`` (error of a layer on $N$ random points)
    or ``"relations"`` (recognition of a relation graph). ``attention``: ``"hard"``, ``"soft"``,
    or ``"generalized"`` (any bounded score function of $K^\\top X$ and $y$: contains the other
    two). ``values``: ``"general"`` (any V), ``"scalar"`` (V = a I), ``None`` where nothing is
    routed. ``readout``: how heads are aggregated. ``embeddings``: random orthonormal frames,
    independent points on the sphere, fixed in advance, or free to choose. ``layers``: how many are
    stacked. ``rank``: the largest query/key dimension of a head, ``None`` for any.
    ``weight_bits``: bits a weight, ``None`` for real weights. ``context``: the number N of
    points, ``None`` where the task has none.

    >>> wide = Model(task="nearest-neighbor", attention="generalized", values="general",
    ...              readout="sum", embeddings="random-frame", rank=4, context=2)
    >>> narrow = Model(task="nearest-neighbor", attention="hard", values="scalar",
    ...                readout="sum", embeddings="random-frame", rank=1, context=2)
    >>> wide.covers(narrow), narrow.covers(wide)
    (True, False)
    """

    task: Task
    attention: Attention
    readout: Readout
    embeddings: Embeddings
    values: Values | None = None
    rank: int | None = None
    weight_bits: int | None = None
    context: int | None = None
    layers: int = 1

    def __post_init__(self) -> None:
        for name, allowed in _ALLOWED.items():
            if getattr(self, name) not in allowed:
                raise ArgumentError(name, getattr(self, name), f"one of {allowed}")
        for name in ("rank", "weight_bits", "context", "layers"):
            if getattr(self, name) is not None:
                exact_integer(getattr(self, name), name, 1)

    def covers(self, other: Model) -> bool:
        """Whether every layer of ``other`` is a layer of this model, on the same task.

        A lower bound for a model holds for each model that it covers; an upper bound for a model
        holds for each model that covers it.
        """
        return (
            self.task == other.task
            and self.readout == other.readout
            and self.context == other.context
            and self.layers == other.layers
            and self.attention in ("generalized", other.attention)
            and self.values in ("general", other.values)
            and self.embeddings in ("free", other.embeddings)
            and _at_least(self.rank, other.rank)
            and _at_least(self.weight_bits, other.weight_bits)
        )

    def __str__(self) -> str:
        named = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ", ".join(f"{name} {value}" for name, value in named if value is not None)


def _at_least(limit: int | None, other: int | None) -> bool:
    return limit is None or (other is not None and limit >= other)
