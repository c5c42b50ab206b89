r"""Directions for rank-1 heads: orbits of a group of signed permutations, optimised.

The target is invariant under rotations of $w$ and $y$ together, so the heads of an orbit of a group
of rotations share their best weight, and $C$ shrinks to one row an orbit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from bounds.arithmetic import exact_integer
from constructions.head_weights import Floats, overlaps, solve_semidefinite, target_overlaps

Counts = NDArray[np.int64]
SignedPermutation = tuple[Counts, Floats]

# tiles that stay in cache, and small enough for BLAS not to wake its threads at d <= 16
_ROWS, _COLUMNS = 32, 512
_SEARCH_ORBITS = 2048
_SEARCH_ENTRIES = 1 << 24
_AFFORDABLE_ENTRIES = 1 << 22


def signed_symmetries(d: int) -> list[SignedPermutation]:
    r"""Signed permutations of coordinates that generate the group of the symmetric directions.

    With $d = 2^sn$, $n$ odd, and coordinate $i = 2^sj + c$: for each bit of $c$ the flip of that
    bit and the sign $(-1)^{bit}$ (they generate the real Pauli group, of order $4^s$ up to sign),
    and the cyclic shift of $j$. Each is (order, signs): $x \mapsto (x_{order_i}\,signs_i)_i$.
    """
    d = exact_integer(d, "d", 2)
    place = np.arange(d)
    power = d & -d
    generators: list[SignedPermutation] = []
    for bit in range(power.bit_length() - 1):
        generators.append((place, np.where((place >> bit) & 1, -1.0, 1.0)))
        generators.append((place ^ (1 << bit), np.ones(d)))
    if power < d:
        generators.append(((place + power) % d, np.ones(d)))
    return generators


def _group(d: int, order: int) -> SignedPermutation:
    """The group of ``order`` (one of :func:`_group_orders`) elements up to sign, as two arrays
    (order, d); the identity is the first.
    """
    identity = (np.arange(d), np.ones(d))
    group = [identity]
    generators = signed_symmetries(d)
    odd = d // (d & -d)
    if odd > 1 and order % odd == 0:
        shift = generators.pop()
        for _ in range(odd - 1):
            group.append(_after(group[-1], shift))
        order //= odd
    for generator in generators[: order.bit_length() - 1]:
        group += [_after(element, generator) for element in group]
    return np.array([places for places, _ in group]), np.array([signs for _, signs in group])


def _after(first: SignedPermutation, then: SignedPermutation) -> SignedPermutation:
    return first[0][then[0]], first[1][then[0]] * then[1]


def _group_orders(d: int) -> list[int]:
    power = d & -d
    two_parts = [1 << e for e in range(2 * power.bit_length() - 1)]
    return sorted({part * odd for part in two_parts for odd in (1, d // power)})


def _orbits(generators: Floats, group: SignedPermutation) -> Floats:
    """All images of the rows of ``generators`` (m, d), the orbits one after the other: (m |G|, d)."""
    orders, signs = group
    images: Floats = generators[:, orders] * signs
    return images.reshape(-1, generators.shape[1])


def _group_order(d: int, heads: int) -> int:
    """The largest order that leaves 4 orbits or more and divides H, if the search can afford it."""
    orders = [order for order in _group_orders(d) if 4 * order <= heads] or [1]
    dividing = max(order for order in orders if heads % order == 0)
    affordable = heads * heads // dividing <= _AFFORDABLE_ENTRIES
    return dividing if affordable else max(orders)


class _OrbitSearch:
    r"""The error of orbits with the best weights, as a function of one head of each orbit.

    The target is invariant under rotations of $(w, y)$ together, so all heads of an orbit of a
    group of rotations share a weight. With $m$ heads $(q_i, k_i)$, one an orbit, and $G$ the
    group: error $= 1 - 2|G|b^\top a + |G|a^\top Ma$, $M_{ij} = \sum_{g\in G}C_{i,gj}$. At the best
    $a$ the derivative of $a$ drops out of the gradient (variable projection).
    """

    def __init__(self, d: int, orbits: int, group: SignedPermutation) -> None:
        self.d, self.orbits, self.group, self.size = d, orbits, group, len(group[0])

    def _tiles(self) -> Iterator[tuple[slice, slice]]:
        """Ranges of rows (one head an orbit) and of columns (whole orbits)."""
        step = max(1, _COLUMNS // self.size)
        for row in range(0, self.orbits, _ROWS):
            for column in range(0, self.orbits, step):
                yield (
                    slice(row, min(row + _ROWS, self.orbits)),
                    slice(column, min(column + step, self.orbits)),
                )

    def solve(self, q: Floats, k: Floats) -> tuple[Floats, float]:
        """The best weights, one for each orbit, and the error with them."""
        size = self.size
        all_q, all_k = _orbits(q, self.group), _orbits(k, self.group)
        gram = np.empty((self.orbits, self.orbits))
        for rows, columns in self._tiles():
            heads = slice(columns.start * size, columns.stop * size)
            entries = overlaps(q[rows], k[rows], all_q[heads], all_k[heads])
            own = np.arange(max(rows.start, columns.start), min(rows.stop, columns.stop))
            # a head with itself, free of the rounding of an arcsine near 1
            entries[own - rows.start, (own - columns.start) * size] = 1.0
            gram[rows, columns] = entries.reshape(len(entries), -1, size).sum(axis=2)
        overlap = target_overlaps(self.d)(np.einsum("hi,hi->h", q, k))
        a = solve_semidefinite(gram / size, overlap) / size
        return a, float(1 - 2 * size * overlap @ a + size * a @ gram @ a)

    def __call__(self, flat: Floats) -> tuple[float, Floats]:
        """The error, and its gradient in the unnormalised heads (2, orbits, d), both flat."""
        lengths = np.linalg.norm(flat.reshape(2, self.orbits, self.d), axis=2, keepdims=True)
        q, k = flat.reshape(2, self.orbits, self.d) / lengths
        a, error = self.solve(q, k)
        size = self.size
        all_q, all_k, all_a = _orbits(q, self.group), _orbits(k, self.group), np.repeat(a, size)
        slope = target_overlaps(self.d)(np.einsum("hi,hi->h", q, k), 1)
        gradient = np.stack([k, q]) * (-2 * size * a * slope)[:, None]
        for rows, columns in self._tiles():
            heads = slice(columns.start * size, columns.stop * size)
            scale = 4 * size / np.pi**2 * a[rows, None] * all_a[heads]
            in_q, out_q = _arcsine_and_slope(q[rows] @ all_q[heads].T)
            in_k, out_k = _arcsine_and_slope(k[rows] @ all_k[heads].T)
            gradient[0, rows] += (scale * in_k * out_q) @ all_q[heads]
            gradient[1, rows] += (scale * in_q * out_k) @ all_k[heads]
        for part, unit in zip(gradient, (q, k), strict=True):
            part -= np.einsum("hi,hi->h", part, unit)[:, None] * unit
        return error, (gradient / lengths).ravel()


def _arcsine_and_slope(cosines: Floats) -> tuple[Floats, Floats]:
    """arcsin, and its derivative with 0 where a head meets itself (there it does not move)."""
    np.clip(cosines, -1.0, 1.0, out=cosines)
    gap = 1 - cosines * cosines
    slope = np.where(gap > 1e-9, 1 / np.sqrt(np.maximum(gap, 1e-9)), 0.0)
    return np.arcsin(cosines), slope


def search_directions(
    d: int, heads: int, rng: np.random.Generator, iterations: int | None = None
) -> tuple[Floats, Floats, int, int]:
    """Queries and keys in ``orbits`` orbits of ``size`` heads, the heads left over drawn at random.

    Returns (q, k, orbits, size). L-BFGS on one head an orbit, from random ones.
    """
    size = _group_order(d, heads)
    orbits = heads // size
    group = _group(d, size)
    search = _OrbitSearch(d, orbits, group)
    start = rng.standard_normal((2, orbits, d))
    entries = orbits * orbits * size
    if iterations is None:
        iterations = min(200, max(8, _SEARCH_ENTRIES // entries))
    if iterations and orbits <= _SEARCH_ORBITS:
        found = minimize(
            search.__call__,
            start.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": iterations,
                "maxfun": iterations + 20,
                "maxcor": 20,
                "ftol": 1e-10,
                "gtol": 1e-7,
            },
        )
        start = found.x.reshape(start.shape)
    q, k = unit_rows(start)
    rest = unit_rows(rng.standard_normal((2, heads - orbits * size, d)))
    q, k = (
        np.concatenate([_orbits(q, group), rest[0]]),
        np.concatenate([_orbits(k, group), rest[1]]),
    )
    return q, k, orbits, size


def unit_rows(vectors: Floats) -> Floats:
    """``vectors`` with the last axis normalised to length 1."""
    result: Floats = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return result
