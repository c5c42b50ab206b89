r"""H3: generalised rank-1 heads that attain the scalar floor.

A head is $VX\varphi(K^\top X,y)$ with $\varphi$ any bounded function: not a softmax of a bilinear
form, so that these layers have no $W_Q, W_K$. Two points: $w = (x_1-x_2)/\sqrt2$,
$v = (x_1+x_2)/\sqrt2$, and $X\varphi = ((\varphi_1+\varphi_2)v + (\varphi_1-\varphi_2)w)/\sqrt2$.
The floor is :func:`bounds.head_floor.head_floor`; proofs are in docs/H3-tightness.md and
docs/general-values.md.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from flint import arb, arb_mat, fmpq, fmpq_mat

from bounds.arithmetic import Ball, exact_integer, precision
from bounds.errors import ArgumentError, HypothesisError, UndecidedError
from bounds.harmonics import (
    density_constant_ball,
    gegenbauer_values,
    harmonic_dimension,
)
from constructions.cubic_forms import Cubic, Key, cubic_of, to_float, to_fmpq

Floats = npt.NDArray[np.float64]

BITS = 256
"""Bits at which coefficients are solved for, before they are rounded to double precision."""

_KEY_SCALE = 100


@dataclass(frozen=True)
class GeneralizedHeads:
    r"""A layer of $H$ generalised rank-1 heads on two points, with exact rational parameters.

    $\varphi_1 + \varphi_2 = s_h$ (``totals``) and, with $u_h = \langle k_h, w\rangle/|k_h|$,
    $$\varphi_1-\varphi_2
      = \sum_\ell\sum_{h'} Z^\ell_{hh'}P_\ell(u_h)P_\ell(\langle k_{h'},y\rangle/|k_{h'}|)
      + \langle k_h, w\rangle\sum_j E_{hj}Y_j(y).$$

    ``keys``: H integer vectors, the columns $K_h$; ``values``: H matrices (d, d); ``zonal``: degree
    to (H, H); ``couplings`` $E$: (H, G); ``cubics``: G forms. The scores are polynomials on
    compact sets, hence bounded. :meth:`squared_error` is exact about these rationals;
    :meth:`evaluate` works in double precision.
    """

    d: int
    keys: tuple[Key, ...]
    values: tuple[fmpq_mat, ...]
    totals: tuple[fmpq, ...]
    zonal: Mapping[int, fmpq_mat]
    cubics: tuple[Cubic, ...] = ()
    couplings: fmpq_mat | None = None

    @property
    def heads(self) -> int:
        """The number $H$ of heads."""
        return len(self.keys)

    def scores(self, X: Floats, y: Floats) -> Floats:
        r"""$\varphi$, shape (..., H, 2), for points X of shape (..., d, 2) and queries (..., d)."""
        if X.shape[-2:] != (self.d, 2):
            raise ArgumentError("X", X.shape, f"of shape (..., {self.d}, 2)")
        if y.shape != X.shape[:-1]:
            raise ArgumentError("y", y.shape, f"of shape {X.shape[:-1]}, one query a pair")
        w = (X[..., 0] - X[..., 1]) / np.sqrt(2)
        keys = np.array(self.keys, dtype=np.float64)
        lengths = np.linalg.norm(keys, axis=1)
        raw = w @ keys.T
        own = _float_gegenbauer(self.d, max(self.zonal), raw / lengths)
        far = _float_gegenbauer(self.d, max(self.zonal), y @ keys.T / lengths)
        difference = np.zeros(raw.shape)
        for degree, table in self.zonal.items():
            difference += own[degree] * (far[degree] @ _floats(table).T)
        if self.couplings is not None:
            forms = np.stack([form.values(y) for form in self.cubics], axis=-1)
            difference += raw * (forms @ _floats(self.couplings).T)
        totals = np.array([to_float(total) for total in self.totals])
        return np.stack([(totals + difference) / 2, (totals - difference) / 2], axis=-1)

    def evaluate(self, X: Floats, y: Floats) -> Floats:
        r"""$\sum_h V_h X \varphi_h(K_h^\top X, y)$, shape (..., d)."""
        routed = np.einsum("...in,...hn->...hi", X, self.scores(X, y))
        values = np.stack([_floats(value) for value in self.values])
        layer: Floats = np.einsum("hij,...hj->...i", values, routed)
        return layer

    def in_simplex(self) -> bool:
        r"""Whether every $\varphi_h$ is certainly a probability vector: $s_h = 1 \ge \sum|Z_h|$."""
        if self.couplings is not None:
            return False
        rows = [
            sum(
                (abs(table[h, k]) for table in self.zonal.values() for k in range(self.heads)),
                fmpq(0),
            )
            for h in range(self.heads)
        ]
        return all(total == 1 for total in self.totals) and all(row <= 1 for row in rows)

    def squared_error(self, bits: int = BITS) -> Ball:
        r"""An interval that holds $\mathbb E\|f-g\|^2$ for the nearest neighbour on $\mathcal D_2$.

        With $V_h = a_hI + S_h$, $S_h$ traceless, and $\zeta_h$ the zonal part of the score: exact
        moments give the error of
        $\sum_hs_hV_hv + w\sum_ha_h\zeta_h + \sum_{hj}Y_j(y)E_{hj}\langle k_h,w\rangle V_hw$; the rest,
        $\sum_hS_hw\,\zeta_h$, is at most $\delta = \sum_h\|S_h\|_F\|\zeta_h\|$ in $L^2$. For scalar
        values $\delta = 0$ and the interval is as narrow as the precision.
        Raises ``HypothesisError`` when a cubic is not harmonic.
        """
        with precision(bits):
            return Ball.from_arb(self._error())

    def _error(self) -> arb:
        shares = [sum((V[i, i] for i in range(self.d)), fmpq(0)) / self.d for V in self.values]
        rests = [V - a * identity(self.d) for V, a in zip(self.values, shares, strict=True)]
        routed = sum(
            (s * V for s, V in zip(self.totals, self.values, strict=True)), fmpq_mat(self.d, self.d)
        )
        apart = arb(_square(identity(self.d) - routed) / self.d)
        strengths = sign_coefficients(self.d, max(3, *self.zonal))
        missed, spread = arb(1), [arb(0)] * self.heads
        for degree, table in self.zonal.items():
            size = harmonic_dimension(self.d, degree)
            kernel = zonal_matrix(self.d, degree, self.keys)
            own = arb_mat(table)
            total = arb_mat(_scaled_rows(table, shares))
            # E[P(k.w)P(k'.w)] = P(k.k')/N and E[sgn P(k.w)] = lambda P(k.y)
            missed -= 2 * strengths[degree] * _dot(total, kernel) / size
            missed += _dot(total, kernel * total * kernel) / size**2
            square = own * kernel * own.transpose()
            spread = [before + square[h, h] / size**2 for h, before in enumerate(spread)]
        missed += self._cubic_share(strengths[3], shares)
        slack = sum(
            (
                arb(_square(S)).sqrt() * _root(e)
                for S, e in zip(rests, spread, strict=True)
                if S != 0 * S
            ),
            arb(0),
        )
        low, high = _root(missed) - slack, _root(missed) + slack
        low = arb(0) if not low > 0 else low
        return (apart + (low**2).union(high**2)) / 2

    def _cubic_share(self, strength: arb, shares: Sequence[fmpq]) -> arb:
        r"""What $G = \sum_jY_j(y)Q_j(w)$ adds to $\mathbb E|\mathrm{sgn}\langle w,y\rangle w - pw|^2$.

        $\mathbb E|G|^2 - 2\mathbb E[\mathrm{sgn}\,\langle G,w\rangle] +
        2\mathbb E[p\,\langle G,w\rangle]$, where only the harmonic part of
        $\langle Q_j,w\rangle$ meets the cubic $Y_j$.
        """
        if self.couplings is None:
            return arb(0)
        if not all(form.is_harmonic() for form in self.cubics):
            found = "a cubic has a Laplacian"
            raise HypothesisError("the error of a layer with cubics", "harmonic cubics", found)
        fields = [self._field(j) for j in range(len(self.cubics))]
        total = arb(0)
        for form, field in zip(self.cubics, fields, strict=True):
            for other, against in zip(self.cubics, fields, strict=True):
                total += form.inner(other) * _field_inner(field, against)
            normal = cubic_of(field).harmonic_part()
            total -= 2 * strength * form.inner(normal)
            if 3 in self.zonal:
                table = arb_mat(_scaled_rows(self.zonal[3], shares))
                near, far = self._at_keys(normal), self._at_keys(form)
                size = harmonic_dimension(self.d, 3)
                total += 2 * (near.transpose() * table * far)[0, 0] / size**2
        return total

    def _at_keys(self, form: Cubic) -> arb_mat:
        """The column of values of a cubic at the unit keys."""
        lengths = [arb(sum(x * x for x in key)).sqrt() for key in self.keys]
        values = [form(key) / n**3 for key, n in zip(self.keys, lengths, strict=True)]
        return arb_mat(self.heads, 1, values)

    def _field(self, j: int) -> list[fmpq_mat]:
        r"""$Q_j(w)_i = w^\top Q_{j,i}w$ with $Q_j(w) = \sum_hE_{hj}\langle k_h,w\rangle V_hw$, symmetric."""
        assert self.couplings is not None
        field = [fmpq_mat(self.d, self.d) for _ in range(self.d)]
        for h, (key, value) in enumerate(zip(self.keys, self.values, strict=True)):
            column = fmpq_mat(self.d, 1, [self.couplings[h, j] * x / 2 for x in key])
            for i in range(self.d):
                outer = column * fmpq_mat(1, self.d, [value[i, a] for a in range(self.d)])
                field[i] += outer + outer.transpose()
        return field


def generalized_rank_one(d: int, heads: int, degree: int, seed: int = 0) -> GeneralizedHeads:
    r"""Scalar-value heads whose error is the scalar floor of H2 up to degrees above ``degree``.

    The error is $\frac12[\sum_{\ell\le L}\eta_\ell^2(1-H/N(d,\ell))_+ + \sum_{\ell>L}\eta_\ell^2]$
    plus the rounding of the coefficients to double precision; it tends to the floor as $L$ grows.
    One linear system a degree: the matrix of $a_h(\varphi_1-\varphi_2)$ is
    $\lambda_\ell N(d,\ell)\,P_\ell(\langle k_h,k_{h'}\rangle)^{-1}$, the orthogonal projection of
    the target on the zonal harmonics of the poles $k_h$ (the first $N(d,\ell)$ of them when there
    are more heads).
    From two heads on, every $\varphi$ is a probability vector: $V_h = a_hI$, $\sum_ha_h = 1$ and
    $|a_h| \ge \sup|a_h(\varphi_1-\varphi_2)|$. One head has $a = 1$, and its truncated $\varphi$
    may leave the simplex (the untruncated one does not).

    Hypotheses: $d \ge 3$, ``heads`` at least 1, ``degree`` $L$ odd. Raises ``ArgumentError``, and
    ``UndecidedError`` when the drawn poles are not certified independent.
    Source: [attention-bounds, H3].

    >>> layer = generalized_rank_one(4, 2, 5)
    >>> layer.in_simplex(), layer.squared_error().decimal(6)
    (True, '0.311345')
    """
    d, heads, degree = layer_arguments(d, heads, degree)
    keys = draw_keys(d, heads, seed)
    tables = zonal_projection(d, degree, keys)
    reach = [
        sum((abs(table[h, k]) for table in tables.values() for k in range(heads)), fmpq(0))
        for h in range(heads)
    ]
    shares = _shares(heads, max(reach))
    inverse = [1 / share for share in shares]
    return GeneralizedHeads(
        d=d,
        keys=keys,
        values=tuple(share * identity(d) for share in shares),
        totals=(fmpq(1),) * heads,
        zonal={ell: _scaled_rows(table, inverse) for ell, table in tables.items()},
    )


def sign_coefficients(d: int, degree: int) -> dict[int, arb]:
    r"""$\lambda_\ell = \mathbb E[\mathrm{sgn}(t)P_\ell(t)]$, odd $\ell$ to ``degree``, as balls."""
    strengths = {1: 2 * density_constant_ball(d) / (d - 1)}
    for ell in range(1, degree - 1, 2):
        strengths[ell + 2] = -strengths[ell] * ell / (ell + d)
    return strengths


def zonal_matrix(d: int, degree: int, keys: Sequence[Key]) -> arb_mat:
    r"""$P_\ell$ of the cosines of the keys: $N(d,\ell)$ times the Gram matrix of $P_\ell(u_h)$."""
    lengths = [arb(sum(x * x for x in key)).sqrt() for key in keys]
    matrix = arb_mat(len(keys), len(keys))
    for h, left in enumerate(keys):
        matrix[h, h] = arb(1)
        for k in range(h):
            inner = arb(sum(x * y for x, y in zip(left, keys[k], strict=True)))
            values = gegenbauer_values(d, inner / (lengths[h] * lengths[k]))
            matrix[h, k] = matrix[k, h] = next(v for ell, v in enumerate(values) if ell == degree)
    return matrix


def layer_arguments(d: object, heads: object, degree: object) -> tuple[int, int, int]:
    """``d``, ``heads`` and the odd ``degree`` as ints, or an ``ArgumentError``."""
    dim = exact_integer(d, "d", 3)
    count = exact_integer(heads, "heads", 1)
    top = exact_integer(degree, "degree", 1)
    if top % 2 == 0:
        raise ArgumentError("degree", degree, "odd (even degrees of the sign function are zero)")
    return dim, count, top


def draw_keys(d: int, heads: int, seed: int) -> tuple[Key, ...]:
    """Rounded Gaussian key vectors, in general position for almost every seed."""
    draw = random.Random(exact_integer(seed, "seed", 0))
    return tuple(
        tuple(round(_KEY_SCALE * draw.gauss(0, 1)) for _ in range(d)) for _ in range(heads)
    )


def zonal_projection(d: int, degree: int, keys: tuple[Key, ...]) -> dict[int, fmpq_mat]:
    """The matrices $Z^l$ of the projection of the sign function, rounded to double precision."""
    tables = {}
    with precision(BITS):
        strengths = sign_coefficients(d, degree)
        for ell in range(1, degree + 1, 2):
            size = harmonic_dimension(d, ell)
            used = min(len(keys), size)
            try:
                inverse = zonal_matrix(d, ell, keys[:used]).inv()
            except ZeroDivisionError:
                what = f"the independence of {used} zonal harmonics of degree {ell}, d = {d}"
                raise UndecidedError(f"{what}, is undecided: take another seed") from None
            table = fmpq_mat(len(keys), len(keys))
            for h in range(used):
                for k in range(used):
                    table[h, k] = nearest_double(strengths[ell] * size * inverse[h, k])
            tables[ell] = table
    return tables


def _shares(heads: int, reach: fmpq) -> list[fmpq]:
    """$a_h$ with sum 1 and every $|a_h|$ at least ``reach`` (one head: $a = 1$)."""
    if heads == 1:
        return [fmpq(1)]
    large = fmpq(1)
    while large < reach + 1:
        large *= 2
    shares = [large if h % 2 == 0 else -large for h in range(heads)]
    if heads % 2:
        shares[:3] = [2 * large, -large, -large]
    shares[-1] += 1
    return shares


def _float_gegenbauer(d: int, degree: int, t: Floats) -> list[Floats]:
    values = [np.ones_like(t), t]
    for ell in range(1, degree):
        step = (2 * ell + d - 2) * t * values[ell] - ell * values[ell - 1]
        values.append(step / (ell + d - 2))
    return values


def _scaled_rows(table: fmpq_mat, factors: Sequence[fmpq]) -> fmpq_mat:
    entries = [factors[h] * table[h, k] for h in range(table.nrows()) for k in range(table.ncols())]
    return fmpq_mat(table.nrows(), table.ncols(), entries)


def _dot(left: arb_mat, right: arb_mat) -> arb:
    pairs = zip(left.entries(), right.entries(), strict=True)
    return sum((a * b for a, b in pairs), arb(0))


def _square(matrix: fmpq_mat) -> fmpq:
    return sum((x * x for x in matrix.entries()), fmpq(0))


def _field_inner(left: Sequence[fmpq_mat], right: Sequence[fmpq_mat]) -> fmpq:
    r"""$\mathbb E\langle Q(w),Q'(w)\rangle$ for quadratic fields on the sphere.

    $\mathbb E[w^\top Aw\,w^\top Bw] = (2\operatorname{tr}AB+\operatorname{tr}A\operatorname{tr}B)/d(d+2)$.
    """
    d, total = len(left), fmpq(0)
    for A, B in zip(left, right, strict=True):
        pairs = zip(A.entries(), B.entries(), strict=True)
        total += 2 * sum((a * b for a, b in pairs), fmpq(0))
        total += sum((A[i, i] for i in range(d)), fmpq(0)) * sum(
            (B[i, i] for i in range(d)), fmpq(0)
        )
    return total / (d * (d + 2))


def _root(value: arb) -> arb:
    """The root of a number known to be nonnegative, whose ball may reach below 0."""
    return value.nonnegative_part().sqrt()


def identity(d: int) -> fmpq_mat:
    """The identity matrix over the rationals."""
    return fmpq_mat(d, d, [int(i == j) for i in range(d) for j in range(d)])


def nearest_double(value: arb) -> fmpq:
    """The nearest double to the midpoint, as an exact rational."""
    return to_fmpq(Fraction(float(value.mid())))


def _floats(matrix: fmpq_mat) -> Floats:
    entries = [to_float(x) for x in matrix.entries()]
    return np.array(entries).reshape(matrix.nrows(), matrix.ncols())
