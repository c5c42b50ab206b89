"""Certificates: what was checked, on what, with which margin, and the verdict."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Literal

from bounds.arithmetic import Ball
from bounds.bound import VERSION
from constructions.attention import AttentionLayer

Verdict = Literal["verified", "refuted", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The verdict of one check, with enough to do it again.

    ``claim``: what was checked, in words. ``scope``: on what: ``"all pairs"``, ``"all inputs"``,
    ``"expected error"``, ``"given inputs"``, ``"given contexts"``, ``"all contexts"`` or
    ``"sample"``. ``checked``: how many pairs, inputs or
    samples (0 for a proof about the weights). ``verdict``: ``"verified"``, ``"refuted"`` (with a
    ``counterexample``, or an error interval above the allowed one) or ``"undecided"`` (with a
    ``reason``). ``margin``: a lower bound on how far the nearest decided case lay from changing;
    ``rounding``: the largest rounding error that the check allowed for. ``error``: the certified
    interval of the error, where the check has one. ``confidence``: of a sampled interval.
    ``layer_digest``: SHA-256 of the weights that were judged.
    """

    claim: str
    scope: str
    checked: int
    verdict: Verdict
    layer_digest: str
    method: str
    margin: float | None = None
    rounding: float | None = None
    error: Ball | tuple[float, float] | None = None
    confidence: float | None = None
    counterexample: dict[str, Any] | None = None
    reason: str = ""
    seed: int | None = None
    details: dict[str, Any] = field(default_factory=dict)
    package_version: str = VERSION

    @property
    def holds(self) -> bool:
        """Whether the verdict is "verified"."""
        return self.verdict == "verified"

    def to_dict(self) -> dict[str, Any]:
        """The certificate as JSON-ready data."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        if isinstance(self.error, Ball):
            data["error"] = {"ball": self.error.exact(), "text": str(self.error)}
        return {"format": "attention-bounds certificate 1"} | data

    def to_json(self) -> str:
        """The certificate as one JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def __str__(self) -> str:
        parts = [f"{self.verdict}: {self.claim} ({self.scope}"]
        parts.append(f", {self.checked:,} checked)" if self.checked else ")")
        if self.counterexample:
            parts.append("; counterexample: ")
            parts.append(", ".join(f"{key} {value}" for key, value in self.counterexample.items()))
        if isinstance(self.error, Ball):
            parts.append(f"; error {self.error.decimal(8)}")
        elif self.error is not None:
            low, high = self.error
            parts.append(f"; error in [{low:.6g}, {high:.6g}] at confidence {self.confidence}")
        if self.margin is not None and self.rounding is not None:
            parts.append(f"; margin {self.margin:.3g}, rounding at most {self.rounding:.3g}")
        if self.reason:
            parts.append(f"; {self.reason}")
        return "".join(parts)


def layer_digest(layer: AttentionLayer) -> str:
    """SHA-256 of a layer's weights, shapes, kind, scale and threshold."""
    digest = hashlib.sha256()
    digest.update(repr((layer.kind, layer.logit_scale.hex(), layer.threshold)).encode())
    for group in ("w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v"):
        for head, array in enumerate(getattr(layer, group)):
            digest.update(f"{group}.{head}{array.shape}".encode())
            digest.update(array.tobytes())
    return digest.hexdigest()
