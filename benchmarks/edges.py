"""A million relations: reading, checking and colouring them, beside the plain tools in one run.

    python benchmarks/edges.py [--relations 1000000] [--quick]

Reading: seconds of `read_edges`, which checks every row, beside the seconds of `numpy.load`,
`numpy.loadtxt` and a loop over `csv.reader` that checks nothing (and looks up no token).
`relation_target` sorts the relations and refuses duplicates. Colouring: seconds of `edge_coloring`
and of `matchings` (the same and all classes made equal), then the parts of at most n relations that
cutting the classes of `edge_coloring` leaves, and those of `matchings`, which are as few as can be.
All seconds are of the processor.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from constructions import edge_coloring, relation_target
from constructions.edge_coloring import matchings
from verification.reading import read_edges

T = TypeVar("T")


def timed(work: Callable[..., T], *given: object) -> tuple[float, T]:
    start = time.process_time()
    found = work(*given)
    return time.process_time() - start, found


def uniform(rng: np.random.Generator, items: int, count: int) -> np.ndarray:
    cells = rng.choice(items * items, count, replace=False)
    return np.stack(np.divmod(cells, items), axis=1)


def skewed(rng: np.random.Generator, items: int, count: int) -> np.ndarray:
    """Sources by a power law: one has a large share of all relations."""
    sources = np.minimum((3 * rng.pareto(1.0, 2 * count)).astype(np.int64), items - 1)
    cells = np.unique(sources * items + rng.integers(0, items, 2 * count))
    return np.stack(np.divmod(rng.permutation(cells)[:count], items), axis=1)


def plain(path: Path, delimiter: str) -> int:
    with path.open(newline="") as file:
        return sum(1 for _ in csv.reader(file, delimiter=delimiter))


def reading(rng: np.random.Generator, items: int, count: int, folder: Path) -> None:
    edges = uniform(rng, items, count)
    words = [f"token {i:x}" for i in range(items)]
    np.save(folder / "edges.npy", edges)
    for name, delimiter, cells in (
        ("index.csv", ",", range(items)),
        ("index.tsv", "\t", range(items)),
        ("token.csv", ",", words),
    ):
        rows = (f"{cells[i]}{delimiter}{cells[j]}\n" for i, j in edges.tolist())
        (folder / name).write_text("source" + delimiter + "target\n" + "".join(rows))
    print(
        f"{count} relations of {items} items\nfile          MB  read_edges    plain tool     ratio"
    )
    baselines: list[tuple[str, str, Callable[[Path], object]]] = [
        ("edges.npy", "numpy.load", np.load),
        ("index.csv", "loadtxt", lambda p: np.loadtxt(p, np.int64, delimiter=",", skiprows=1)),
        ("index.csv", "csv", lambda p: plain(p, ",")),
        ("index.tsv", "csv", lambda p: plain(p, "\t")),
        ("token.csv", "csv", lambda p: plain(p, ",")),
    ]
    for name, tool, baseline in baselines:
        path = folder / name
        names = words if name.startswith("token") else None
        base, _ = timed(baseline, path)
        seconds, found = timed(read_edges, path, items, names)
        assert np.array_equal(found.edges, edges if path.suffix != ".npy" else ordered(edges))
        print(
            f"{name:<10}{path.stat().st_size / 1e6:>6.1f}{seconds:>12.2f}{base:>7.2f} "
            f"{tool:<10}{seconds / base:>6.1f}",
            flush=True,
        )
    points = np.ones((items, 1))
    seconds, _ = timed(relation_target, points, edges)
    print(f"relation_target {seconds:>12.2f}")


def ordered(edges: np.ndarray) -> np.ndarray:
    return edges[np.lexsort((edges[:, 1], edges[:, 0]))]


def coloring(name: str, edges: np.ndarray) -> None:
    degree = int(max(np.bincount(edges[:, side]).max() for side in (0, 1)))
    limit = max(1, 2 * len(edges) // (3 * degree))
    colored, colors = timed(edge_coloring, edges)
    sizes = np.bincount(colors)
    equal, _ = timed(matchings, edges)
    limited, parts = timed(matchings, edges, limit)
    cut = int((-(-sizes // limit)).sum())
    print(
        f"{name:<20}{degree:>7}{colored:>7.1f} {f'{sizes.min()}..{sizes.max()}':>14}{equal:>7.1f}"
        f"{limit:>8}{cut:>8}{len(parts):>8}{limited:>7.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--relations", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="100,000 relations, a few seconds")
    options = parser.parse_args()
    count = 100_000 if options.quick else options.relations
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        reading(rng, 100_000, count, Path(folder))
    print(
        "\ngraph                 Delta  color   class sizes  equal       n     cut   parts      s"
    )
    for items in (16_384, 100_000, 2_000):
        coloring(f"uniform, m = {items}", uniform(rng, items, count))
    coloring("hub, m = 100000", skewed(rng, 100_000, count))


if __name__ == "__main__":
    main()
