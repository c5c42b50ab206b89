r"""General values fitted numerically, with a certified error: nearly every relation of the keys pays.

:func:`constructions.general_values.general_value_layer` has one gain for each $d+1$ heads in closed
form; here one for almost each of the $H-d$ relations. The proof that the limit exists is in
docs/general-values.md; the fit needs none, since the error of its result is computed exactly.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
from flint import fmpq, fmpq_mat
from scipy.linalg import eigh, null_space
from scipy.optimize import minimize

from bounds.arithmetic import exact_rational, precision
from bounds.errors import ArgumentError, HypothesisError
from bounds.harmonics import harmonic_dimension
from constructions.cubic_forms import Cubic, to_float, to_fmpq
from constructions.generalized import (
    BITS,
    GeneralizedHeads,
    draw_keys,
    identity,
    layer_arguments,
    nearest_double,
    sign_coefficients,
    zonal_projection,
)

Floats = npt.NDArray[np.float64]

_STEPS = 400
_KEPT = 1e-9


def fitted_value_layer(
    d: int,
    heads: int,
    degree: int = 9,
    seed: int = 0,
    perturbation: int | float | str | Fraction = Fraction(1, 2**24),
) -> GeneralizedHeads:
    r"""$V_h = I + \epsilon T_h$ with all $T_h$ fitted: the best error known for general values.

    In the limit $\epsilon\to0$ the layer adds to the scalar one of H3 the fields
    $Q_j(w) = \sum_hc_{hj}\langle k_h,w\rangle T_hw$, one for each relation $\sum_hc_{hj}k_h = 0$; each is worth
    at most $\frac{3\lambda_3^2}{2(d+4)}$, when it is the gradient of a harmonic cubic that vanishes at
    the keys. L-BFGS maximises the energy that they catch together. ``squared_error`` of the
    result is certified whatever the fit did.

    Hypotheses: $d < H < N(d,3)$. ``degree`` $L \ge 3$ odd; ``perturbation`` $\epsilon > 0$.
    Raises ``ArgumentError``, ``HypothesisError``, ``UndecidedError``.
    Source: [attention-bounds, H3].
    """
    d, heads, degree = layer_arguments(d, heads, degree)
    epsilon = exact_rational(perturbation, "perturbation")
    if epsilon <= 0:
        raise ArgumentError("perturbation", perturbation, "positive")
    if degree < 3:
        raise ArgumentError("degree", degree, "an odd integer >= 3")
    if not d < heads < harmonic_dimension(d, 3):
        found = f"H = {heads}, d = {d}, N(d, 3) = {harmonic_dimension(d, 3)}"
        raise HypothesisError("fitted_value_layer", "d < H < N(d, 3)", found)
    keys = draw_keys(d, heads, seed)
    with precision(BITS):
        strength = to_float(nearest_double(sign_coefficients(d, 3)[3]))
    problem = _Fields(np.array(keys, dtype=np.float64))
    turns, mix = problem.fit(seed)
    cubics, drift = problem.cubics(turns, mix)
    # the relations cancel w's part at scale 1/epsilon; the drift removes w<a,w> from each field
    couplings = strength * (problem.relations @ mix / float(epsilon) + drift)
    small = to_fmpq(epsilon)
    return GeneralizedHeads(
        d=d,
        keys=keys,
        values=tuple(identity(d) + small * _exact(turn) for turn in turns),
        totals=(fmpq(1, heads),) * heads,
        zonal=zonal_projection(d, degree, keys),
        cubics=cubics,
        couplings=_exact(couplings),
    )


class _Fields:
    r"""The quadratic fields $Q$ that $T$ makes, as tensors $Q_{iab}$ symmetric in $a, b$."""

    def __init__(self, keys: Floats) -> None:
        self.keys = keys
        self.heads, self.d = keys.shape
        self.size = harmonic_dimension(self.d, 3)
        self.relations: Floats = null_space(keys.T)
        self.unit = keys / np.linalg.norm(keys, axis=1, keepdims=True)
        cosine = self.unit @ self.unit.T
        zonal = ((self.d + 2) * cosine**3 - 3 * cosine) / (self.d - 1)
        self.inverse = np.linalg.inv(zonal)

    def fit(self, seed: int) -> tuple[Floats, Floats]:
        """The matrices T (H, d, d) and the mix of relations that makes orthonormal fields."""
        shape = (self.heads, self.d, self.d)
        start = np.random.default_rng(seed).normal(size=shape).ravel()
        found = minimize(
            self._loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS}
        )
        turns = found.x.reshape(shape)
        turns /= np.linalg.norm(turns, axis=(1, 2)).max()
        fields = self._fields(turns)
        gram, caught = self._norms(fields), self._caught(fields)
        sizes, axes = np.linalg.eigh(gram)
        kept = axes[:, sizes > _KEPT * sizes[-1]] / np.sqrt(sizes[sizes > _KEPT * sizes[-1]])
        worth, best = eigh(kept.T @ caught @ kept)
        count = min(kept.shape[1], self.size - self.heads)
        count = min(count, int(np.sum(worth > _KEPT * worth[-1])))
        return turns, kept @ best[:, ::-1][:, :count]

    def cubics(self, turns: Floats, mix: Floats) -> tuple[tuple[Cubic, ...], Floats]:
        """The harmonic cubic that each mixed field is worth, and the drift of its couplings."""
        fields = np.einsum("jm,jiab->miab", mix, self._fields(turns))
        cubic, trace = self._harmonic(fields)
        at_keys = np.einsum("miab,hi,ha,hb->mh", cubic, self.unit, self.unit, self.unit)
        poles = np.einsum("hi,ha,hb->hiab", self.unit, self.unit, self.unit)
        # the zonal cubics are the harmonic parts of the poles' cubes, times (d+2)/(d-1)
        zonal = self._harmonic(poles)[0] * (self.d + 2) / (self.d - 1)
        cubic -= np.einsum("mh,hk,kiab->miab", at_keys, self.inverse, zonal)
        forms = tuple(_form(tensor) for tensor in cubic)
        drift = -3 / (self.d + 2) * np.linalg.pinv(self.keys.T) @ trace.T
        return forms, drift

    def _fields(self, turns: Floats) -> Floats:
        fields: Floats = np.einsum(
            "hj,hia,hb->jiab", self.relations, turns, self.keys, optimize=True
        )
        return (fields + fields.swapaxes(2, 3)) / 2

    def _harmonic(self, fields: Floats) -> tuple[Floats, Floats]:
        """The symmetric traceless tensor of <Q, w>, and the trace of the symmetric one."""
        total = (fields + fields.transpose(0, 2, 1, 3) + fields.transpose(0, 3, 2, 1)) / 3
        trace = np.einsum("jiaa->ji", total)
        return total - _with_trace(trace) * 3 / (self.d + 2), trace

    def _norms(self, fields: Floats) -> Floats:
        """Inner products E<Q,Q'> of the fields, less their parts w<a,w>."""
        own = 2 * np.einsum("jiab,kiab->jk", fields, fields, optimize=True)
        traces = np.einsum("jiaa->ji", fields)
        _, trace = self._harmonic(fields)
        gram = (own + traces @ traces.T) / (self.d * (self.d + 2))
        inner: Floats = gram - 9 * trace @ trace.T / (self.d * (self.d + 2) ** 2)
        return inner

    def _caught(self, fields: Floats) -> Floats:
        """Inner products of the harmonic cubics <Q,w>, less their parts on the zonal ones."""
        cubic, _ = self._harmonic(fields)
        own = 6 * np.einsum("jiab,kiab->jk", cubic, cubic, optimize=True)
        at_keys = np.einsum(
            "jiab,hi,ha,hb->jh", cubic, self.unit, self.unit, self.unit, optimize=True
        )
        whole = own / (self.d * (self.d + 2) * (self.d + 4))
        inner: Floats = whole - at_keys @ self.inverse @ at_keys.T / self.size
        return inner

    def _loss(self, flat: Floats) -> tuple[float, Floats]:
        r"""$-\operatorname{tr}(G^{-1}C)$ of the Gram and the caught matrix, with its gradient."""
        fields = self._fields(flat.reshape(self.heads, self.d, self.d))
        gram, caught = self._norms(fields), self._caught(fields)
        inverse = np.linalg.pinv(gram, rcond=_KEPT, hermitian=True)
        cubic, trace = self._harmonic(fields)
        at_keys = np.einsum(
            "jiab,hi,ha,hb->jh", cubic, self.unit, self.unit, self.unit, optimize=True
        )
        zonal = np.einsum(
            "jh,hi,ha,hb->jiab",
            at_keys @ self.inverse,
            self.unit,
            self.unit,
            self.unit,
            optimize=True,
        )
        d = self.d
        eye = np.eye(d)
        # d(caught)/2 and d(gram)/2 as tensors dual to Q
        gain = 6 * cubic / (d * (d + 2) * (d + 4)) - self._harmonic(zonal)[0] / self.size
        cost = 2 * fields + np.einsum("jicc,ab->jiab", fields, eye)
        cost = cost / (d * (d + 2)) - 9 * _with_trace(trace) / (d * (d + 2) ** 2)
        slope = np.einsum("jk,kiab->jiab", inverse, gain)
        slope -= np.einsum("jk,kiab->jiab", inverse @ caught @ inverse, cost)
        back = 2 * np.einsum("hj,jiab,hb->hia", self.relations, slope, self.keys, optimize=True)
        return -float(np.sum(inverse * caught)), -back.ravel()


def _with_trace(trace: Floats) -> Floats:
    """The symmetrised product of the identity and a vector: dual to taking the trace."""
    eye = np.eye(trace.shape[1])
    parts = (np.einsum(f"{one},j{two}->jiab", eye, trace) for one, two in _PAIRINGS)
    total: Floats = sum(parts, np.zeros((1, 1, 1, 1))) / 3
    return total


_PAIRINGS = (("ia", "b"), ("ib", "a"), ("ab", "i"))


def _form(tensor: Floats) -> Cubic:
    """The cubic of a nearly harmonic tensor, made exactly harmonic."""
    d = len(tensor)
    coefficients: dict[tuple[int, ...], fmpq] = {}
    for place, entry in np.ndenumerate(tensor):
        m = tuple(place.count(k) for k in range(d))
        coefficients[m] = coefficients.get(m, fmpq(0)) + to_fmpq(Fraction(float(entry)))
    return Cubic(d, coefficients).harmonic_part()


def _exact(matrix: Floats) -> fmpq_mat:
    """The doubles of a matrix as exact rationals."""
    entries = [to_fmpq(Fraction(float(x))) for x in matrix.ravel()]
    return fmpq_mat(matrix.shape[0], matrix.shape[1], entries)
