r"""The best weights of given rank-1 heads: $Ca = b$, directly or by matrix-free conjugate gradients.

Plain floating point: any weights have an exact error, which :mod:`verification.rank_one` certifies,
so nothing here needs to be exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import scipy.linalg
from flint import arb
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray
from scipy.interpolate import CubicHermiteSpline

from bounds.arithmetic import precision
from bounds.head_overlap import overlap_slope_ball, target_overlap_ball

Floats = NDArray[np.float64]

# tiles that stay in cache, and small enough for BLAS not to wake its threads at d <= 16
_ROWS, _COLUMNS = 32, 512
_DIRECT_UNKNOWNS = 2048
_STORED_HEADS = 1 << 14


def optimal_weights(q: Floats, k: Floats, orbits: int, size: int) -> Floats:
    r"""Weights near $C^{-1}b$: ``orbits`` orbits of ``size`` heads with equal weights, then single heads.

    Directly for up to 2048 unknowns; else by conjugate gradients on all heads, which minimise the
    error itself over Krylov spaces.
    """
    heads, inside = len(q), orbits * size
    unknowns = orbits + heads - inside
    overlap = target_overlaps(q.shape[1])(np.einsum("hi,hi->h", q, k))
    if unknowns > _DIRECT_UNKNOWNS:
        return _conjugate_gradients(Gram(q, k), overlap, _preconditioner(q, k))
    first = np.r_[np.arange(0, inside, size), np.arange(inside, heads)]
    starts = first
    sizes = np.r_[np.full(orbits, size), np.ones(heads - inside, dtype=int)]
    # a row sums C over the columns of each class; for the row of an orbit this is the mean over
    # the orbit for the columns of an orbit, so single heads are taken from their own rows
    gram = np.add.reduceat(overlaps(q[first], k[first], q, k), starts, axis=1) * sizes[:, None]
    gram[:orbits, orbits:] = gram[orbits:, :orbits].T
    return np.repeat(solve_semidefinite((gram + gram.T) / 2, sizes * overlap[first]), sizes)


def uniform_weights(q: Floats, k: Floats) -> Floats:
    r"""The best common weight, $1^\top b / 1^\top C1$, for every head."""
    overlap = target_overlaps(q.shape[1])(np.einsum("hi,hi->h", q, k))
    ones = np.ones(len(q))
    return np.full(len(q), overlap.sum() / (ones @ Gram(q, k, stored=False)(ones)))


def overlaps(q: Floats, k: Floats, other_q: Floats, other_k: Floats) -> Floats:
    r"""Entries of $C$ in floating point, not certified: rows (q, k) against rows (other_q, other_k)."""
    product = np.arcsin(np.clip(q @ other_q.T, -1.0, 1.0))
    product *= np.arcsin(np.clip(k @ other_k.T, -1.0, 1.0))
    product *= 2 / np.pi**2
    product += 0.5
    return product


@cache
def target_overlaps(d: int) -> Callable[..., Floats]:
    r"""$b$ as a function of $\langle q_h, k_h\rangle$ in floating point, not certified; ``(t, 1)`` is $b'$."""
    nodes = np.linspace(0.0, 1.0, 513)
    with precision(64 + 2 * d):  # flint's 2F1 near 1 loses about d bits
        values = [float(target_overlap_ball(d, arb(float(t))).mid()) for t in nodes]
        slopes = [float(overlap_slope_ball(d, arb(float(t))).mid()) for t in nodes]
    mirrored = 1 - np.array(values[:0:-1])  # b - 1/2 is odd
    return CubicHermiteSpline(
        np.r_[-nodes[:0:-1], nodes], np.r_[mirrored, values], np.r_[slopes[:0:-1], slopes]
    )


def solve_semidefinite(matrix: Floats, right: Floats) -> Floats:
    """A solution of a positive semidefinite system, regularised until Cholesky succeeds."""
    trace = float(np.trace(matrix)) / len(matrix)
    for jitter in (1e-11, 1e-9, 1e-7, 1e-5):
        try:
            damped = matrix + jitter * trace * np.eye(len(matrix))
            factor = scipy.linalg.cho_factor(damped, lower=True, overwrite_a=True)
        except np.linalg.LinAlgError:
            continue
        return np.asarray(scipy.linalg.cho_solve(factor, right))
    raise ArithmeticError("the Gram matrix is not positive semidefinite")


