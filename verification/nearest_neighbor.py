r"""Judging layers against nearest neighbour search: proofs about the weights, inputs, samples."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from flint import fmpq, fmpq_mat
from numpy.typing import ArrayLike

from bounds.arithmetic import (
    Ball,
    certify,
    exact_integer,
    exact_rational,
    to_arb,
)
from bounds.errors import ArgumentError, UndecidedError
from bounds.softmax_scale import softmax_error
from constructions.attention import AttentionLayer, FloatArray, checked_array
from constructions.nearest_neighbor import nearest_neighbor
from verification.certificate import Certificate, Verdict, layer_digest
from verification.confidence import bounded_mean, check_confidence, clopper_pearson
from verification.exact_forward import (
    ExactLayer,
    as_fraction,
    exact_matrix,
    exact_scores,
    first_maximum,
    squared_distance,
)

_BATCH = 64
_BATCH_ENTRIES = 1 << 22

CLAIM = "the layer outputs the nearest neighbor"


def verify_weights(layer: AttentionLayer, error: object | None) -> Certificate:
    r"""A proof from the weights alone.

    A single hard head without biases realises $f$ for all unit points and queries, any number of
    them, exactly when $W_QW_K^\top = cI$, $c > 0$, and $W_VW_O^\top = I$: decided in rational
    arithmetic. Other hard layers are refuted where some input has a squared error above ``error``
    (0 by default), else left undecided. A single soft head of that form has the certified error
    :func:`bounds.softmax_error` at scale $\beta c$ on $\mathcal D_2$, set against ``error``.
    """
    _require_values(layer)
    exact = ExactLayer(layer)
    scale = _identity_scale(exact)
    common: dict[str, Any] = {
        "method": layer.method,
        "layer_digest": layer_digest(layer),
        "checked": 0,
    }
    if layer.kind == "hard":
        allowed = _allowed(0 if error is None else error)
        claim = f"{CLAIM} for all unit points and queries"
        if allowed:
            claim += f", with squared error <= {as_text(allowed)}"
        if scale is not None:
            return Certificate(
                claim=claim, scope="all inputs", verdict="verified",
                details={"W_Q W_K^T": f"{as_fraction(scale)} I"}, **common,
            )  # fmt: skip
        found = _counterexample(layer, allowed)
        return Certificate(
            claim=claim,
            scope="all inputs",
            verdict="undecided" if found is None else "refuted",
            counterexample=found,
            reason=""
            if found
            else "the weights are not of the form that is proved, and no "
            "counterexample was found: give points and queries, or samples",
            **common,
        )
    if error is None:
        raise ArgumentError("error", None, "given for a soft layer: the largest error to allow")
    allowed = _allowed(error)
    if scale is None:
        return Certificate(
            claim=f"{CLAIM} with expected error <= {error} on two orthonormal points",
            scope="expected error", verdict="undecided",
            reason="not a single head with W_Q W_K^T = c I and W_V W_O^T = I: give points and "
            "queries, or samples", **common,
        )  # fmt: skip
    beta = as_fraction(scale) * Fraction(layer.logit_scale)
    value = softmax_error(layer.d_model, beta, digits=20).value
    assert isinstance(value, Ball)
    try:
        verdict: Verdict = "verified" if value <= allowed else "refuted"
    except UndecidedError:
        verdict = "undecided"
    return Certificate(
        claim=f"{CLAIM} with expected error <= {error} on two orthonormal points",
        scope="expected error", verdict=verdict, error=value,
        details={"softmax scale": str(beta)}, **common,
    )  # fmt: skip


def verify_inputs(
    layer: AttentionLayer, points: ArrayLike, queries: ArrayLike, error: object | None
) -> Certificate:
    r"""Every given query on the given points, in exact or ball arithmetic: $\|f - g\|^2 \le$ ``error``.

    ``points``: (N, d); ``queries``: (n, d) or (d,). ``error``: the largest squared error to allow
    for each query (0, exact equality, for hard layers by default). The target's ties go to the
    smallest index, in exact arithmetic. The margin is the smallest lead of a nearest point; at
    that lead a full-rank softmax head has $\|f-g\| \le 2(N-1)/(N-1+e^{\beta\gamma})$ [H1].
    """
    _require_values(layer)
    rows = checked_array(points, "points", 2)
    asked = checked_array(queries, "queries", None)
    asked = asked[None, :] if asked.ndim == 1 else asked
    for name, array in (("points", rows), ("queries", asked)):
        if array.ndim != 2 or len(array) == 0 or array.shape[1] != layer.d_model:
            raise ArgumentError(name, array.shape, f"of shape (at least 1, {layer.d_model})")
    if error is None and layer.kind == "soft":
        raise ArgumentError("error", None, "given for a soft layer: the largest error to allow")
    allowed = _allowed(0 if error is None else error)
    exact, points_exact = ExactLayer(layer), exact_matrix(rows)
    worst, smallest_lead = Ball.of(0), None
    verdict: Verdict = "verified"
    found: dict[str, Any] | None = None
    undecided, index = 0, 0
    for index in range(len(asked)):
        query = exact_matrix(asked[index : index + 1])
        scores = exact_scores(points_exact, query)
        best = first_maximum(scores)
        others = [scores[best] - score for i, score in enumerate(scores) if i != best]
        lead = min(others) if others else None
        if lead is not None and (smallest_lead is None or lead < smallest_lead):
            smallest_lead = lead
        wanted = [points_exact[best, j] for j in range(points_exact.ncols())]
        holds, squared = _compare(exact, points_exact, query, wanted, allowed)
        worst = max(worst, squared, key=lambda ball: ball.upper)
        if holds is None:
            undecided += 1
        elif not holds:
            verdict = "refuted"
            found = {"query": index, "nearest": best, "squared error": squared.decimal(8)}
            break
    if verdict == "verified" and undecided:
        verdict = "undecided"
    return Certificate(
        claim=f"{CLAIM} with squared error <= {as_text(allowed)}",
        scope="given inputs",
        checked=index + 1,
        verdict=verdict,
        layer_digest=layer_digest(layer),
        method=layer.method,
        margin=None if smallest_lead is None else Ball.of(as_fraction(smallest_lead)).lower_float(),
        error=worst,
        counterexample=found,
        reason=f"{undecided} inputs undecided" if undecided else "",
        details=_margin_details(layer, exact, len(rows), smallest_lead),
    )


def verify_sample(
    layer: AttentionLayer,
    error: object | None,
    *,
    context: int,
    samples: int,
    confidence: float,
    seed: int,
) -> Certificate:
    r"""A sampled error on $\mathcal D_N$ with an exact confidence interval, set against ``error``.

    Orthonormal frames are uniform (QR with the sign fix), queries uniform on the sphere. For one
    hard head with $W_VW_O^\top = I$ the error is $2\Pr(\text{wrong point})$: Clopper–Pearson. Otherwise
    the squared error is bounded by $(1 + \sum_h\|W_V^hW_O^{h\top}\|)^2$ (with the biases): empirical
    Bernstein.
    """
    _require_values(layer)
    if error is None:
        raise ArgumentError("error", None, "given with samples: the largest error to allow")
    allowed = _allowed(error)
    context = exact_integer(context, "context", 1, layer.d_model)
    samples = exact_integer(samples, "samples", 2)
    check_confidence(confidence)
    rng = np.random.default_rng(exact_integer(seed, "seed", 0))
    selects = layer.kind == "hard" and layer.heads == 1 and _values_are_identity(ExactLayer(layer))
    squared = np.empty(samples)
    batch = max(1, min(_BATCH, _BATCH_ENTRIES // (context * layer.d_model)))
    for start in range(0, samples, batch):
        size = min(batch, samples - start)
        points = np.concatenate([random_frame(rng, layer.d_model, context) for _ in range(size)])
        queries = rng.standard_normal((size, layer.d_model))
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
        own = np.kron(np.eye(size, dtype=bool), np.ones((1, context), dtype=bool))  # its own frame
        frames = points.reshape(size, context, layer.d_model)
        wanted = np.stack([nearest_neighbor(x, y) for x, y in zip(frames, queries, strict=True)])
        if selects:  # which point it attends to: its output is that point up to rounding
            chosen = points[layer.attention(0, queries, points, own).argmax(axis=1)]
            squared[start : start + size] = (chosen != wanted).any(axis=1)
        else:
            got = layer.attend(queries, points, own)
            squared[start : start + size] = ((got - wanted) ** 2).sum(axis=1)
    if selects:
        low, high = clopper_pearson(int(squared.sum()), samples, confidence)
        interval = 2 * low, 2 * high
    else:
        interval = bounded_mean(squared, _largest_squared_error(layer), confidence)
    verdict: Verdict = "undecided"
    if Fraction(interval[1]) <= allowed:
        verdict = "verified"
    elif Fraction(interval[0]) > allowed:
        verdict = "refuted"
    return Certificate(
        claim=f"{CLAIM} with expected error <= {error} on {context} orthonormal points",
        scope="sample", checked=samples, verdict=verdict, error=interval, confidence=confidence,
        layer_digest=layer_digest(layer), method=layer.method, seed=seed,
        details={"interval": "Clopper-Pearson" if selects else "empirical Bernstein"},
    )  # fmt: skip


def random_frame(rng: np.random.Generator, d: int, count: int) -> FloatArray:
    """``count`` orthonormal rows in R^d, uniform among such frames (QR with the sign fix)."""
    q, r = np.linalg.qr(rng.standard_normal((d, count)))
    frame: FloatArray = (q * np.sign(np.diag(r))).T
    return frame


def _allowed(error: object) -> Fraction:
    allowed = exact_rational(error, "error")
    if allowed < 0:
        raise ArgumentError("error", error, "at least 0")
    return allowed


def as_text(value: Fraction) -> str:
    """A rational for a person."""
    return str(value) if len(str(value)) <= 12 else f"{float(value):.6g}"


def _compare(
    exact: ExactLayer, points: fmpq_mat, query: fmpq_mat, wanted: list[fmpq], allowed: Fraction
) -> tuple[bool | None, Ball]:
    """Whether the squared error is at most ``allowed``, and its ball."""
    seen: list[Ball] = []

    def attempt(_: int) -> bool | None:
        squared = squared_distance(exact.output(points, query), wanted)
        seen.append(Ball.from_arb(squared))
        if squared <= to_arb(allowed):
            return True
        return False if squared > to_arb(allowed) else None

    try:
        return certify(attempt, "the squared error", limit=1 << 12), seen[-1]
    except UndecidedError:
        return None, seen[-1]


def _margin_details(
    layer: AttentionLayer, exact: ExactLayer, count: int, lead: fmpq | None
) -> dict[str, Any]:
    scale = _identity_scale(exact)
    if layer.kind == "hard" or scale is None or lead is None:
        return {}
    exponent = to_arb(as_fraction(lead * scale * exact.scale))
    mass = (count - 1) / (count - 1 + exponent.exp())
    return {"margin bound on ||f - g||": Ball.from_arb(2 * mass).decimal(8, "up")}


def _identity_scale(exact: ExactLayer) -> fmpq | None:
    """$c > 0$ with $W_QW_K^\\top = cI$, for a single unbiased head with $W_VW_O^\\top = I$, else ``None``."""
    if exact.layer.heads != 1 or any(exact.biases.values()) or not _values_are_identity(exact):
        return None
    product = exact.matrices["w_q"][0] * exact.matrices["w_k"][0].transpose()
    scale = product[0, 0]
    return scale if scale > 0 and product == _identity(exact.layer.d_model) * scale else None


def _values_are_identity(exact: ExactLayer) -> bool:
    if exact.biases["b_v"]:
        return False
    product = exact.matrices["w_v"][0] * exact.matrices["w_o"][0].transpose()
    return bool(product == _identity(exact.layer.d_model))


def _identity(d: int) -> fmpq_mat:
    return fmpq_mat(d, d, [fmpq(int(i == j)) for i in range(d) for j in range(d)])


def _counterexample(layer: AttentionLayer, allowed: Fraction) -> dict[str, Any] | None:
    """Two opposite unit points and a unit query with a squared error provably above ``allowed``."""
    d = layer.d_model
    directions = [*np.eye(d), *np.random.default_rng(0).standard_normal((4 * d + 16, d))]
    for query in directions:
        query = query / np.linalg.norm(query)
        moved = sum(layer.w_k[h] @ (layer.w_q[h].T @ query) for h in range(layer.heads))
        # W_K W_Q^T y = c y + tilt: w = y scores c; where c > 0 and tilt is not 0, w = s y - tilt/|tilt|
        # with s = |tilt|/(2c) has <w, y> = s > 0 and the score s c - |tilt| < 0, below that of -w
        along = float(moved @ query)
        tilt = moved - along * query
        size = float(np.linalg.norm(tilt))
        points = [query, *(row for row in directions[:d] if row @ query > 0)]
        if along > 0 and size > 0:
            aside = tilt / size
            aside -= (aside @ query) * query  # a small tilt lost this in rounding
            points.append(size / (2 * along) * query - aside)
        for point in points:
            unit = point / np.linalg.norm(point)
            if not np.isfinite(unit).all() or unit @ query <= 0:
                continue
            for pair in (np.stack([unit, -unit]), np.stack([-unit, unit])):
                certificate = verify_inputs(layer, pair, query, allowed)
                if certificate.verdict == "refuted":
                    return {"points": pair.tolist(), "query": query.tolist()}
    return None


def _largest_squared_error(layer: AttentionLayer) -> float:
    """An upper bound of $\\|f - g\\|^2$ over unit points: each head outputs a mean of its values."""
    reach = 1.0
    for head in range(layer.heads):
        product = np.abs(layer.w_v[head] @ layer.w_o[head].T)
        size = np.abs(layer.w_v[head]) @ np.abs(layer.w_o[head].T)  # bounds the product's rounding
        product += 1e-12 * size
        # the spectral norm is at most the root of the largest row sum times the largest column sum
        reach += float(np.sqrt(product.sum(axis=0).max() * product.sum(axis=1).max()))
        if layer.b_v:
            reach += float(np.linalg.norm(layer.b_v[head]) * np.linalg.norm(layer.w_o[head]))
    return reach**2 * (1 + 1e-9)


def _require_values(layer: AttentionLayer) -> None:
    if not layer.w_v and layer.threshold is not None:
        raise ArgumentError(
            "layer", layer.method, "one that routes values: this one recognises pairs, so judge it on "
            "a relation target (its embeddings and edges)",
        )  # fmt: skip
    if not layer.w_v or layer.w_o[0].shape[0] != layer.d_model:
        raise ArgumentError("layer", layer.method, "one whose values map d_model to d_model")
