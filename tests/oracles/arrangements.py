"""Regions of hyperplanes through the origin, by integers: listed with a point of each, or counted."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

Vector = tuple[int, ...]


def regions(forms: Sequence[Vector], width: int) -> dict[int, Vector]:
    """The regions of the hyperplanes form = 0 in R^width, each with an integer point of it.

    Bit k of a key is set where form k is positive. Zero forms are refused; equal and opposite
    forms may occur. Hyperplane by hyperplane: a new one splits the regions of the earlier ones that
    have a region of their traces on it, and leaves the others on the side of their point.
    """
    places: dict[Vector, int] = {}
    sides: list[tuple[int, bool]] = []
    for form in forms:
        place = places.setdefault(primitive(form), len(places))
        sides.append((place, _content(form) > 0))
    cells = _distinct_regions(list(places), width)
    if len(places) == len(sides) and all(positive for _, positive in sides):
        return cells
    spread = {}
    for mask, point in cells.items():
        bits = (((mask >> place & 1) == positive) << k for k, (place, positive) in enumerate(sides))
        spread[sum(bits)] = point
    return spread


def _distinct_regions(forms: list[Vector], width: int) -> dict[int, Vector]:
    cells: dict[int, Vector] = {0: (0,) * width}
    for count, new in enumerate(forms):
        if width == 1:
            return {0: (-new[0],), 1: new}
        pivot = max(range(width), key=lambda c: abs(new[c]))
        scale, side = abs(new[pivot]), 1 if new[pivot] > 0 else -1
        others = [c for c in range(width) if c != pivot]
        traces = [
            tuple(old[c] * scale - side * old[pivot] * new[c] for c in others)
            for old in forms[:count]
        ]
        reach = 1 + max((abs(_dot(old, new)) for old in forms[:count]), default=0)
        bit, after = 1 << count, {}
        for mask, trace in regions(traces, width - 1).items():
            at = [scale * value for value in trace]
            at.insert(pivot, -side * sum(new[c] * y for c, y in zip(others, trace, strict=True)))
            shared = gcd(*at) or 1
            at = [reach * value // shared for value in at]
            after[mask | bit] = tuple(p + n for p, n in zip(at, new, strict=True))
            after[mask] = tuple(p - n for p, n in zip(at, new, strict=True))
        for mask, point in cells.items():
            if mask not in after:
                after[mask | bit if _dot(new, point) > 0 else mask] = point
        cells = after
    return cells


def count_regions(forms: Sequence[Vector]) -> int:
    """How many regions there are, by deletion and restriction: no points, no masks."""
    distinct = list(dict.fromkeys(primitive(form) for form in forms))
    total = 1
    for count, last in enumerate(distinct):
        pivot = next(c for c, value in enumerate(last) if value)
        traces = [
            tuple(
                old[c] * last[pivot] - old[pivot] * last[c] for c in range(len(last)) if c != pivot
            )
            for old in distinct[:count]
        ]
        total += count_regions(traces)
    return total


def primitive(form: Vector) -> Vector:
    """``form`` without common factors, its first nonzero entry positive."""
    shared = _content(form)
    return tuple(value // shared for value in form)


def _content(form: Vector) -> int:
    """The greatest common divisor, with the sign of the first entry that is not zero."""
    return gcd(*form) * (1 if next(value for value in form if value) > 0 else -1)


def _dot(one: Vector, two: Vector) -> int:
    return sum(a * b for a, b in zip(one, two, strict=True))
