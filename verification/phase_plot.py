"""The figure of a phase diagram; matplotlib is the extra ``plot`` and is imported on use."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.errors import ArgumentError

if TYPE_CHECKING:
    from verification.phase import PhaseRow, Transition


def draw(rows: Sequence[PhaseRow], path: str | Path, located: Sequence[Transition]) -> None:
    """One map over (heads, D_K) for each m; recovery against heads; transitions against m."""
    if not rows:
        raise ArgumentError("rows", rows, "at least one row of a phase diagram")
    if not located:
        raise ArgumentError("located", located, "the transitions of the diagram")
    try:
        from matplotlib.figure import Figure
    except ImportError as failure:
        raise ImportError(
            "the figure needs matplotlib: pip install 'attention-bounds[plot]'"
        ) from failure
    sizes = sorted({row.items for row in rows})
    columns = max(len(sizes), 2)
    figure = Figure(figsize=(4.6 * columns, 8.4), layout="constrained")
    upper, lower = np.atleast_1d(np.asarray(figure.subfigures(2, 1), dtype=object))
    axes = upper.subplots(1, len(sizes), squeeze=False, sharey=True)[0]
    shades = None
    for axis, items in zip(axes, sizes, strict=True):
        shades = _map(axis, [row for row in rows if row.items == items], located)
    axes[0].set_ylabel("total key dimension $D_K$")
    upper.colorbar(shades, ax=axes, label="relations recovered", shrink=0.9)
    left, right = lower.subplots(1, 2)
    _curves(left, [row for row in rows if row.items == sizes[-1]])
    _growth(right, located)
    figure.savefig(Path(path), dpi=120)


def _map(axis: Any, rows: Sequence[PhaseRow], located: Sequence[Transition]) -> Any:
    items, d_model = rows[0].items, rows[0].d_model
    shades = axis.scatter(
        [row.heads for row in rows], [row.key_dimension for row in rows],
        c=[row.fraction for row in rows], cmap="viridis", vmin=0, vmax=1, marker="s", s=150,
    )  # fmt: skip
    mine = [t for t in located if t.items == items]
    known = [(t.heads, t.key_dimension) for t in mine if t.key_dimension is not None]
    if known:
        label = f"{mine[0].level:.0%} recovered"
        axis.plot(*zip(*known, strict=True), "o-", color="red", ms=4, label=label)
    for name, value, style in (
        (r"$(m/d)^2\ln m$", rows[0].one_head, ":"),
        (r"$(m/d)\ln m$", rows[0].many_heads, "--"),
    ):
        axis.axhline(value, color="black", ls=style, lw=1.2, label=name)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.set_title(f"$m$ = {items}, $d_{{model}}$ = {d_model}")
    axis.set_xlabel("heads $h$")
    axis.legend(loc="lower right", fontsize=8, framealpha=0.9)
    return shades


def _curves(axis: Any, rows: Sequence[PhaseRow]) -> None:
    values = sorted({row.key_dimension for row in rows})
    changing = [
        D for D in values if max(r.fraction for r in rows if r.key_dimension == D) > 0.02
    ] or values  # fmt: skip
    shown = changing[:: max(1, math.ceil(len(changing) / 6))]
    for number, D in enumerate(shown):
        line = sorted((r.heads, r.fraction) for r in rows if r.key_dimension == D)
        shade = f"C{number}"
        axis.plot(*zip(*line, strict=True), "o-", color=shade, ms=4, label=f"$D_K$ = {D}")
    axis.set_xscale("log", base=2)
    axis.set_xlabel("heads $h$ at fixed $D_K$")
    axis.set_ylabel("relations recovered")
    axis.set_title(f"$m$ = {rows[0].items}, $d_{{model}}$ = {rows[0].d_model}")
    axis.legend(fontsize=8)


def _growth(axis: Any, located: Sequence[Transition]) -> None:
    for number, heads in enumerate(sorted({t.heads for t in located})):
        line = [
            (t.items, t.key_dimension)
            for t in located
            if t.heads == heads and t.key_dimension is not None
        ]
        if line:
            label, shade = f"h = {heads}", f"C{number}"
            axis.plot(*zip(*line, strict=True), "o-", color=shade, ms=4, label=label)
    orders: list[tuple[str, str, Callable[[Transition], float], Callable[[Transition], bool]]] = [
        (r"$(m/d)^2\ln m$", ":", lambda t: t.one_head, lambda t: t.heads == 1),
        (r"$(m/d)\ln m$", "--", lambda t: t.many_heads, lambda t: t.heads > 1),
    ]
    sizes = sorted({t.items for t in located})
    for name, style, order, counts in orders:
        best: dict[int, tuple[int, float]] = {}
        for t in located:
            if t.key_dimension is not None and counts(t):
                found = (t.key_dimension, order(t))
                best[t.items] = min(best.get(t.items, found), found)
        if best:
            # a constant fitted to the least D_K of each m: an observation, not a bound
            constant = math.exp(float(np.mean([math.log(D / value) for D, value in best.values()])))
            curve = [constant * next(order(t) for t in located if t.items == m) for m in sizes]
            axis.plot(
                sizes, curve, color="black", ls=style, label=f"{constant:.2g}·{name} (fitted)"
            )
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.set_xlabel("items $m$")
    axis.set_ylabel("$D_K$ of the transition")
    axis.set_title(f"where the layer recovers {located[0].level:.0%} of the relations")
    axis.legend(fontsize=8)
