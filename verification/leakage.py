r"""C6: the certified leakage of given routing weights, and how far their output is from the sum.

The leakage of a row in a head is its softmax mass off the neighbour that the head holds for it, null
token included, or, in a row for which it holds none, the mass off the null token
(:mod:`bounds.softmax_leakage`). Scores carry their rounding bound, exponentials are rounded
outwards, and so are sums: the reported interval contains the leakage of the stored weights in real
arithmetic. The page is docs/C6-softmax-routing.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from bounds.arithmetic import exact_rational, rational_text
from bounds.errors import ArgumentError
from constructions.attention import FloatArray
from constructions.recognition import projections_with_error
from constructions.relations import IntArray, RelationTarget
from constructions.routing import RoutingLayer
from constructions.screening import row_norms
from verification.certificate import Certificate, Verdict, layer_digest
from verification.exponential import exp_lower, exp_upper

_UP = 1 + 2.0**-50
_DOWN = 1 - 2.0**-50
_ENTRIES = 1 << 19


@dataclass(frozen=True)
class LeakageReport:
    r"""The largest leakage over rows, heads and contexts, as a certified interval.

    ``leakage``: (lower, upper). ``head``, ``row``, ``context``: where the upper end is attained
    (context ``None``: in some context). ``rows``: how many rows of heads were checked.
    ``routing_error``: an upper bound on $\|g_i-s\sum_jx_j\|$ over all rows, $g$ the output, $s$ the
    share and $j$ the neighbours in the context; ``None`` when the values are not the items themselves.
    """

    leakage: tuple[float, float]
    head: int
    row: int
    context: int | None
    rows: int
    routing_error: float | None


def leakage_report(
    routing: RoutingLayer,
    target: RelationTarget,
    *,
    contexts: Sequence[ArrayLike] | None = None,
) -> LeakageReport:
    r"""The leakage of every row of every head, in the given contexts or in *every* context at once.

    ``contexts``: index arrays of distinct items; rows and columns are the context's items, and the
    null token. ``None``: all contexts $C \subseteq [m]$. Their worst case is seen on all items:
    leakage grows with the tokens that are no neighbour, so a row with neighbour $j$ leaks most
    in $C = [m]$ or in $C = [m] \setminus \{j\}$.

    Raises ``ArgumentError`` for arguments that do not fit, and ``OverflowError`` when scores are
    beyond float64.
    """
    _check(routing, target)
    tokens = routing.tokens(target.embeddings)
    chosen = checked_contexts(contexts, target)
    share = _share(routing)
    sizes = row_norms(np.abs(target.embeddings)) * (1 + (tokens.shape[1] + 8) * 2.0**-52)
    worst: tuple[float, float, int, int, int | None] = (0.0, -1.0, 0, 0, None)
    rows, furthest = 0, 0.0
    for number, items in enumerate(chosen):
        some = np.arange(target.items) if items is None else items
        deviation = np.zeros(len(some))
        for head in range(routing.layer.heads):
            low, high, stray, neighbour = _head_leakage(routing, target, tokens, head, items)
            rows += len(low)
            at = int(high.argmax())
            if high[at] > worst[1]:
                place = (head, int(some[at]), None if items is None else number)
                worst = (worst[0], float(high[at]), *place)
            worst = (max(worst[0], float(low.max())), *worst[1:])
            own = np.where(neighbour >= 0, sizes[some[neighbour]], 0.0)
            deviation += (high * own + stray * sizes.max()) * _UP**4
        furthest = max(furthest, float(deviation.max()) * (1 + routing.layer.heads * 2.0**-52))
    error_bound = None if share is None else furthest * abs(share) * _UP
    return LeakageReport(worst[:2], *worst[2:], rows, error_bound)


def attention_off_sum(
    routing: RoutingLayer, target: RelationTarget, items: IntArray | None = None
) -> tuple[FloatArray, FloatArray]:
    r"""How far each row's attention is from 1 on its neighbours and 0 elsewhere, bounded from above.

    ``items``: one context of distinct items, or ``None`` for all contexts at once. Returns (m',), for
    each relation $1 - a$ of the neighbour in the head that holds it (0 for relations that are not
    in the context), and (rows,), summed over heads, the attention to items that are no neighbours
    there.
    """
    _check(routing, target)
    tokens = routing.tokens(target.embeddings)
    some = np.arange(target.items) if items is None else items
    missing, strayed = np.zeros(target.relations), np.zeros(len(some))
    for head in range(routing.layer.heads):
        _, high, stray, neighbour = _head_leakage(routing, target, tokens, head, items)
        strayed += stray
        leaks = np.zeros(target.items)
        leaks[some] = np.where(neighbour >= 0, high, 0.0)
        own = routing.edge_heads == head
        missing[own] = leaks[target.edges[own, 0]]
    return missing, strayed * (1 + routing.layer.heads * 2.0**-52)


def _head_leakage(
    routing: RoutingLayer,
    target: RelationTarget,
    tokens: FloatArray,
    head: int,
    items: IntArray | None,
) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
    """Of every row of a head: the leakage's ends, its part off null, the neighbour's position or -1."""
    some = np.arange(target.items) if items is None else items
    context = np.append(tokens[some], tokens[-1:], axis=0)
    neighbour = _neighbours(routing, target, head, some)
    query, key, error = projections_with_error(routing.layer, head, context)
    step = max(1, _ENTRIES // len(some))
    parts = [
        _row_leakage(
            query[part] @ key.T,
            error[part, None],
            routing.layer.logit_scale,
            neighbour[part],
            np.arange(part.start, part.stop) if items is None else None,
        )
        for start in range(0, len(some), step)
        for part in [slice(start, min(start + step, len(some)))]
    ]
    low, high, stray = (np.concatenate(ends) for ends in zip(*parts, strict=True))
    return low, high, stray, neighbour


def verify_leakage(
    routing: RoutingLayer,
    target: RelationTarget,
    error: int | float | str | Fraction,
    *,
    contexts: Sequence[ArrayLike] | None = None,
) -> Certificate:
    """Judge whether no row of any head leaks more than ``error``, in the given or in all contexts."""
    allowed = exact_rational(error, "error")
    report = leakage_report(routing, target, contexts=contexts)
    low, high = report.leakage
    verdict: Verdict = "undecided"
    if Fraction(high) <= allowed:
        verdict = "verified"
    elif Fraction(low) > allowed:
        verdict = "refuted"
    found = {"head": report.head, "row": target.name(report.row), "leakage at most": high}
    return Certificate(
        claim=f"no row of a head leaks more than {rational_text(allowed)} off its neighbors",
        scope="all contexts" if contexts is None else "given contexts",
        checked=report.rows,
        verdict=verdict,
        layer_digest=layer_digest(routing.layer),
        method=routing.layer.method,
        counterexample=found if verdict == "refuted" else None,
        reason="the certified interval of the leakage contains the limit" if verdict == "undecided" else "",
        seed=routing.layer.seed,
        details={"leakage": list(report.leakage), "worst": found, "routing error": report.routing_error},
    )  # fmt: skip


def _row_leakage(
    scores: FloatArray,
    error: FloatArray,
    beta: float,
    neighbour: IntArray,
    own_place: IntArray | None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Lower and upper ends of the leakage of some rows, and the upper end of its part off null.

    ``scores``: (rows, N + 1), the null token last; ``neighbour``: positions, -1 for none.
    ``own_place``: the rows' own positions when every smaller context counts too.
    """
    at, held = np.arange(len(scores)), neighbour >= 0
    others = scores.copy()
    others[at[held], neighbour[held]] = -np.inf
    # from the largest score that is not the neighbour's: no mass that matters is out of range
    gaps = scores - others.max(axis=1, keepdims=True)
    # |gap| rounds by 2^-53 of itself, the product by as much, the sum by as much
    with np.errstate(over="ignore"):
        logits, pad = np.clip(beta * gaps, -1e6, 1e6), (beta * error) * _UP**2
    pad = pad + (np.abs(logits) + pad) * 2.0**-50 + 2.0**-1000
    high, low = exp_upper(logits + pad), exp_lower(logits - pad)
    ends = []
    for masses in (low, high):
        own = np.where(held, masses[at, neighbour], 0.0)
        null = masses[:, -1].copy()
        masses[at[held], neighbour[held]] = 0.0
        masses[:, -1] = 0.0
        ends.append((own, null, masses.sum(axis=1)))
    slack = (scores.shape[1] + 2) * 2.0**-52  # of a sum of so many positive numbers
    (own_low, null_low, stray_low), (own_high, null_high, stray_high) = ends
    stray_low, stray_high = stray_low * (1 - slack), stray_high * (1 + slack)
    upper = np.where(
        held, _ratio(stray_high + null_high, own_low, _UP), _ratio(stray_high, null_low, _UP)
    )
    lower = np.where(
        held, _ratio(stray_low + null_low, own_high, _DOWN), _ratio(stray_low, null_high, _DOWN)
    )
    stray = _ratio(stray_high, null_low + own_low, _UP)
    if own_place is not None:  # the neighbour may be absent, unless it is the item itself
        alone = _ratio(stray_high, null_low, _UP)
        other = held & (neighbour != own_place)
        upper = np.where(other, np.maximum(upper, alone), upper)
        lower = np.where(other, np.maximum(lower, _ratio(stray_low, null_high, _DOWN)), lower)
        stray = np.where(other, alone, stray)
    return lower, np.minimum(upper, 1.0), np.minimum(stray, 1.0)


def _ratio(off: FloatArray, on: FloatArray, factor: float) -> FloatArray:
    """off / (off + on), rounded by the factor; 1 where nothing is known."""
    with np.errstate(invalid="ignore"):
        share = off / (off + on) * factor**4
    return np.where(np.isnan(share), 1.0 if factor > 1 else 0.0, share)


def _neighbours(
    routing: RoutingLayer, target: RelationTarget, head: int, items: IntArray
) -> IntArray:
    """For each item of a context, the position there of the neighbour that a head holds, or -1."""
    position = np.full(target.items, -1)
    position[items] = np.arange(len(items))
    found = np.full(target.items, -1)
    own = target.edges[routing.edge_heads == head]
    found[own[:, 0]] = position[own[:, 1]]
    return found[items]


def checked_contexts(
    contexts: Sequence[ArrayLike] | None, target: RelationTarget
) -> list[IntArray | None]:
    """Each context as distinct items; one ``None`` for all contexts; or an ``ArgumentError``."""
    if contexts is None:
        return [None]
    if not isinstance(contexts, Sequence | np.ndarray) or not len(contexts):
        raise ArgumentError("contexts", contexts, "at least one context, or None for all")
    return [_context(value, number, target) for number, value in enumerate(contexts)]


def _context(value: ArrayLike, number: int, target: RelationTarget) -> IntArray:
    items = np.asarray(value)
    fits = items.ndim == 1 and items.size > 0 and items.dtype.kind in "iu"
    if not fits or items.min() < 0 or items.max() >= target.items:
        raise ArgumentError(f"contexts[{number}]", value, f"items in [0, {target.items})")
    if len(np.unique(items)) != len(items):
        raise ArgumentError(f"contexts[{number}]", value, "items that are distinct")
    return items.astype(np.int64)


def _share(routing: RoutingLayer) -> float | None:
    """The factor c when every head routes c times the items themselves, exactly."""
    layer = routing.layer
    if not layer.w_v or layer.b_v:
        return None
    d = layer.d_model - 1
    share = float(layer.w_o[0][0, 0])
    exact = all(np.array_equal(w, np.eye(d + 1, d)) for w in layer.w_v)
    return share if exact and all(np.array_equal(w, share * np.eye(d)) for w in layer.w_o) else None


def _check(routing: RoutingLayer, target: RelationTarget) -> None:
    heads = np.asarray(routing.edge_heads)
    if routing.layer.kind != "soft":
        raise ArgumentError("routing", routing.layer.kind, "a layer of soft heads")
    if heads.shape != (target.relations,) or heads.dtype.kind not in "iu":
        raise ArgumentError("edge_heads", heads.shape, f"({target.relations},) integers")
    if heads.min() < 0 or heads.max() >= routing.layer.heads:
        raise ArgumentError("edge_heads", int(heads.max()), f"heads in [0, {routing.layer.heads})")
    held = np.stack([heads, target.edges[:, 0]], axis=1)
    if len(np.unique(held, axis=0)) != len(held):
        raise ArgumentError("edge_heads", "a head with two relations of one item", "one a row")
