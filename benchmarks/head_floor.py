"""Energies and head floors against what a researcher would write, in one run; prints ratios.

python benchmarks/head_floor.py [--quick]
"""

from __future__ import annotations

import argparse
import math
import timeit
from collections.abc import Callable
from itertools import islice

import numpy as np
from flint import arb
from scipy.integrate import quad
from scipy.special import gegenbauer

from bounds import NEAREST_NEIGHBOR, head_floor


def seconds(work: Callable[[], object], repeat: int, number: int = 1) -> float:
    """Seconds a run: the best of ``repeat`` loops of ``number`` runs."""
    return min(timeit.repeat(work, number=number, repeat=repeat)) / number


def energies_by_quadrature(d: int, degrees: list[int]) -> list[float]:
    """The plain way: scipy's quad of the sign against scipy.special.gegenbauer."""
    alpha = d / 2 - 1
    constant = math.exp(math.lgamma(d / 2) - math.lgamma((d - 1) / 2)) / math.sqrt(math.pi)
    energies = []
    for degree in degrees:
        polynomial = gegenbauer(degree, alpha)
        one = polynomial(1.0)
        value, _ = quad(
            lambda t, p=polynomial, one=one: 2 * p(t) / one * (1 - t * t) ** ((d - 3) / 2),
            0, 1, limit=200,
        )  # fmt: skip
        count = math.comb(degree + d - 1, degree) - (
            math.comb(degree + d - 3, degree - 2) if degree >= 2 else 0
        )
        energies.append(count * (constant * value) ** 2)
    return energies


def energies_here(d: int, last: int, bits: int) -> list[arb]:
    """Certified energies of the degrees 1..last."""
    return list(islice(NEAREST_NEIGHBOR.energies(d, bits), last))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick

    degrees = list(range(1, 30, 2))
    for d in (16, 80):
        plain = seconds(lambda d=d: energies_by_quadrature(d, degrees), 1 if quick else 3)
        ours = seconds(lambda d=d: energies_here(d, 29, 64), 20, 20)
        with np.errstate(all="ignore"):
            rough = energies_by_quadrature(d, degrees)
        exact = [float(e.mid()) for e in energies_here(d, 29, 64)[::2]]
        accuracy = max(float(e.rad() / e.mid()) for e in energies_here(d, 29, 64)[::2])
        off = max(abs(a - b) / b for a, b in zip(rough, exact, strict=True))
        print(
            f"15 odd degrees, d = {d}: quadrature / here = {plain / ours:.0f}x; "
            f"worst relative error: quadrature {off:.1e}, here certified {accuracy:.1e}"
        )

    last = 200 if quick else 1000
    took = seconds(lambda: energies_here(4096, last, 64), 3)
    print(f"energies to degree {last}, d = 4096: {1000 * took / last:.4f} ms a degree")

    grid = [
        (d, r, round(10 ** (step / 4) * (1 + tenth / 10)))
        for d in (8, 16, 32, 64, 128)
        for r in sorted({1, 2, d // 8 + 1, d // 4, d // 2, d - 3})
        for step in range(10 if quick else 60)
        for tenth in range(1 if quick else 6)
    ]
    took = seconds(lambda: [head_floor(d, r, heads, digits=10) for d, r, heads in grid], 1)
    print(f"head_floor, 10 certified digits, {len(grid)} points (d, r, H): {took:.1f} s")


if __name__ == "__main__":
    main()
