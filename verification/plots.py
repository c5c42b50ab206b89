"""Plots (extra ``plot``): matplotlib is imported only here, and only when a plot is made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bounds import Ball, Bound
from bounds.errors import ArgumentError
from verification.sandwich import sandwich


def plot_sandwich(
    dims: Sequence[int], heads: Sequence[int], path: Path, *, rank: int = 1, seed: int = 0
) -> None:
    """Error against heads, one panel a dimension: floors below, certified rank-1 layers above.

    ``path``: .png, .pdf or .svg. Needs matplotlib: ``pip install "attention-bounds[plot]"``.
    """
    if not dims or not heads:
        raise ArgumentError("dims, heads", (dims, heads), "not empty")
    plt = pyplot()
    columns = min(2, len(dims))
    lines = -(-len(dims) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(5 * columns, 3.6 * lines), squeeze=False, layout="constrained"
    )
    for axis, d in zip(axes.flat, dims, strict=False):
        scalar = [sandwich(d, rank, count, values="scalar", seed=seed) for count in heads]
        general = [sandwich(d, rank, count, values="general", seed=seed) for count in heads]
        axis.plot(
            heads, [_height(pair.upper) for pair in scalar], "o-", label="built (H6), certified"
        )
        axis.plot(
            heads, [_height(pair.lower) for pair in scalar], "s--", label="floor, scalar values"
        )
        axis.plot(
            heads, [_height(pair.lower) for pair in general], "^:", label="floor, general values"
        )
        axis.set(xscale="log", xlabel="heads H", ylabel="error", title=f"d = {d}, rank {rank}")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    for axis in list(axes.flat)[len(dims) :]:
        axis.set_visible(False)
    axes.flat[0].legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def pyplot() -> Any:
    """matplotlib's pyplot with a backend that needs no screen, or an error that says how to get it."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise ImportError('a plot needs matplotlib: pip install "attention-bounds[plot]"') from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _height(bound: Bound) -> float:
    assert isinstance(bound.value, Ball)
    return float(bound.value)
