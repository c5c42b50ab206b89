"""Dimensions by counting monomials and multiplying power series, and Gegenbauer by its sum."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement
from math import factorial


def monomials(variables: int, degree: int) -> int:
    """The number of monomials of a degree, by listing them."""
    return sum(1 for _ in combinations_with_replacement(range(variables), degree))


def harmonics_by_series(d: int, degree: int) -> int:
    """The coefficient of x^degree in (1 + x) / (1 - x)^(d - 1): repeated prefix sums."""
    series = [1, 1] + [0] * degree
    for _ in range(d - 1):
        for place in range(1, len(series)):
            series[place] += series[place - 1]
    return series[degree]


def laplacian_rank(d: int, degree: int) -> int:
    """The rank of the Laplacian on homogeneous polynomials of a degree, by exact elimination."""
    columns = list(combinations_with_replacement(range(d), degree))
    rows: list[dict[tuple[int, ...], Fraction]] = []
    for monomial in columns:
        image: dict[tuple[int, ...], Fraction] = {}
        for variable in set(monomial):
            power = monomial.count(variable)
            if power >= 2:
                rest = list(monomial)
                rest.remove(variable)
                rest.remove(variable)
                key = tuple(rest)
                image[key] = image.get(key, Fraction(0)) + power * (power - 1)
        rows.append(image)
    rank = 0
    while rows:
        row = rows.pop()
        if not row:
            continue
        rank += 1
        pivot = next(iter(row))
        for other in rows:
            if pivot in other:
                scale = other[pivot] / row[pivot]
                for key, value in row.items():
                    left = other.get(key, Fraction(0)) - scale * value
                    if left:
                        other[key] = left
                    else:
                        other.pop(key, None)
    return rank


def normalized_gegenbauer(d: int, degree: int, t: Fraction) -> Fraction:
    """P_l(t) = l! sum_k (-1/4)^k (1-t^2)^k t^(l-2k) / (k! (l-2k)! ((d-1)/2)_k), exactly."""
    total = Fraction(0)
    rising = Fraction(1)
    for k in range(degree // 2 + 1):
        total += (
            Fraction(-1, 4) ** k
            * (1 - t * t) ** k
            * t ** (degree - 2 * k)
            / (factorial(k) * factorial(degree - 2 * k) * rising)
        )
        rising *= Fraction(d - 1, 2) + k
    return total * factorial(degree)
