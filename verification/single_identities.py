"""C6: judging the largest output as the name of an item's only neighbour (docs/C6-identities.md)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from bounds.errors import ArgumentError
from constructions.attention import BoolArray, FloatArray
from constructions.identity_readout import IdentityLayer
from constructions.relations import IntArray, RelationTarget
from verification.certificate import Certificate, Verdict, layer_digest
from verification.leakage import checked_contexts
from verification.readout_outputs import OutputErrors, check_identity_layer, exact_output

_EXACT_LIMIT = 64


def verify_single_identities(
    identity: IdentityLayer,
    target: RelationTarget,
    *,
    contexts: Sequence[ArrayLike] | None = None,
) -> Certificate:
    r"""Judge whether the largest of an item's outputs names its neighbour, where it has exactly one.

    In every given context, or for ``None`` in all of them, and for each item of a context with
    exactly one neighbour $n$ there: $z_n > z_l$ for all $l \ne n$ of the m items. No threshold
    matters. Rows with no neighbour, or several, are not asked. ``margin``: no lead
    $z_n - \max_lz_l$ is smaller. Refuted with a row, a rival and a context where the rival's output
    is at least as large. Raises like :func:`verification.verify_identities`, and ``ArgumentError``
    when no row is asked. Source: [attention-bounds, C6].
    """
    check_identity_layer(identity, target)
    chosen = checked_contexts(contexts, target)
    margin, rounding, checked, undecided = np.inf, 0.0, 0, 0
    found: dict[str, object] | None = None
    for items in chosen:
        outputs = OutputErrors(identity, target, items)
        asked = _asked(outputs, items)
        checked += int(asked.sum())
        leads, rivals, errors, widest = _leads(outputs, target.edges[asked])
        rounding = max(rounding, widest)
        right = leads - errors > 0
        margin = min(margin, float(np.where(right, leads - errors, np.inf).min(initial=np.inf)))
        still = np.flatnonzero(~right)
        order = still[np.argsort((leads + errors)[still], kind="stable")]
        undecided += max(0, len(order) - _EXACT_LIMIT)
        for edge in order[:_EXACT_LIMIT].tolist():
            i, n = (int(item) for item in target.edges[asked][edge])
            rival = int(rivals[edge])
            context = np.unique([i, n]) if items is None else items
            certain = leads[edge] + errors[edge] < 0
            lead = None if certain else exact_output(identity, target, i, [n, rival], context)
            if certain or (lead is not None and lead <= 0):
                found = {
                    "row": target.name(i),
                    "neighbor": target.name(n),
                    "rival": target.name(rival),
                    "indices": [i, n, rival],
                    "lead of the neighbor at most": float(leads[edge] + errors[edge])
                    if certain
                    else 0.0,
                    "context": context.tolist(),
                }
                break
            undecided += 1
        if found is not None:
            break
    if not checked:
        raise ArgumentError("contexts", contexts, "such that some item has exactly one neighbor")
    verdict: Verdict = "refuted" if found else "undecided" if undecided else "verified"
    return Certificate(
        claim="the largest output names the neighbor of every item that has exactly one in the context",
        scope="all contexts" if contexts is None else "given contexts",
        checked=checked,
        verdict=verdict,
        layer_digest=layer_digest(identity.layer),
        method=identity.layer.method,
        margin=margin * (1 - 2.0**-50) if verdict == "verified" else None,
        rounding=rounding if verdict == "verified" else None,
        counterexample=found,
        reason=f"{undecided} leads are within their errors of 0" if verdict == "undecided" else "",
        seed=identity.layer.seed,
    )


def _asked(outputs: OutputErrors, items: IntArray | None) -> BoolArray:
    """The relations (i, n) for which some context, or the given one, leaves n the only neighbour."""
    edges = outputs.target.edges
    if items is None:  # an item that is its own neighbour always has itself
        return np.asarray(~outputs.graph.loop[edges[:, 0]] | (edges[:, 0] == edges[:, 1]))
    count = np.bincount(edges[outputs.inside, 0], minlength=outputs.target.items)
    return np.asarray(outputs.inside & (count[edges[:, 0]] == 1))


def _leads(
    outputs: OutputErrors, relations: IntArray
) -> tuple[FloatArray, IntArray, FloatArray, float]:
    """Of each relation (i, n) the lead of n over its nearest rival, the rival, and both their errors."""
    row, own = outputs.place()[relations[:, 0]], relations[:, 1]
    value, spread = np.zeros(len(own)), np.zeros(len(own))
    reach = np.full(len(own), -np.inf)
    rival_value, rival_spread, rival = np.zeros(len(own)), np.zeros(len(own)), np.full(len(own), -1)
    rounding, every = 0.0, np.arange(len(own))
    for block in outputs.blocks():
        rounding = max(rounding, 2 * float(block.slack.max()))
        error, cross = block.error[row], block.cross[own]
        held = np.flatnonzero((own >= block.candidates[0]) & (own <= block.candidates[-1]))
        place = own[held] - block.candidates[0]
        value[held], spread[held] = cross[held, place], error[held, place]
        highest = cross + error
        highest[held, place] = -np.inf
        best = highest.argmax(axis=1)
        better = highest[every, best] > reach
        reach[better] = highest[every, best][better]
        rival[better] = block.candidates[best[better]]
        rival_value[better] = cross[every, best][better]
        rival_spread[better] = error[every, best][better]
    return value - rival_value, rival, (spread + rival_spread) * (1 + 2.0**-50), rounding
