r"""Sums over all subsets of neighbour sets at once: what a linear readout has to tell apart.

In a context, the neighbours that are present are any subset $S$ of $N(i)$ (the item $i$ itself
always), and the output for candidate $j$ is $\sum_{l\in S}\langle x_l, r_j\rangle$: least with the negative
terms alone, largest with the positive ones (docs/C6-identities.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack, vstack

from constructions.attention import FloatArray
from constructions.relations import IntArray

_COLUMNS = 512


class NeighborSums:
    """Sums over subsets of neighbour sets, for a block of candidates at once; ``edges`` sorted."""

    def __init__(self, edges: IntArray, items: int) -> None:
        self.edges, self.items = edges, items
        looped = edges[:, 0] == edges[:, 1]
        self.loop = np.zeros(items, dtype=bool)
        self.loop[edges[looped, 0]] = True
        self.others = self.matrix(np.where(looped, 0.0, 1.0))

    def matrix(self, entries: FloatArray) -> csr_array:
        """The (m, m) matrix with an entry for each relation."""
        return csr_array((entries, self.edges.T), shape=(self.items, self.items))

    def extremes(
        self, cross: FloatArray, candidates: IntArray
    ) -> tuple[FloatArray, FloatArray, IntArray]:
        r"""Ends of the candidates' outputs, from ``cross`` (m, columns), $\langle x_l, r_j\rangle$.

        The least output of each relation (i, j) whose target is a candidate; (m, columns) the largest
        output where j is absent, -inf where it never is; and the numbers of those relations.
        """
        columns = np.arange(len(candidates))
        own, off = cross[candidates, columns], cross.copy()
        off[candidates, columns] = 0.0
        always = np.where(self.loop[:, None], off, 0.0)
        high = self.others @ np.maximum(off, 0.0) + always
        low = self.others @ np.minimum(off, 0.0) + always
        pairs, rows, places = self._relations_to(candidates)
        looped = self.loop[candidates]
        high[candidates[looped], columns[looped]] = -np.inf
        return own[places] + low[rows, places], high, pairs

    def loss(
        self, flat: FloatArray, embeddings: FloatArray, candidates: IntArray, margin: float
    ) -> tuple[float, FloatArray]:
        """Squared hinge of readout vectors at 1/2 plus and minus the margin, and its gradient."""
        columns = np.arange(len(candidates))
        cross = embeddings @ flat.reshape(len(candidates), -1).T
        present, high, _ = self.extremes(cross, candidates)
        _, rows, places = self._relations_to(candidates)
        missing = np.maximum(0.5 + margin - present, 0.0)
        excess = np.maximum(high - (0.5 - margin), 0.0)
        deficit = csr_array((missing, (rows, places)), shape=excess.shape)
        cross[candidates, columns] = 0.0
        slope = (self.others.T @ excess) * (cross > 0)
        slope -= (deficit.T @ self.others).T.toarray() * (cross < 0)
        slope += np.where(self.loop[:, None], excess - deficit.toarray(), 0.0)
        slope[candidates, columns] = -np.bincount(
            places, weights=missing, minlength=len(candidates)
        )
        total = float((excess**2).sum() + (missing**2).sum())
        return total, 2 * (slope.T @ embeddings).ravel()

    def best_vector(self, embeddings: FloatArray, candidate: int) -> tuple[FloatArray, float]:
        r"""The readout vector r of one candidate with the largest margin g, by linear programming.

        Outputs are at least 1/2 + g where it is present and at most 1/2 - g where it is absent;
        $\langle x_l, r\rangle = u_l - v_l$ with $u, v \ge 0$, and sums of u and of v stand for the largest
        and the least. There is no readout of all subsets when g <= 0.
        """
        items = np.setdiff1d(np.unique(self.edges[:, 1]), [candidate])
        sources = np.unique(self.edges[:, 0])
        d, n = embeddings.shape[1], len(items)
        others = csr_array(self.others[sources][:, items])
        always = csr_array(np.where(sources[:, None] == items, self.loop[items], 0.0))
        side: Any = hstack  # scipy's stubs take sparse blocks alone
        ones, free = np.ones((len(sources), 1)), csr_array((len(sources), d))
        absent = side([free, others + always, -always, ones])
        own = np.ones((len(sources), 1)) * embeddings[candidate]
        present = side([-own, -always, others + always, ones])
        to = self.edges[self.edges[:, 1] == candidate, 0]
        never = (sources == candidate) & self.loop[candidate]
        rows = np.isin(sources, to)
        split = side([embeddings[items], -eye_array(n), eye_array(n), csr_array((n, 1))])
        found = linprog(
            np.append(np.zeros(d + 2 * n), -1.0),
            A_ub=vstack([absent.tocsr()[~never], present.tocsr()[rows]]),
            b_ub=np.append(np.full((~never).sum(), 0.5), np.full(rows.sum(), -0.5)),
            A_eq=split,
            b_eq=np.zeros(n),
            bounds=[(None, None)] * d + [(0, None)] * (2 * n) + [(None, 0.5)],
        )
        if found.status != 0 or found.x is None:
            return np.zeros(d), -np.inf
        return np.asarray(found.x[:d]), float(found.x[-1])

    def _relations_to(self, candidates: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Numbers, sources and columns of the relations whose targets are candidates."""
        place = np.full(self.items, -1)
        place[candidates] = np.arange(len(candidates))
        pairs = np.flatnonzero(place[self.edges[:, 1]] >= 0)
        return pairs, self.edges[pairs, 0], place[self.edges[pairs, 1]]


def decoding_range(
    graph: NeighborSums, embeddings: FloatArray, readout: FloatArray
) -> tuple[FloatArray, FloatArray]:
    r"""For each item $j$, its least output where it is a neighbour, and its largest where it is none.

    Over all rows $i$ and all subsets of $N(i)$, for exact sums, in float64.
    Of a relation (i, j): $\langle x_j, r_j\rangle + \sum_{l\in N(i), l\ne j}\min(0, \langle x_l, r_j\rangle)$,
    and $\sum_{l\in N(i), l\ne j}\max(0, \langle x_l, r_j\rangle)$ where $j$ is absent; the item $i$
    itself is never absent. (m,) each; inf for items that are nobody's neighbour.
    """
    m = len(embeddings)
    least, largest = np.full(m, np.inf), np.zeros(m)
    for start in range(0, m, _COLUMNS):
        part = np.arange(start, min(start + _COLUMNS, m))
        low, high, pairs = graph.extremes(embeddings @ readout[part].T, part)
        np.minimum.at(least, graph.edges[pairs, 1], low)
        largest[part] = np.maximum(0.0, high.max(axis=0))
    return least, largest
