"""C6: judging layers that name the neighbours of each item (docs/C6-identities.md).

Outputs and their errors are :mod:`verification.readout_outputs`. Over all contexts the sums run over
all subsets of a neighbour set, the item itself always present: least with the negative terms alone,
largest with the positive ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bounds.arithmetic import Ball
from bounds.errors import ArgumentError
from constructions.attention import FloatArray
from constructions.identity_readout import IdentityLayer
from constructions.relations import IntArray, RelationTarget
from verification.certificate import Certificate, Verdict, layer_digest
from verification.leakage import checked_contexts
from verification.readout_outputs import OutputErrors, check_identity_layer, exact_output

_EXACT_LIMIT = 64


@dataclass(frozen=True)
class _Pair:
    """An output (i, j), with j present or absent, and an interval that contains it."""

    row: int
    candidate: int
    present: bool
    output: tuple[float, float]

    def wrong_by(self, theta: float) -> float:
        """How far the middle of the interval is on the wrong side; negative on the right one."""
        middle = (self.output[0] + self.output[1]) / 2
        return theta - middle if self.present else middle - theta


@dataclass
class _Outcome:
    """What float64 found: ``open`` holds those of the undecided outputs that look worst."""

    pairs: int
    margin: float = np.inf
    rounding: float = 0.0
    deviation: float = 0.0
    wrong: _Pair | None = None
    undecided: int = 0
    open: list[_Pair] = field(default_factory=list)


def verify_identities(
    identity: IdentityLayer,
    target: RelationTarget,
    *,
    contexts: Sequence[ArrayLike] | None = None,
) -> Certificate:
    r"""Judge whether every item of a context names exactly its neighbours there, none of other items.

    ``contexts``: index arrays of distinct items; ``None``: *every* context, all subsets of the items
    at once. All m items are candidates, whether in the context or not. Refuted with a row, a
    candidate, a context in which that output is on the wrong side of the threshold, and an interval
    that contains it. Outputs that float64 does not decide go to ball arithmetic in their contexts,
    where these are small enough. The verdict is about the stored weights in real arithmetic;
    ``margin``: no output is nearer to the threshold.

    Raises ``ArgumentError`` for arguments that do not fit, and ``OverflowError`` when float64 does
    not hold the outputs. Source: [attention-bounds, C6].
    """
    check_identity_layer(identity, target)
    if not np.isfinite(identity.threshold):
        raise ArgumentError(
            "threshold",
            identity.threshold,
            "finite (for the largest output: verify_single_identities)",
        )
    chosen = checked_contexts(contexts, target)
    outcomes: list[_Outcome] = []
    found, undecided = None, 0
    for items in chosen:
        outcomes.append(_judge(identity, target, items))
        found, left = _settle(identity, target, items, outcomes[-1])
        undecided += left
        if found is not None:
            break
    verdict: Verdict = "refuted" if found else "undecided" if undecided else "verified"
    return Certificate(
        claim="every item names exactly its neighbors in the context",
        scope="all contexts" if contexts is None else "given contexts",
        checked=sum(outcome.pairs for outcome in outcomes),
        verdict=verdict,
        layer_digest=layer_digest(identity.layer),
        method=identity.layer.method,
        margin=min(o.margin for o in outcomes) if verdict == "verified" else None,
        rounding=max(o.rounding for o in outcomes) if verdict == "verified" else None,
        counterexample=found,
        reason=f"{undecided} outputs are within their errors of the threshold"
        if verdict == "undecided"
        else "",
        seed=identity.layer.seed,
        details={
            "threshold": identity.threshold,
            "outputs are off exact sums by at most": max(o.deviation for o in outcomes),
        },
    )


def _judge(identity: IdentityLayer, target: RelationTarget, items: IntArray | None) -> _Outcome:
    """All outputs of one context, or of all contexts at once, in float64 with their errors."""
    theta, outputs = identity.threshold, OutputErrors(identity, target, items)
    rows, edges = outputs.rows, target.edges
    place, outcome = outputs.place(), _Outcome(len(rows) * target.items)
    for block in outputs.blocks():
        part = block.candidates
        if items is None:
            values, high, pairs = outputs.graph.extremes(block.cross, part)
            row, column = edges[pairs, 0], edges[pairs, 1] - part[0]
        else:
            high = (outputs.present @ block.cross)[items]
            pairs = np.flatnonzero(outputs.inside & np.isin(edges[:, 1], part))
            row, column = place[edges[pairs, 0]], edges[pairs, 1] - part[0]
            values = high[row, column]
            high[row, column] = -np.inf
        outcome.deviation = max(outcome.deviation, float(block.shift.max()))
        outcome.rounding = max(outcome.rounding, float(block.slack.max()))
        error = block.error
        _compare(outcome, theta, high, error, False, partial(_place, rows, part))
        relation = partial(_relation, edges[pairs])
        _compare(outcome, theta, values, error[row, column], True, relation)
        if outcome.wrong is not None:
            break
    return outcome


def _compare(
    outcome: _Outcome,
    theta: float,
    outputs: FloatArray,
    error: FloatArray,
    present: bool,
    place: Callable[[int], tuple[int, int]],
) -> None:
    """Sort outputs into right, wrong and open ones; ``place`` turns a flat position into (i, j)."""
    distance = outputs - theta if present else theta - outputs
    right, wrong = distance - error > 0, distance + error < 0
    nearest = np.where(right, distance - error, np.inf).min(initial=np.inf)
    outcome.margin = min(outcome.margin, float(nearest) * (1 - 2.0**-50))

    def pair(position: int) -> _Pair:
        value, width = float(outputs.flat[position]), float(error.flat[position])
        return _Pair(*place(position), present, (value - width, value + width))

    if wrong.any():
        outcome.wrong = pair(int(np.where(wrong, distance, np.inf).argmin()))
        return
    still = np.flatnonzero(~right)
    outcome.undecided += len(still)
    worst = still[np.argsort(distance.flat[still], kind="stable")[:_EXACT_LIMIT]]
    both = [*outcome.open, *(pair(int(position)) for position in worst)]
    outcome.open = sorted(both, key=lambda p: p.wrong_by(theta), reverse=True)[:_EXACT_LIMIT]


def _place(rows: IntArray, part: IntArray, position: int) -> tuple[int, int]:
    row, column = divmod(position, len(part))
    return int(rows[row]), int(part[column])


def _relation(relations: IntArray, position: int) -> tuple[int, int]:
    i, j = relations[position]
    return int(i), int(j)


def _settle(
    identity: IdentityLayer, target: RelationTarget, items: IntArray | None, outcome: _Outcome
) -> tuple[dict[str, Any] | None, int]:
    """A counterexample, if one is certain, and how many outputs stay undecided."""
    if outcome.wrong is not None:
        return _counterexample(identity, target, outcome.wrong, items), 0
    if items is None and outcome.undecided:
        whole = np.arange(target.items)  # there the most attention strays
        found, _ = _settle(identity, target, whole, _judge(identity, target, whole))
        if found is not None:
            return found, 0
    left = outcome.undecided - len(outcome.open)
    for pair in outcome.open:
        context = _worst_context(identity, target, pair) if items is None else items
        above = exact_output(identity, target, pair.row, [pair.candidate], context)
        if above is None:
            left += 1
        elif (above > 0) != pair.present:
            value = Ball.from_arb(above + identity.threshold)
            ends = replace(pair, output=(value.lower_float(), value.upper_float()))
            return _counterexample(identity, target, ends, context), 0
        elif items is None:
            left += 1  # right in this context, open in others
        else:
            outcome.margin = min(outcome.margin, Ball.from_arb(abs(above)).lower_float())
    return None, left


def _worst_context(identity: IdentityLayer, target: RelationTarget, pair: _Pair) -> IntArray:
    """The item, and those of its neighbours that draw the output to the wrong side."""
    i, j = pair.row, pair.candidate
    neighbours = target.edges[target.edges[:, 0] == i, 1]
    pull = target.embeddings[neighbours] @ identity.readout[j]
    chosen = neighbours[(pull < 0 if pair.present else pull > 0) & (neighbours != j)]
    return np.unique(np.concatenate([chosen, [i], [j] if pair.present else []]).astype(np.int64))


def _counterexample(
    identity: IdentityLayer, target: RelationTarget, pair: _Pair, items: IntArray | None
) -> dict[str, Any]:
    context = _worst_context(identity, target, pair) if items is None else items
    return {
        "row": target.name(pair.row),
        "candidate": target.name(pair.candidate),
        "indices": [pair.row, pair.candidate],
        "problem": "a neighbor that is not named" if pair.present else "named, but no neighbor",
        "output": list(pair.output),
        "threshold": identity.threshold,
        "context": [int(item) for item in context],
    }
