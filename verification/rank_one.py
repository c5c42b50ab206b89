r"""The judge of H6: the exact error of the rank-1 hard heads that were actually made.

A hard head selects by the signs of $\langle k, x_1-x_2\rangle$ and $\langle q, y\rangle$, so only the
directions of $q$ and $k$ matter: they are normalised here, whatever their length, and every
rounding error of the float64 evaluation is bounded. Rounding analysis and proof:
docs/H6-rank-one-heads.md.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from flint import arb, arb_poly, fmpq
from numpy.typing import NDArray

from bounds.arithmetic import Ball, exact_integer, precision
from bounds.errors import ArgumentError, HypothesisError
from bounds.head_overlap import target_overlap_ball
from constructions.attention import AttentionLayer
from constructions.head_directions import signed_symmetries
from constructions.rank_one import head_weights

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

_UNIT = 2.0**-53
# tiles that stay in cache, and small enough for BLAS not to wake its threads at d <= 16
_ROWS, _COLUMNS = 32, 512


def rank_one_error(layer: AttentionLayer, *, bits: int | None = None) -> Ball:
    r"""$\mathbb E\|f-g\|^2$ on $\mathcal D_2$ of a layer of rank-1 hard heads, as a certified ball.

    $1 - 2b^\top a + a^\top Ca$ with the queries, keys and weights of ``layer``
    (:func:`constructions.rank_one.rank_one_layer`, or any layer of hard heads with $d_k = 1$, no
    bias and values $a_hI$). Float64 with every rounding error bounded: the radius is about
    $10^{-14}d\,(\sum|a_h|)^2$. With ``bits`` all of it is done in ball arithmetic of that
    precision instead: slow, for up to a few hundred heads.
    Symmetries of the layer are found in its weights and used; the time is that of $H^2/2$ entries
    of $C$ without, about 1 s at $H = 2^{13}$.
    Raises ``HypothesisError`` for another kind of layer. Source: [attention-bounds, H6].
    """
    query, key, weights = head_weights(layer)
    return weights_error(query, key, weights, bits=bits)


def weights_error(query: Floats, key: Floats, weights: Floats, *, bits: int | None = None) -> Ball:
    r"""The same for ``query`` and ``key`` of shape $(H, d)$, any nonzero lengths, ``weights`` $(H,)$."""
    query, key, weights = (
        _checked(query, "query"),
        _checked(key, "key"),
        _finite(weights, "weights"),
    )
    if query.shape != key.shape or weights.shape != query.shape[:1]:
        shapes = (query.shape, key.shape, weights.shape)
        raise ArgumentError("shapes", shapes, "(H, d), (H, d) and (H,), H >= 1, d >= 2")
    if bits is not None:
        with precision(exact_integer(bits, "bits", 16)):
            return Ball.from_arb(_error_in_balls(query, key, weights))
    q, k = _normalized(query), _normalized(key)
    first, sizes = _orbits(query, key, weights)
    with precision(80):
        overlap = _target_part(q[first], k[first], weights[first], sizes)
        total = _sum(weights)
        pairs = _pair_part(q, k, weights, first, sizes)
        # (2/pi^2) sum a a' arcsin arcsin, and 1/2 (sum a)^2
        return Ball.from_arb(1 - 2 * overlap + total**2 / 2 + 2 * pairs / arb.pi() ** 2)


def _checked(vectors: Floats, name: str) -> Floats:
    array = _finite(vectors, name)
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 2:
        raise ArgumentError(name, array.shape, "of shape (H, d), H >= 1, d >= 2")
    if not np.any(array, axis=1).all():
        head = int(np.argmin(np.any(array, axis=1)))
        raise HypothesisError("H6", f"a nonzero {name} in every head", f"head {head} has {name} 0")
    return array


def _finite(values: Floats, name: str) -> Floats:
    array = np.asarray(values)
    if array.dtype not in (np.float64, np.float32, np.float16):
        raise ArgumentError(name, array.dtype, "an array of floats")
    if not np.isfinite(array).all():
        raise ArgumentError(name, "an array with nan or inf", "finite")
    return array.astype(np.float64)


def _normalized(vectors: Floats) -> Floats:
    """Rows divided by their length: off their exact direction by at most 2 units, of length
    within (d/2 + 4) units of 1 (a unit is 2^-53).
    """
    _, exponent = np.frexp(np.abs(vectors).max(axis=1, keepdims=True))
    scaled = np.ldexp(vectors, -exponent)  # keeps the squares in range
    result: Floats = scaled / np.sqrt(np.einsum("hi,hi->h", scaled, scaled))[:, None]
    return result


def _sum(values: Floats) -> arb:
    return sum((arb(float(value)) for value in values), arb(0))


def _target_part(q: Floats, k: Floats, weights: Floats, sizes: Counts) -> arb:
    r"""$\sum_h a_hb_h$ over one head of each orbit."""
    d = q.shape[1]
    slack = arb(0, (3 * d + 16) * _UNIT)
    cosines = np.clip(np.einsum("hi,hi->h", q, k), -1.0, 1.0)
    total = arb(0)
    for size, weight, cosine in zip(sizes, weights, cosines, strict=True):
        overlap = target_overlap_ball(d, arb(float(cosine)) + slack)
        total += int(size) * arb(float(weight)) * overlap
    return total


def _pair_part(q: Floats, k: Floats, weights: Floats, first: Counts, sizes: Counts) -> arb:
    r"""$\sum_{hh'}a_ha_{h'}\arcsin\langle q_h,q_{h'}\rangle\arcsin\langle k_h,k_{h'}\rangle$."""
    heads, d = q.shape
    columns = (q, k, weights)
    parts: list[float] = []
    if len(first) == heads:
        for start in range(0, heads, _ROWS):
            stop = min(start + _ROWS, heads)
            rows = (q[start:stop], k[start:stop], weights[start:stop])
            parts += _tiles(rows, rows)
            parts += [2 * part for part in _tiles(rows, tuple(c[stop:] for c in columns))]
        rounding = 0.0
    else:
        orbit_weights = sizes * weights[first]
        for start in range(0, len(first), _ROWS):
            block = first[start : start + _ROWS]
            parts += _tiles((q[block], k[block], orbit_weights[start : start + _ROWS]), columns)
        rounding = _UNIT  # of orbit_weights
    # |arcsin| <= pi/2, each off by at most delta: a product is off by 3.2 delta; the two sums of a
    # tile add (_ROWS + _COLUMNS + 4) units of terms below (pi/2)^2 |a a'|
    delta = (3 * d + 64) * _UNIT + _arcsine_polynomial()[1]
    sums = (_ROWS + _COLUMNS + 4) * _UNIT + rounding
    size = float(np.abs(weights).sum()) * (1 + 2 * heads * _UNIT)
    radius = size * size * (3.2 * delta + 2.5 * sums)
    return _sum(np.array([math.fsum(parts)])) * (1 + arb(0, 2 * _UNIT)) + arb(0, radius)


def _tiles(rows: tuple[Floats, ...], columns: tuple[Floats, ...]) -> list[float]:
    row_q, row_k, row_weights = rows
    parts = []
    for start in range(0, len(columns[2]), _COLUMNS):
        q, k, weights = (column[start : start + _COLUMNS] for column in columns)
        product = _arcsines(row_q, q)
        product *= _arcsines(row_k, k)
        parts.append(float(np.einsum("i,ij,j->", row_weights, product, weights)))
    return parts


def _arcsines(u: Floats, v: Floats) -> Floats:
    r"""$\arcsin\langle u_i, v_j\rangle$ for rows of :func:`_normalized`, within $(3d+64)$ units
    plus the error of the polynomial, also near $\pm1$.
    """
    x = u @ v.T
    far = np.flatnonzero(np.abs(x) > 0.5)
    coefficients, _ = _arcsine_polynomial()
    square = x * x
    result = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result *= square
        result += coefficient
    result *= x
    if far.size:
        # arcsin x = s (pi/2 - 2 arcsin(|u - s v| / 2)), s = sgn x: no cancellation in 1 - |x|
        i, j = np.divmod(far, x.shape[1])
        sign = np.sign(x.ravel()[far])
        difference = u[i] - sign[:, None] * v[j]
        half = 0.5 * np.sqrt(np.einsum("pi,pi->p", difference, difference))
        square = half * half
        chord = np.full_like(half, coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            chord = chord * square + coefficient
        result.ravel()[far] = sign * (np.pi / 2 - 2 * half * chord)
    return result


@cache
def _arcsine_polynomial() -> tuple[tuple[float, ...], float]:
    r"""$p$ with $|xp(x^2) - \arcsin x| \le$ the second entry for $|x| \le 0.51$; low powers first.

    Chebyshev expansion on $z = x^2 \in [0, 0.2601]$ of the Taylor polynomial of $\arcsin(x)/x$ of
    60 terms, cut and rounded; the difference to that polynomial is bounded by the sum of its exact
    Chebyshev coefficients, and the rest of the Taylor series by a geometric series.
    """
    terms, kept, top = 60, 12, fmpq(2601, 10000)
    with precision(256):
        taylor, value = [], arb(1)
        for n in range(terms):
            taylor.append(value / (2 * n + 1))
            value = value * (2 * n + 1) / (2 * n + 2)
        exact = arb_poly(taylor)
        series = _chebyshev_coefficients(exact, terms, top)
        variable = arb_poly([-1, 2 / arb(top)])  # y in [-1, 1]
        fitted, previous, current = arb_poly([0]), arb_poly([1]), variable
        for coefficient in series[:kept]:
            fitted += coefficient * previous
            previous, current = current, 2 * variable * current - previous
        rounded = [float(coefficient.mid()) for coefficient in fitted.coeffs()]
        gaps = _chebyshev_coefficients(arb_poly(rounded) - exact, terms, top)
        tail = arb(top) ** terms / (1 - arb(top))
        error = (sum((abs(gap) for gap in gaps), arb(0)) + tail) * arb("0.51")
        return tuple(rounded), Ball.from_arb(error).upper_float()


def _chebyshev_coefficients(polynomial: arb_poly, count: int, top: fmpq) -> list[arb]:
    """Coefficients on [0, top] of a polynomial of degree below ``count``, exact up to rounding."""
    angles = [(2 * j + 1) * arb.pi() / (2 * count) for j in range(count)]
    values = [polynomial((1 + angle.cos()) * arb(top) / 2) for angle in angles]
    return [
        sum((v * (n * a).cos() for v, a in zip(values, angles, strict=True)), arb(0))
        * (2 if n else 1)
        / count
        for n in range(count)
    ]


def _orbits(query: Floats, key: Floats, weights: Floats) -> tuple[Counts, Counts]:
    """One head of each orbit of the symmetries that the layer has, and the sizes of the orbits.

    A symmetry is a signed permutation of coordinates that maps the heads, up to the sign of
    (q, k) together, to each other with equal weights: checked exactly, on the floats.
    """
    heads = len(weights)
    labels = np.arange(heads)
    maps = []
    for order, signs in signed_symmetries(query.shape[1]):
        image = _matching(query, key, weights, query[:, order] * signs, key[:, order] * signs)
        if image is not None:
            maps.append(image)
    changed = bool(maps)
    while changed:
        before = labels
        for image in maps:
            labels = np.minimum(labels, labels[image])
            back = labels.copy()
            back[image] = np.minimum(labels[image], labels)
            labels = back
        changed = not np.array_equal(before, labels)
    first, sizes = np.unique(labels, return_counts=True)
    return first, sizes


def _matching(
    query: Floats, key: Floats, weights: Floats, image_query: Floats, image_key: Floats
) -> Counts | None:
    """For each head the one that has its image's query and key up to a common sign, and its weight."""
    own, image = _oriented(query, key), _oriented(image_query, image_key)
    # sorted by a hash, then compared exactly
    own_order, image_order = (_hashes(rows).argsort(kind="stable") for rows in (own, image))
    if not np.array_equal(own[own_order], image[image_order]):
        return None
    match = np.empty(len(weights), dtype=np.int64)
    match[image_order] = own_order
    return match if np.array_equal(weights[match], weights) else None