class Gram:
    """$x \\mapsto Cx$ in single precision, by tiles above the diagonal, kept in memory if they fit.

    Not certified: near $\\pm1$ the arcsine of a rounded cosine is off by 5e-4, so the diagonal is
    set to 1. An inexact $a$ still has an exact error, which the judge certifies.
    """

    def __init__(self, q: Floats, k: Floats, stored: bool | None = None) -> None:
        self.q, self.k = q.astype(np.float32), k.astype(np.float32)
        self.heads = len(q)
        keep = self.heads <= _STORED_HEADS if stored is None else stored
        self.tiles = list(self._computed()) if keep else None

    def _computed(self) -> Iterator[tuple[slice, slice, NDArray[np.float32]]]:
        for row in range(0, self.heads, _ROWS):
            rows = slice(row, row + _ROWS)
            tile = self._products(rows, rows)
            np.fill_diagonal(tile, np.pi**2 / 4)
            yield rows, rows, tile
            for column in range(row + _ROWS, self.heads, _COLUMNS):
                columns = slice(column, column + _COLUMNS)
                yield rows, columns, self._products(rows, columns)

    def _products(self, rows: slice, columns: slice) -> NDArray[np.float32]:
        tile = _single_arcsine(self.q[rows] @ self.q[columns].T)
        tile *= _single_arcsine(self.k[rows] @ self.k[columns].T)
        return tile

    def __call__(self, x: Floats) -> Floats:
        """$Cx$ for ``x`` of shape (H,)."""
        vector = x.astype(np.float32)
        result: Floats = np.zeros(self.heads)
        for rows, columns, tile in self.tiles or self._computed():
            result[rows] += np.einsum("ij,j->i", tile, vector[columns])
            if rows is not columns:
                result[columns] += np.einsum("i,ij->j", vector[rows], tile)
        result *= 2 / np.pi**2
        result += 0.5 * x.sum()
        return result


def _single_arcsine(x: NDArray[np.float32]) -> NDArray[np.float32]:
    r"""$\arcsin x = \mathrm{sgn}(x)(\frac\pi2 - \sqrt{1-|x|}\,p(|x|))$ to 2e-6, clipped to [-1, 1]."""
    size = np.abs(x)
    coefficients = _arccosine_polynomial()
    result = size * coefficients[-1]
    for coefficient in coefficients[-2:0:-1]:
        result += coefficient
        result *= size
    result += coefficients[0]
    np.subtract(np.float32(1), size, out=size)
    np.maximum(size, np.float32(0), out=size)
    np.sqrt(size, out=size)
    result *= size
    np.subtract(np.float32(np.pi / 2), result, out=result)
    return np.copysign(result, x, out=result)


@cache
def _arccosine_polynomial() -> tuple[np.float32, ...]:
    r"""Chebyshev interpolation of $\arccos(x)/\sqrt{1-x}$ on [0, 1], low powers first."""
    fitted = Chebyshev.interpolate(
        lambda x: np.arccos(x) / np.sqrt(1 - x), 5, domain=[0.0, 1.0]
    ).convert(kind=Polynomial)
    return tuple(np.float32(coefficient) for coefficient in fitted.coef)


def _preconditioner(q: Floats, k: Floats) -> Callable[[Floats], Floats]:
    r"""The inverse of $\frac12 11^\top + \frac2{\pi^2}FF^\top + \rho I$, row $h$ of $F$ being $q_h\otimes k_h$.

    These are the degree-1 parts of the arcsines, which hold the large eigenvalues of $C$;
    $\rho = \frac12 - \frac2{\pi^2}$ is what they leave of the diagonal.
    """
    heads, d = q.shape
    if 4 * (d * d + 1) > heads:
        return lambda residual: residual
    ridge = 0.5 - 2 / np.pi**2
    features = np.empty((heads, d * d + 1), dtype=np.float32)
    features[:, 0] = np.sqrt(0.5)
    features[:, 1:] = (np.sqrt(2) / np.pi * q[:, :, None] * k[:, None, :]).reshape(heads, -1)
    inner = (features.T @ features).astype(np.float64) + ridge * np.eye(d * d + 1)
    factor = scipy.linalg.cho_factor(inner, overwrite_a=True)

    def apply(residual: Floats) -> Floats:
        projected = scipy.linalg.cho_solve(factor, features.T @ residual.astype(np.float32))
        result: Floats = (residual - features @ projected.astype(np.float32)) / ridge
        return result

    return apply


def _conjugate_gradients(
    matrix: Callable[[Floats], Floats],
    right: Floats,
    precondition: Callable[[Floats], Floats],
    tolerance: float = 1e-8,
    limit: int = 200,
) -> Floats:
    """Stops at a step that lowers the error by less than ``tolerance``, or after ``limit`` steps."""
    a: Floats = np.zeros_like(right)
    residual = right.copy()
    direction = step_base = precondition(residual)
    power = float(residual @ step_base)
    for _ in range(limit):
        image = matrix(direction)
        curvature = float(direction @ image)
        if not curvature > 0 or not power > 0:  # single precision is exhausted
            break
        length = power / curvature
        a += length * direction
        residual -= length * image
        if length * power < tolerance:
            break
        step_base = precondition(residual)
        power, previous = float(residual @ step_base), power
        direction = step_base + power / previous * direction
    return a
