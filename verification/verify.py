"""The judge: one function from weights and a target to a certificate."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from numpy.typing import ArrayLike

from bounds.arithmetic import Ball
from bounds.errors import ArgumentError
from constructions.attention import AttentionLayer, FloatArray
from constructions.nearest_neighbor import nearest_neighbor
from constructions.recognition import recognition_report
from constructions.relations import Progress, RelationTarget
from verification.certificate import Certificate, Verdict, layer_digest
from verification.nearest_neighbor import verify_inputs, verify_sample, verify_weights

Target = RelationTarget | Callable[[ArrayLike, ArrayLike], FloatArray]


def verify(
    layer: AttentionLayer,
    target: Target,
    *,
    points: ArrayLike | None = None,
    queries: ArrayLike | None = None,
    error: object | None = None,
    samples: int | None = None,
    context: int = 2,
    confidence: float = 0.999,
    seed: int = 0,
    progress: Progress | None = None,
) -> Certificate:
    r"""Judge a layer against a target; never decided on an unguarded float.

    ``target`` = a :class:`constructions.RelationTarget`: all $m^2$ pairs are checked in blocks of
    rows, with a rigorous bound on the rounding error of the scores; pairs within it of the
    threshold in exact integer arithmetic. Refuted with the offending pair, by name when items
    have names.

    ``target`` = :func:`constructions.nearest_neighbor`: with ``points`` (N, d) and ``queries``
    (n, d), those inputs, each squared error against ``error`` (0 for hard layers); with
    ``samples``, that many draws of ``context`` orthonormal points and a uniform query, an exact
    ``confidence`` interval against ``error``; with neither, a proof from the weights, for all
    inputs (hard) or of the expected error on two orthonormal points (soft).

    Raises ``ArgumentError`` for arguments that do not fit, and for nothing to check.

    >>> from constructions import full_rank_nearest_neighbor, nearest_neighbor
    >>> verify(full_rank_nearest_neighbor(3), nearest_neighbor).verdict
    'verified'
    """
    if not isinstance(layer, AttentionLayer):
        raise ArgumentError("layer", layer, "an AttentionLayer")
    if isinstance(target, RelationTarget):
        given = {"points": points, "queries": queries, "error": error, "samples": samples}
        for name, value in given.items():
            if value is not None:
                raise ArgumentError(name, value, "absent for a relation target")
        return _verify_relations(layer, target, progress)
    if target is not nearest_neighbor:
        raise ArgumentError("target", target, "a RelationTarget or constructions.nearest_neighbor")
    if samples is not None:
        if points is not None or queries is not None:
            raise ArgumentError("samples", samples, "absent when points and queries are given")
        return verify_sample(
            layer, error, context=context, samples=samples, confidence=confidence, seed=seed
        )
    if points is not None and queries is not None:
        return verify_inputs(layer, points, queries, error)
    if points is not None or queries is not None:
        raise ArgumentError("points, queries", "only one", "given together")
    return verify_weights(layer, error)


def _verify_relations(
    layer: AttentionLayer, target: RelationTarget, progress: Progress | None
) -> Certificate:
    report = recognition_report(layer, target, progress=progress)
    verdict: Verdict = "verified"
    found: dict[str, Any] | None = None
    if report.wrong is not None:
        verdict = "refuted"
        assert report.wrong_score is not None
        i, j = report.wrong
        tau = layer.threshold
        assert tau is not None
        found = {
            "pair": f"({target.name(i)}, {target.name(j)})",
            "indices": [i, j],
            "problem": "a relation that is not recognized"
            if report.missing
            else "recognized, but no relation",
            "score": float(report.wrong_score),
            "threshold": tau,
            "score - threshold": Ball.of(report.wrong_score - Fraction(tau)).decimal(6),
        }
    elif report.undecided:
        verdict = "undecided"
    return Certificate(
        claim=f"the layer recognizes exactly the {target.relations} relations among "
        f"{target.items} items",
        scope="all pairs",
        checked=report.pairs,
        verdict=verdict,
        layer_digest=layer_digest(layer),
        method=layer.method,
        margin=report.margin if verdict == "verified" else None,
        rounding=report.rounding if verdict == "verified" else None,
        counterexample=found,
        reason=report.reason,
        seed=layer.seed,
        details={
            "key_dimension": layer.key_dimension,
            "heads": layer.heads,
            "pairs decided in exact arithmetic": report.exact_pairs,
        },
    )
