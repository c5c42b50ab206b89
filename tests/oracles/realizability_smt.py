"""One graph at a time: whether heads realise it, by z3's exact arithmetic (rational simplex, nlsat).

Items are rows of integers, a graph is a bit mask as in :mod:`oracles.realizability`. An answer
other than "satisfiable" or "unsatisfiable" is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import z3

Items = Sequence[Sequence[int]]


class UndecidedError(RuntimeError):
    """z3 gave up: there is no verdict."""


def is_satisfiable(solver: z3.Solver) -> bool:
    answer = solver.check()
    if answer == z3.unknown:
        raise UndecidedError(solver.reason_unknown())
    return bool(answer == z3.sat)


def full_head_realizes(items: Items, graph: int, tau: int) -> bool:
    """Whether one head with d_k >= d_model has x_i M x_j > tau exactly on the pairs of ``graph``."""
    return _realizes(items, graph, tau, _form(len(items[0])), "QF_LRA")


def narrow_head_realizes(items: Items, graph: int, tau: int, key_dim: int) -> bool:
    """The same for a head with d_k = ``key_dim``: polynomials of degree 2."""
    d = len(items[0])
    query = [z3.RealVector(f"q{c}", key_dim) for c in range(d)]
    key = [z3.RealVector(f"k{c}", key_dim) for c in range(d)]
    form = [[z3.Sum([query[a][c] * key[b][c] for c in range(key_dim)]) for b in range(d)]
            for a in range(d)]  # fmt: skip
    return _realizes(items, graph, tau, form, "QF_NRA")


def full_head_graphs_by_search(items: Items, tau: int) -> set[int]:
    """All graphs of one full head: pair by pair, both ways, as long as weights are left.

    So every one of the 2^(m^2) graphs is decided, most of them by a part of their pairs.
    """
    form, solver = _form(len(items[0])), z3.SolverFor("QF_LRA")
    scores = [_score(form, x, y) for x, y in product(items, repeat=2)]
    found = set()

    def extend(graph: int, pair: int) -> None:
        if pair == len(scores):
            found.add(graph)
            return
        for bit, condition in ((0, scores[pair] <= tau), (1, scores[pair] > tau)):
            solver.push()
            solver.add(condition)
            if is_satisfiable(solver):
                extend(graph | bit << pair, pair + 1)
            solver.pop()

    extend(0, 0)
    return found


def row_argmax_graphs(items: Items, *, permutations: bool = False) -> Iterator[tuple[int, ...]]:
    """The functional graphs i -> s[i] of one full head, s[i] the first index of the largest score.

    Row by row; a prefix of rows that no weights have is not continued. Ties count as they fall:
    strictly larger than before s[i], at least as large as after it.
    """
    m, form = len(items), _form(len(items[0]))
    solver = z3.SolverFor("QF_LRA")
    scores = [[_score(form, x, y) for y in items] for x in items]

    def extend(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        row = len(chosen)
        if row == m:
            yield chosen
            return
        for image in range(m):
            if permutations and image in chosen:
                continue
            best = scores[row][image]
            solver.push()
            solver.add(*(best > other for other in scores[row][:image]))
            solver.add(*(best >= other for other in scores[row][image + 1 :]))
            if is_satisfiable(solver):
                yield from extend((*chosen, image))
            solver.pop()

    return extend(())


def _form(d: int) -> list[Any]:
    return [z3.RealVector(f"m{c}", d) for c in range(d)]


def _score(form: list[Any], x: Sequence[int], y: Sequence[int]) -> Any:
    size = range(len(x))
    return z3.Sum([x[a] * y[b] * form[a][b] for a in size for b in size])


def _realizes(items: Items, graph: int, tau: int, form: list[Any], logic: str) -> bool:
    solver = z3.SolverFor(logic)
    for k, (x, y) in enumerate(product(items, repeat=2)):
        score = _score(form, x, y)
        solver.add(score > tau if graph >> k & 1 else score <= tau)
    return is_satisfiable(solver)
