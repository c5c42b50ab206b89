"""The phase diagram: every count judged anew in exact arithmetic, transitions bracketed, the figure drawn."""

from __future__ import annotations

import sys
from fractions import Fraction
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bounds.errors import ArgumentError
from constructions import relation_target
from verification.phase import (
    PhaseRow,
    many_heads_order,
    one_head_order,
    phase_rows,
    plot_phase,
    random_permutation_target,
    recovering_layer,
    transitions,
)


def exactly_recognized(layer: Any, x: np.ndarray) -> set[tuple[int, int]]:
    """The pairs above the threshold, in rational arithmetic."""

    def fractions(array: np.ndarray) -> np.ndarray:
        return np.vectorize(Fraction, otypes=[object])(array)

    tokens, found = fractions(x), set()
    for w_q, w_k in zip(layer.w_q, layer.w_k, strict=True):
        scores = (tokens @ fractions(w_q)) @ (tokens @ fractions(w_k)).T
        found |= {(int(i), int(j)) for i, j in np.argwhere(scores > Fraction(layer.threshold))}
    return found


@pytest.mark.parametrize(("heads", "key_dim"), [(1, 4), (1, 9), (2, 6), (4, 2), (6, 1)])
def test_what_is_recovered_is_recognized_and_nothing_else(heads: int, key_dim: int) -> None:
    target = random_permutation_target(18, 9, seed=3)
    layer, count = recovering_layer(target, heads, key_dim)
    edges = {(int(i), int(j)) for i, j in target.edges}
    if layer is None:
        assert count == 0
        return
    found = exactly_recognized(layer, target.embeddings)
    assert found <= edges
    assert len(found) == count
    assert layer.heads <= heads
    assert max(layer.key_dims) <= max(key_dim, 1)


def test_orthonormal_items_need_one_head() -> None:
    target = relation_target(np.eye(32), np.stack([np.arange(32), np.roll(np.arange(32), 5)], 1))
    assert recovering_layer(target, 1, 16)[1] == 32
    assert recovering_layer(target, 32, 1)[1] == 32


def test_more_heads_recover_more_at_the_same_total_dimension() -> None:
    rows = phase_rows([192], 48, key_dimensions=[96, 192], heads=[1, 2, 4, 8, 16])
    fractions = {(row.key_dimension, row.heads): row.fraction for row in rows}
    assert fractions[192, 1] < 0.7  # one head: full rank, and still not
    assert fractions[192, 16] == fractions[192, 8] == 1
    assert max(fractions[96, h] for h in (4, 8, 16)) > fractions[96, 1]
    for row in rows:
        assert row.head_dimension == row.key_dimension // row.heads
        assert row.fraction == row.recovered / 192
        assert row.one_head == pytest.approx(16 * log(192))
        assert row.many_heads == pytest.approx(4 * log(192))


def test_orders_differ_by_the_load() -> None:
    for m, d in ((64, 16), (1000, 10)):
        assert one_head_order(m, d) == pytest.approx(many_heads_order(m, d) * m / d)


def test_transitions_are_where_they_say() -> None:
    rows = phase_rows(64, 24, key_dimensions=[16, 32], heads=[1, 4])
    assert {row.items for row in rows} == {16, 32, 64}
    located = transitions(rows, 0.5)
    assert {(t.items, t.heads) for t in located} == {(m, h) for m in (16, 32, 64) for h in (1, 4)}
    for t in located:
        target = random_permutation_target(t.items, 24)
        if t.key_dimension is None:
            assert recovering_layer(target, t.heads, 24)[1] < t.items / 2
            continue
        key_dim = t.key_dimension // t.heads
        assert recovering_layer(target, t.heads, key_dim)[1] >= t.items / 2
        assert key_dim == 1 or recovering_layer(target, t.heads, key_dim - 1)[1] < t.items / 2
    assert any(t.key_dimension is not None for t in located)


def test_the_same_seed_gives_the_same_diagram() -> None:
    once, again, other = (
        phase_rows([40], 20, key_dimensions=[16], heads=[1, 2, 4], seed=s) for s in (1, 1, 2)
    )
    assert once == again
    assert [row.seed for row in other] == [2, 2, 2]


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ArgumentError, match="items"):
        phase_rows(4, 8)
    with pytest.raises(ArgumentError, match="heads"):
        phase_rows([16], 8, key_dimensions=[2], heads=[4])
    with pytest.raises(ArgumentError, match="level"):
        transitions([], 0)
    with pytest.raises(ArgumentError, match="rows"):
        plot_phase([], "never.png", [])


def test_the_figure_is_drawn(tmp_path: Path, monkeypatch: Any) -> None:
    rows: list[PhaseRow] = phase_rows([16, 32], 16, key_dimensions=[8, 16, 32], heads=[1, 2, 4])
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"attention-bounds\[plot\]"):
        plot_phase(rows, tmp_path / "none.png")
    monkeypatch.undo()
    pytest.importorskip("matplotlib")
    plot_phase(rows, tmp_path / "phase.png")
    assert (tmp_path / "phase.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert (tmp_path / "phase.png").stat().st_size > 20_000
