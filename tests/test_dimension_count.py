"""H2, step 3: D(r, l) against the exact rank of the conditions it counts.

The oracle knows no harmonic theory. Harmonics are the kernel of the Laplacian on monomials modulo
a prime; the conditional means E[w'Vw Y | u] and E[(w'Vk_j) Y | u], with k_j the first r axes and
w = (u, z), are taken monomial by monomial. A mean is homogeneous in (u, |z|), so that its
coefficients in u^a |z|^2b are independent functions on |u|^2 + |z|^2 = 1.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations_with_replacement

import pytest
from flint import nmod_mat

from bounds.harmonics import harmonic_dimension, head_dimension

PRIME = 2**31 - 1
Polynomial = dict[tuple[int, ...], int]


def monomials(d: int, degree: int) -> Iterator[tuple[int, ...]]:
    for chosen in combinations_with_replacement(range(d), degree):
        yield tuple(chosen.count(i) for i in range(d))


def harmonics(d: int, degree: int) -> list[Polynomial]:
    """A basis of the harmonic polynomials of a degree, modulo the prime."""
    names = list(monomials(d, degree))
    targets = {name: i for i, name in enumerate(monomials(d, degree - 2))} if degree >= 2 else {}
    if not targets:
        return [{name: 1} for name in names]
    table = nmod_mat(len(targets), len(names), PRIME)
    for column, name in enumerate(names):
        for i in range(d):
            if name[i] >= 2:
                lower = tuple(e - 2 * (j == i) for j, e in enumerate(name))
                table[targets[lower], column] += name[i] * (name[i] - 1)
    reduced, rank = table.rref()
    pivots = [next(j for j in range(len(names)) if int(reduced[i, j])) for i in range(rank)]
    basis = []
    for free in sorted(set(range(len(names))) - set(pivots)):
        vector = {names[free]: 1}
        for i, pivot in enumerate(pivots):
            if int(reduced[i, free]):
                vector[names[pivot]] = PRIME - int(reduced[i, free])
        basis.append(vector)
    return basis


def times(left: Polynomial, right: Polynomial) -> Polynomial:
    product: Polynomial = {}
    for a, x in left.items():
        for b, y in right.items():
            name = tuple(i + j for i, j in zip(a, b, strict=True))
            product[name] = (product.get(name, 0) + x * y) % PRIME
    return product


def mean_given_u(polynomial: Polynomial, r: int) -> Polynomial:
    """E[. | u]: z is uniform on a sphere of R^m, E z^a = |z|^|a| prod (a_i-1)!! / (m(m+2)..)."""
    mean: Polynomial = {}
    for name, coefficient in polynomial.items():
        u, z = name[:r], name[r:]
        if any(e % 2 for e in z):
            continue
        value, half = coefficient, sum(z) // 2
        for e in z:
            for odd in range(1, e, 2):
                value = value * odd % PRIME
        for step in range(half):
            value = value * pow(len(z) + 2 * step, -1, PRIME) % PRIME
        key = (*u, half)
        mean[key] = (mean.get(key, 0) + value) % PRIME
    return mean


def condition_rank(d: int, r: int, degree: int, value: list[list[int]]) -> int:
    """The rank, on harmonics of one degree, of all that a head with this V can be tested by."""
    axis = [tuple(int(i == j) for j in range(d)) for i in range(d)]
    quadratic: Polynomial = {}
    for i in range(d):
        for j in range(d):
            name = tuple(a + b for a, b in zip(axis[i], axis[j], strict=True))
            quadratic[name] = (quadratic.get(name, 0) + value[i][j]) % PRIME
    linear = [{axis[i]: value[i][j] % PRIME for i in range(d)} for j in range(r)]
    rows: list[dict[int, int]] = []
    columns: dict[tuple[int, tuple[int, ...]], int] = {}
    for harmonic in harmonics(d, degree):
        row = {}
        for index, form in enumerate([quadratic, *linear]):
            for name, entry in mean_given_u(times(form, harmonic), r).items():
                row[columns.setdefault((index, name), len(columns))] = entry
        rows.append(row)
    table = [[row.get(j, 0) for j in range(len(columns))] for row in rows]
    return int(nmod_mat(table, PRIME).rank())


def random_matrix(d: int, seed: int) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(PRIME) for _ in range(d)] for _ in range(d)]


REFERENCE = [
    *[(5, 1, degree, rank) for degree, rank in enumerate((3, 4, 4, 4), 1)],
    *[(6, 2, degree, rank) for degree, rank in enumerate((6, 11, 16), 1)],
    *[(6, 3, degree, rank) for degree, rank in enumerate((6, 16, 31), 1)],
    (7, 3, 3, 37),
]


@pytest.mark.parametrize(("d", "r", "degree", "rank"), REFERENCE)
def test_reference_ranks(d: int, r: int, degree: int, rank: int) -> None:
    assert condition_rank(d, r, degree, random_matrix(d, 1)) == rank
    assert head_dimension(d, r, degree) == rank


@pytest.mark.parametrize(
    ("d", "r", "degree"),
    [
        (4, 1, 5),
        (5, 2, 4),
        (6, 1, 4),
        (7, 2, 3),
        (7, 4, 2),
        (8, 2, 3),
        (8, 5, 2),
        (9, 4, 2),
        (9, 6, 2),
    ],
)
def test_count_is_the_rank_for_random_values(d: int, r: int, degree: int) -> None:
    assert condition_rank(d, r, degree, random_matrix(d, 2)) == head_dimension(d, r, degree)


@pytest.mark.parametrize(("d", "r", "degree"), [(5, 1, 3), (6, 2, 3), (6, 3, 2)])
def test_special_values_never_exceed_the_count(d: int, r: int, degree: int) -> None:
    identity = [[int(i == j) for j in range(d)] for i in range(d)]
    general = random_matrix(d, 3)
    symmetric = [[(general[i][j] + general[j][i]) % PRIME for j in range(d)] for i in range(d)]
    single = [[general[0][i] * general[1][j] % PRIME for j in range(d)] for i in range(d)]
    for value in (symmetric, single):
        assert 0 < condition_rank(d, r, degree, value) <= head_dimension(d, r, degree)
    # V = I gives u_j Y and |w|^2 Y: the invariant harmonics and nothing else
    scalar = head_dimension(d, r, degree, values="scalar")
    assert condition_rank(d, r, degree, identity) == scalar


def test_the_oracle_counts_all_harmonics() -> None:
    for d, degree in ((4, 5), (5, 3), (6, 1)):
        assert len(harmonics(d, degree)) == harmonic_dimension(d, degree)