def _hashes(rows: Floats) -> NDArray[np.uint64]:
    """A 64-bit hash of each row: the same for the same bits."""
    multipliers = np.random.default_rng(0).integers(2**63, size=rows.shape[1], dtype=np.uint64) | 1
    bits = rows.view(np.uint64)
    hashes: NDArray[np.uint64] = ((bits ^ (bits >> 32)) * multipliers).sum(axis=1)
    return hashes


def _oriented(query: Floats, key: Floats) -> Floats:
    rows = np.concatenate([query, key], axis=1)
    leading = rows[np.arange(len(rows)), (rows != 0).argmax(axis=1)]
    result: Floats = rows * np.sign(leading)[:, None] + 0.0  # no -0.0
    return result


def _error_in_balls(query: Floats, key: Floats, weights: Floats) -> arb:
    heads, d = query.shape
    q, k = ([[fmpq(*float(x).as_integer_ratio()) for x in row] for row in m] for m in (query, key))
    a = [arb(float(weight)) for weight in weights]
    norms = [[_dot(row, row) for row in m] for m in (q, k)]
    overlap, pairs = arb(0), arb(0)
    for h in range(heads):
        cosine = arb(_dot(q[h], k[h])) / (arb(norms[0][h]) * arb(norms[1][h])).sqrt()
        overlap += a[h] * target_overlap_ball(d, cosine)
        pairs += a[h] ** 2 * arb.pi() ** 2 / 4
        for other in range(h):
            angles = arb(1)
            for m, n in zip((q, k), norms, strict=True):
                inner = _dot(m[h], m[other])
                cross = n[h] * n[other] - inner**2
                angles *= arb.atan2(arb(inner), arb(cross).sqrt())
            pairs += 2 * a[h] * a[other] * angles
    return 1 - 2 * overlap + _sum(weights) ** 2 / 2 + 2 * pairs / arb.pi() ** 2


def _dot(left: list[fmpq], right: list[fmpq]) -> fmpq:
    return sum((x * y for x, y in zip(left, right, strict=True)), fmpq(0))
