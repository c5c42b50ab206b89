r"""Harmonic cubic forms with rational coefficients, exactly: the gradients that general values add.

Used by :mod:`constructions.general_values`; the proof is in docs/general-values.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import factorial, prod

import numpy as np
import numpy.typing as npt
from flint import fmpq, fmpq_mat

Floats = npt.NDArray[np.float64]
Key = tuple[int, ...]
Monomial = tuple[int, ...]


@dataclass(frozen=True)
class Cubic:
    """A cubic form $Y$ on $R^d$: monomial exponents to rational coefficients."""

    d: int
    coefficients: Mapping[Monomial, fmpq]

    def __call__(self, point: Sequence[int]) -> fmpq:
        """$Y$ at an integer point, exactly."""
        terms = (c * prod(x**e for x, e in zip(point, m, strict=True)) for m, c in self)
        return sum(terms, fmpq(0))

    def __iter__(self) -> Iterator[tuple[Monomial, fmpq]]:
        return iter(self.coefficients.items())

    def values(self, points: Floats) -> Floats:
        """$Y$ at each point, shape (..., d) to (...)."""
        total = np.zeros(points.shape[:-1])
        for m, c in self:
            total += to_float(c) * np.prod(points ** np.array(m), axis=-1)
        return total

    def laplacian(self) -> list[fmpq]:
        """The coefficients of the Laplacian, a linear form."""
        linear = [fmpq(0)] * self.d
        for m, c in self:
            for i in range(self.d):
                left = _lowered(m, i)
                if left is not None:
                    linear[left] += c * (m[i] * (m[i] - 1))
        return linear

    def is_harmonic(self) -> bool:
        """Whether the Laplacian vanishes, exactly."""
        return not any(self.laplacian())

    def harmonic_part(self) -> Cubic:
        r"""$Y - |w|^2\Delta Y/2(d+2)$, which is $Y$'s degree-3 part on the sphere."""
        coefficients = dict(self.coefficients)
        for j, slope in enumerate(self.laplacian()):
            for i in range(self.d):
                m = tuple(2 * (k == i) + (k == j) for k in range(self.d))
                coefficients[m] = coefficients.get(m, fmpq(0)) - slope / (2 * (self.d + 2))
        return Cubic(self.d, coefficients)

    def inner(self, other: Cubic) -> fmpq:
        r"""$\mathbb E[YY']$ on the sphere, both harmonic: $\sum_mc_mc'_mm!/d(d+2)(d+4)$."""
        terms = (
            c * other.coefficients.get(m, fmpq(0)) * prod(factorial(e) for e in m) for m, c in self
        )
        return sum(terms, fmpq(0)) / (self.d * (self.d + 2) * (self.d + 4))

    def slice(self, axis: int) -> fmpq_mat:
        r"""$\mathcal T(e_a,\cdot,\cdot)$ of the symmetric $\mathcal T$: $Y(w) = \mathcal T(w,w,w)$."""
        matrix = fmpq_mat(self.d, self.d)
        for i in range(self.d):
            for j in range(self.d):
                m = tuple((k == axis) + (k == i) + (k == j) for k in range(self.d))
                c = self.coefficients.get(m, fmpq(0))
                matrix[i, j] = c * prod(factorial(e) for e in m) / 6
        return matrix


def cubic_of(field: Sequence[fmpq_mat]) -> Cubic:
    r"""The cubic $\sum_iw_i\,w^\top Q_iw$ of a quadratic field."""
    d = len(field)
    coefficients: dict[Monomial, fmpq] = {}
    for i, a, b in product(range(d), repeat=3):
        m = tuple((k == i) + (k == a) + (k == b) for k in range(d))
        coefficients[m] = coefficients.get(m, fmpq(0)) + field[i][a, b]
    return Cubic(d, coefficients)


def vanishing_cubics(d: int, keys: tuple[Key, ...], count: int) -> tuple[Cubic, ...]:
    """``count`` orthogonal harmonic cubics that vanish at all keys, of norm near 1."""
    names = [
        tuple(chosen.count(i) for i in range(d))
        for chosen in combinations_with_replacement(range(d), 3)
    ]
    rows = [
        [sum(m[i] * (m[i] - 1) for i in range(d) if _lowered(m, i) == a) for m in names]
        for a in range(d)
    ]
    rows += [[prod(x**e for x, e in zip(key, m, strict=True)) for m in names] for key in keys]
    reduced, rank = fmpq_mat(len(rows), len(names), [x for row in rows for x in row]).rref()
    pivots = [next(j for j in range(len(names)) if reduced[i, j] != 0) for i in range(rank)]
    free = [j for j in range(len(names)) if j not in set(pivots)]
    forms: list[Cubic] = []
    for place in free[:count]:
        coefficients = {names[place]: fmpq(1)}
        coefficients |= {names[p]: -reduced[i, place] for i, p in enumerate(pivots)}
        form = Cubic(d, coefficients)
        for other in forms:
            share = form.inner(other) / other.inner(other)
            merged = set(form.coefficients) | set(other.coefficients)
            form = Cubic(
                d,
                {
                    m: form.coefficients.get(m, fmpq(0))
                    - share * other.coefficients.get(m, fmpq(0))
                    for m in merged
                },
            )
        scale = to_fmpq(Fraction(1 / to_float(form.inner(form)) ** 0.5).limit_denominator(2**20))
        forms.append(Cubic(d, {m: scale * c for m, c in form if c != 0}))
    return tuple(forms)


def _lowered(monomial: Monomial, i: int) -> int | None:
    """The variable left when $x_i^2$ is divided out of a cubic monomial, if it can be."""
    if monomial[i] < 2:
        return None
    return next(j for j, e in enumerate(monomial) if e - 2 * (j == i) == 1)


def to_fmpq(value: Fraction) -> fmpq:
    """The same rational as a flint number."""
    return fmpq(value.numerator, value.denominator)


def to_float(value: fmpq) -> float:
    """The nearest double."""
    return float(Fraction(int(value.p), int(value.q)))
