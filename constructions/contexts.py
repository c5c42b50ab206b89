r"""Relation graphs on given contexts: pairs that never meet in a context do not matter.

A layer realises E on a context $C \subseteq [m]$ if within C it recognises exactly the pairs of E.
The readout $\max_hS_h(i,j) > \tau$ looks at one pair at a time. So to realise E on *every* context
of size at most $\ell \ge 2$ is to realise it on all $m^2$ pairs, and contexts help only where they are given
or random. docs/phase-diagram.md has the statements and the figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array

from bounds.arithmetic import exact_integer
from bounds.errors import ArgumentError
from constructions.attention import AttentionLayer, FloatArray
from constructions.errors import RealizationError
from constructions.recognition import recognition_report
from constructions.relations import RelationTarget, relation_target

IntArray = NDArray[np.int64]

_MARGIN = 0.01  # fitted: relations score >= 1 + _MARGIN, other pairs that meet <= 1 - _MARGIN
_HELD = 1.0025
_ROUNDS = 6


@dataclass(frozen=True, eq=False)
class ContextTarget:
    r"""A relation graph and the contexts on which it has to be realised.

    ``graph``: the whole graph; ``contexts``: index arrays, each without repetition. ``pairs``: the
    (P, 2) distinct pairs that meet in some context, loops included, in lexicographic order;
    ``related``: (P,) which of them are relations.
    """

    graph: RelationTarget
    contexts: tuple[IntArray, ...]
    pairs: IntArray = field(init=False)
    related: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        m = self.graph.items
        checked = tuple(
            _checked_context(c, f"contexts[{n}]", m) for n, c in enumerate(self.contexts)
        )
        if not checked:
            raise ArgumentError("contexts", (), "at least one context")
        keys = np.unique(np.concatenate([(c[:, None] * m + c).ravel() for c in checked]))
        relations = self.graph.edges[:, 0] * m + self.graph.edges[:, 1]
        object.__setattr__(self, "contexts", checked)
        object.__setattr__(self, "pairs", np.stack(np.divmod(keys, m), axis=1))
        object.__setattr__(self, "related", np.isin(keys, relations))


@dataclass(frozen=True)
class ContextReport:
    """What the check of all contexts found: every pair of every context was decided exactly.

    ``wrong``: (context, i, j), a pair on which the layer errs there; ``undecided``: pairs left open.
    ``pairs``: distinct pairs that meet; ``margin``, ``rounding``: as in a ``RecognitionReport``.
    """

    contexts: int
    pairs: int
    wrong: tuple[int, int, int] | None
    undecided: int
    margin: float
    rounding: float

    @property
    def holds(self) -> bool:
        """Whether the layer realises the graph on every context."""
        return self.wrong is None and self.undecided == 0


def context_target(
    embeddings: ArrayLike, edges: ArrayLike, contexts: Iterable[ArrayLike]
) -> ContextTarget:
    """The target of a graph on given contexts, from anything array-like.

    >>> context_target(np.eye(4), [[0, 1], [2, 3]], [[0, 1], [1, 2]]).pairs.tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [1, 2], [2, 1], [2, 2]]
    """
    return ContextTarget(relation_target(embeddings, edges), tuple(np.asarray(c) for c in contexts))


def context_report(layer: AttentionLayer, target: ContextTarget) -> ContextReport:
    """Check a layer on every context, each by the exact judge of all pairs of its items."""
    margin, rounding, undecided = np.inf, 0.0, 0
    edges, m = target.graph.edges, target.graph.items
    for number, context in enumerate(target.contexts):
        place = np.full(m, -1, dtype=np.int64)
        place[context] = np.arange(len(context))
        inside = place[edges][(place[edges] >= 0).all(axis=1)]
        report = recognition_report(layer, _Restricted(target.graph.embeddings[context], inside))
        if report.wrong is not None:
            i, j = (int(context[item]) for item in report.wrong)
            return ContextReport(
                len(target.contexts), len(target.pairs), (number, i, j), undecided, 0.0, rounding
            )
        margin, rounding = min(margin, report.margin), max(rounding, report.rounding)
        undecided += report.undecided
    return ContextReport(len(target.contexts), len(target.pairs), None, undecided, margin, rounding)


def context_layer(
    embeddings: ArrayLike,
    edges: ArrayLike,
    contexts: Iterable[ArrayLike],
    *,
    key_dim: int,
    heads: int = 1,
    seed: int = 0,
) -> AttentionLayer:
    r"""Heads fitted (squared hinge, L-BFGS) to the pairs that meet in a context, and to no others.

    Verified on every context, or ``RealizationError``; a failure proves nothing. Relations that
    meet in no context are not fitted. Source: [attention-bounds, C5].
    """
    target = context_target(embeddings, edges, contexts)
    key_dim, heads = exact_integer(key_dim, "key_dim", 1), exact_integer(heads, "heads", 1)
    rng = np.random.default_rng(exact_integer(seed, "seed", 0))
    if not target.related.any():
        raise ArgumentError(
            "contexts", f"{len(target.contexts)} contexts", "such that a relation meets"
        )
    fit = _Fit(target, key_dim)
    wanted = np.flatnonzero(target.related)
    owner = rng.permutation(len(wanted)) % heads
    thetas = [fit.start(wanted[owner == head], rng) for head in range(heads)]
    for _ in range(_ROUNDS):
        ratio = np.empty((heads, len(wanted)))
        for head in range(heads):
            thetas[head] = fit.fitted(thetas[head], wanted[owner == head])
            ratio[head] = fit.ratios(thetas[head])[wanted]
        held = ratio > _HELD
        if held.any(axis=0).all():
            break
        kept = held[owner, np.arange(len(wanted))]
        owner = np.where(kept, owner, held.argmax(axis=0))
        lost = np.flatnonzero(~held.any(axis=0))
        owner[lost] = rng.integers(heads, size=len(lost))
        for head in range(heads):
            thetas[head] = thetas[head] + 0.1 * fit.start(wanted[lost[owner[lost] == head]], rng)
    else:
        raise RealizationError(
            f"{int((~held.any(axis=0)).sum())} of {len(wanted)} relations that meet were not held by "
            f"{heads} heads of key_dim={key_dim}: try more of either, or another seed"
        )
    layer = fit.layer(thetas, wanted, seed)
    report = context_report(layer, target)
    if not report.holds:
        raise RealizationError(f"the fitted layer is wrong on a context: {report}")
    return layer


def random_contexts(items: int, size: int, count: int, seed: int = 0) -> list[IntArray]:
    """``count`` independent uniform contexts of ``size`` of the ``items``."""
    items, count = exact_integer(items, "items", 1), exact_integer(count, "count", 1)
    size = exact_integer(size, "size", 1, items)
    rng = np.random.default_rng(exact_integer(seed, "seed", 0))
    return [np.sort(rng.choice(items, size, replace=False)) for _ in range(count)]


def covering_contexts(
    edges: ArrayLike, size: int, rounds: int = 1, seed: int = 0
) -> list[IntArray]:
    r"""Random contexts of at most ``size`` items in which every relation meets ``rounds`` times.

    In each round the relations are shuffled and dealt out, $\lfloor\mathtt{size}/2\rfloor$ to a context.
    """
    pairs = np.asarray(edges)
    size, rounds = exact_integer(size, "size", 2), exact_integer(rounds, "rounds", 1)
    rng = np.random.default_rng(exact_integer(seed, "seed", 0))
    chosen: list[IntArray] = []
    for _ in range(rounds):
        shuffled = rng.permutation(len(pairs))
        chosen.extend(
            np.unique(pairs[shuffled[start : start + size // 2]])
            for start in range(0, len(pairs), size // 2)
        )
    return chosen


def random_context_failure(
    layer: AttentionLayer, target: RelationTarget, sizes: Sequence[int]
) -> tuple[int, list[Fraction]]:
    r"""How many pairs a layer gets wrong, and bounds on the chance that a random context shows one.

    With w wrong pairs of two items and w' wrong loops, a uniform context of size $\ell$ contains
    one with probability at most $w\frac{\ell(\ell-1)}{m(m-1)} + w'\frac\ell m$. What the layer recognises
    is decided exactly on all pairs first. Source: [attention-bounds, C4].
    """
    m = target.items
    found = layer.recognize(target.embeddings)
    report = recognition_report(layer, _Restricted(target.embeddings, np.argwhere(found)))
    if report.wrong is not None or report.undecided:
        raise RealizationError("rounding hides which pairs the layer recognises")
    wrong = found != target.rows(0, m)
    loops = int(np.diag(wrong).sum())
    others = int(wrong.sum()) - loops
    chances = []
    for size in sizes:
        ell = exact_integer(size, "sizes", 1, m)
        meet = Fraction(ell * (ell - 1), m * (m - 1)) if m > 1 else Fraction(0)
        chances.append(min(Fraction(1), others * meet + loops * Fraction(ell, m)))
    return others + loops, chances


class _Restricted(RelationTarget):
    """The graph within one context, which may be without relations: still something to check."""

    def __post_init__(self) -> None:
        order = np.lexsort((self.edges[:, 1], self.edges[:, 0]))
        object.__setattr__(self, "edges", self.edges[order])


class _Fit:
    """Squared hinge of one head over the pairs that meet."""

    def __init__(self, target: ContextTarget, key_dim: int) -> None:
        x = target.graph.embeddings
        self.scale = float(np.sqrt((x**2).sum(axis=1).mean()))
        self.x, self.key_dim = x / self.scale, key_dim
        self.i, self.j = target.pairs[:, 0], target.pairs[:, 1]
        self.related = target.related
        self.starts = np.searchsorted(self.i, np.arange(len(x) + 1))

    def start(self, block: IntArray, rng: np.random.Generator) -> FloatArray:
        """Random sign codes for the relations of a block (result C4c)."""
        codes = rng.choice([-1.2, 1.2], size=(len(block), self.key_dim)) / np.sqrt(self.key_dim)
        query, key = self.x[self.i[block]].T @ codes, self.x[self.j[block]].T @ codes
        return np.stack([query, key]).ravel()

    def scores(self, theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Queries, keys, and the scores of the pairs that meet."""
        w_q, w_k = theta.reshape(2, self.x.shape[1], -1)
        query, key = self.x @ w_q, self.x @ w_k
        return query, key, np.einsum("pk,pk->p", query[self.i], key[self.j])

    def loss(self, theta: FloatArray, mine: NDArray[np.bool_]) -> tuple[float, FloatArray]:
        """The loss in units of the margin squared, and its gradient."""
        query, key, scores = self.scores(theta)
        short = np.where(mine, np.maximum(0.0, 1 + _MARGIN - scores), 0.0)
        long = np.where(self.related, 0.0, np.maximum(0.0, scores - 1 + _MARGIN))
        slope = (long - short) * (2 / _MARGIN**2)
        pull = csr_array((slope, self.j, self.starts), shape=(len(self.x), len(self.x)))
        gradient = np.stack(
            [self.x.T @ np.asarray(pull @ key), self.x.T @ np.asarray(pull.T @ query)]
        )
        return float(short @ short + long @ long) / _MARGIN**2, gradient.ravel()

    def fitted(self, theta: FloatArray, block: IntArray) -> FloatArray:
        """The weights after L-BFGS on one block."""
        mine = np.zeros(len(self.i), dtype=bool)
        mine[block] = True
        solve: Any = minimize  # scipy's stubs reject this valid call
        options = {"maxiter": 250, "maxfun": 500, "maxcor": 20, "ftol": 1e-9, "gtol": 1e-6}
        found = solve(self.loss, theta, args=(mine,), jac=True, method="L-BFGS-B", options=options)
        return np.asarray(found.x, dtype=np.float64)

    def ratios(self, theta: FloatArray) -> FloatArray:
        """Scores over the largest score of a pair that meets and is no relation."""
        scores = self.scores(theta)[2]
        return scores / self._base(scores)

    def _base(self, scores: FloatArray) -> float:
        others = scores[~self.related]
        highest = float(others.max()) if len(others) else 0.0
        return max(highest, 1e-2 * float(np.abs(scores).max()), 1e-12)

    def layer(self, thetas: list[FloatArray], wanted: IntArray, seed: int) -> AttentionLayer:
        """Every head scaled so that 1 is midway between what it holds and what it must not."""
        w_q, w_k = [], []
        for theta in thetas:
            scores = self.scores(theta)[2]
            base = self._base(scores)
            held = scores[wanted][scores[wanted] > _HELD * base]
            level = (base + float(held.min())) / 2 if len(held) else 2 * base
            query, key = theta.reshape(2, self.x.shape[1], -1)
            w_q.append(query / (level * self.scale))
            w_k.append(key / self.scale)
        return AttentionLayer(
            w_q=w_q, w_k=w_k, threshold=1.0, method="compact on contexts", seed=seed
        )


def _checked_context(context: ArrayLike, name: str, items: int) -> IntArray:
    array = np.asarray(context)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise ArgumentError(name, (array.dtype, array.shape), "a nonempty list of items")
    if array.min() < 0 or array.max() >= items:
        raise ArgumentError(name, array.tolist(), f"items in [0, {items})")
    unique = np.unique(array).astype(np.int64)
    if len(unique) != len(array):
        raise ArgumentError(name, array.tolist(), "items without repetition")
    return unique
