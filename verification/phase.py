r"""The multi-head advantage, measured: relations recovered against heads, for a fixed $D_K$.

Random unit embeddings, a random permutation graph, and the closed-form heads of
:mod:`constructions.superposition` (no fitting): the relations are dealt to the heads, each head
gets $d_k = \lfloor D_K/h\rfloor$ columns of random codes, and its threshold is put above its largest score
outside the graph. A relation is recovered when some head scores it above its threshold. What is
counted was judged exactly: the layer recognises the recovered relations and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bounds.arithmetic import exact_integer
from bounds.errors import ArgumentError
from constructions.attention import AttentionLayer, FloatArray
from constructions.errors import RealizationError
from constructions.recognition import recognition_report
from constructions.relations import RelationTarget, relation_target
from constructions.superposition import (
    block_codes,
    dual_block,
    embedding_metric,
    relation_scores,
)

Progress = Callable[[int, int], None]

_RIDGES = (0.0, 0.3, 1.0)
_CLEAR = 1 + 1e-9  # a recovered relation scores at least this multiple of every non-relation


@dataclass(frozen=True, kw_only=True)
class PhaseRow:
    r"""One point of the phase diagram: ``recovered`` of ``items`` relations, no false positive.

    ``key_dimension``: $D_K$; ``heads``: h; ``head_dimension``: $d_k = \lfloor D_K/h\rfloor$, the
    columns offered to each head. ``one_head`` $(m/d_{model})^2\ln m$ and ``many_heads``
    $(m/d_{model})\ln m$: the predicted orders of growth, without their unknown constants.
    """

    items: int
    d_model: int
    key_dimension: int
    heads: int
    head_dimension: int
    recovered: int
    fraction: float
    one_head: float
    many_heads: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class Transition:
    r"""The least $D_K$ located with which h heads recover at least ``level`` of the relations.

    At ``key_dimension`` $= h\,d_k$ they do, at $h(d_k-1)$ they do not: both were judged. ``None``:
    not even full-rank heads, $d_k = d_{model}$, do.
    """

    items: int
    d_model: int
    heads: int
    level: float
    key_dimension: int | None
    one_head: float
    many_heads: float


def recovering_layer(
    target: RelationTarget, heads: int, key_dim: int, seed: int = 0
) -> tuple[AttentionLayer | None, int]:
    r"""A layer of h heads of dimension at most ``key_dim`` and the number of relations it recognises.

    It recognises nothing outside the graph; which relations it recognises was decided exactly on
    all pairs. For each head the best of three ridges of its dual vectors is taken. A head needs no
    more than ``min(n, d_model)`` dimensions for its n relations, and uses no more. ``None`` when
    no relation is recovered.
    """
    heads = exact_integer(heads, "heads", 1, target.relations)
    key_dim = exact_integer(key_dim, "key_dim", 1)
    rng = np.random.default_rng(exact_integer(seed, "seed", 0))
    metric = embedding_metric(target.embeddings)
    w_q, w_k = [], []
    recovered = np.zeros(target.relations, dtype=bool)
    for rows in np.array_split(rng.permutation(target.relations), heads):
        head_seed = int(rng.integers(2**32))
        best: tuple[FloatArray, FloatArray] | None = None
        held = np.zeros(target.relations, dtype=bool)
        for ridge in _RIDGES:
            try:
                query, key = _head(target, np.sort(rows), metric, ridge, key_dim, head_seed)
            except RealizationError:
                continue  # ridge 0 and more relations than dimensions
            relations, highest = relation_scores(target, query, key)
            size = max(highest, 1e-6 * float(np.abs(relations).max()))
            found = relations > size * _CLEAR
            if found.sum() > held.sum():
                held, best = found, (query * (2 / (size + relations[found].min())), key)
            if held[rows].all():
                break
        if best is not None:
            w_q.append(best[0])
            w_k.append(best[1])
            recovered |= held
    if not w_q:
        return None, 0
    layer = AttentionLayer(w_q=w_q, w_k=w_k, threshold=1.0, method="superposition", seed=seed)
    kept = RelationTarget(target.embeddings, target.edges[recovered])
    report = recognition_report(layer, kept)
    if report.wrong is not None or report.undecided:
        raise RealizationError(f"rounding hides which pairs are recognised: {report}")
    return layer, int(recovered.sum())


def phase_rows(
    items: int | Iterable[int],
    d_model: int,
    *,
    key_dimensions: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[PhaseRow]:
    r"""The fraction of relations recovered, over $(m, D_K, h)$.

    ``items`` $m$: one number, for the three sizes $m/4, m/2, m$, or the sizes themselves.
    ``key_dimensions``: values of $D_K$ (default: powers of 2 and $3\cdot2^j$ from 8 to 2m).
    ``heads``: values of h (default: powers of 2 up to 64); rows need $h \le D_K$ and $h \le m$.
    """
    d_model = exact_integer(d_model, "d_model", 1)
    seed = exact_integer(seed, "seed", 0)
    sizes = _sizes(items)
    points = [
        (m, D, h)
        for m in sizes
        for D in (key_dimensions if key_dimensions is not None else _steps(m))
        for h in (heads if heads is not None else [2**j for j in range(7)])
        if exact_integer(h, "heads", 1) <= min(exact_integer(D, "key_dimensions", 1), m)
    ]
    if not points:
        raise ArgumentError("heads", heads, "at most D_K and m for some point of the diagram")
    targets = {m: random_permutation_target(m, d_model, seed) for m in sizes}
    known: dict[tuple[int, int, int], int] = {}
    rows = []
    for done, (m, D, h) in enumerate(points):
        place = m, h, min(D // h, -(-m // h), d_model)  # more columns change nothing
        if place not in known:
            known[place] = recovering_layer(targets[m], h, place[2], seed)[1]
        rows.append(
            PhaseRow(
                items=m, d_model=d_model, key_dimension=int(D), heads=int(h),
                head_dimension=int(D) // int(h), recovered=known[place],
                fraction=known[place] / m, one_head=one_head_order(m, d_model),
                many_heads=many_heads_order(m, d_model), seed=seed,
            )
        )  # fmt: skip
        if progress is not None:
            progress(done + 1, len(points))
    return rows


def transitions(rows: Sequence[PhaseRow], level: float = 0.5) -> list[Transition]:
    """Where each (items, heads) of a diagram passes ``level``, located by bisection in $d_k$."""
    if not 0 < level <= 1:
        raise ArgumentError("level", level, "above 0 and at most 1")
    found = []
    for m, d_model, h, seed in sorted({(r.items, r.d_model, r.heads, r.seed) for r in rows}):
        target = random_permutation_target(m, d_model, seed)
        low, high = 0, min(-(-m // h), d_model)
        enough = recovering_layer(target, h, high, seed)[1] >= level * m
        while enough and high - low > 1:
            middle = (low + high) // 2
            passed = recovering_layer(target, h, middle, seed)[1] >= level * m
            low, high = (low, middle) if passed else (middle, high)
        found.append(
            Transition(
                items=m, d_model=d_model, heads=h, level=level,
                key_dimension=h * high if enough else None,
                one_head=one_head_order(m, d_model), many_heads=many_heads_order(m, d_model),
            )
        )  # fmt: skip
    return found


def random_permutation_target(items: int, d_model: int, seed: int = 0) -> RelationTarget:
    """Uniform unit embeddings and a uniform permutation graph."""
    rng = np.random.default_rng([seed, items, d_model])
    x = rng.standard_normal((items, d_model))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return relation_target(x, np.stack([np.arange(items), rng.permutation(items)], axis=1))


def one_head_order(items: int, d_model: int) -> float:
    r"""$(m/d_{model})^2\ln m$."""
    return (items / d_model) ** 2 * math.log(items)


def many_heads_order(items: int, d_model: int) -> float:
    r"""$(m/d_{model})\ln m$."""
    return items / d_model * math.log(items)


def plot_phase(
    rows: Sequence[PhaseRow], path: str | Path, located: Sequence[Transition] | None = None
) -> None:
    """Draw a diagram into a file (PNG, SVG, PDF): see :func:`verification.phase_plot.draw`."""
    from verification.phase_plot import draw

    draw(rows, path, transitions(rows) if located is None else located)


def _head(
    target: RelationTarget,
    rows: np.ndarray,
    metric: FloatArray,
    ridge: float,
    key_dim: int,
    seed: int,
) -> tuple[FloatArray, FloatArray]:
    """One head: the exact mean matrix where the dimension has room for it, else random codes."""
    block = dual_block(target, rows, metric, ridge)
    d = target.embeddings.shape[1]
    if d <= key_dim and d < len(rows):
        return block.sources @ block.targets.T, np.eye(d)
    return block.weights(block_codes(np.random.default_rng(seed), len(rows), key_dim))


def _sizes(items: int | Iterable[int]) -> list[int]:
    if isinstance(items, Iterable):
        return sorted({exact_integer(m, "items", 2) for m in items})
    largest = exact_integer(items, "items", 8)
    return [largest // 4, largest // 2, largest]


def _steps(items: int) -> list[int]:
    values = {k << j for k in (2, 3) for j in range(2, 2 * items.bit_length())}
    return sorted(value for value in values if 8 <= value <= 2 * items)
