"""All-pairs verification against this machine's own matrix multiplication, in one run.

    python benchmarks/all_pairs.py [--items 16384] [--d-model 512] [--quick]

For each layer: the seconds of its projections and of all scores by plain float64 `numpy.matmul`
into one buffer, block by block, with no comparison at all; the seconds of `recognition_report`, which
decides every pair rigorously; the speed of the second as a share of the first (the goal is 70 %), by the
clock and by processor time (steadier on a busy machine); and the peak memory of the check beside its
input. The graph is the layer's own: about m' pairs score above its
threshold. "tied" is the worst case for screening in float32: integer scores, many at the same distance.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from constructions import AttentionLayer, RelationTarget, relation_target
from constructions.recognition import recognition_report

BLOCK = 1 << 24


def plain(layer: AttentionLayer, x: np.ndarray) -> None:
    """All scores without a verdict, in float64."""
    rows = max(1, BLOCK // len(x))
    buffer = np.empty((rows, len(x)))
    for head in range(layer.heads):
        query, key = layer.projections(head, x, x)
        for low in range(0, len(x), rows):
            part = query[low : low + rows]
            np.matmul(part, key.T, out=buffer[: len(part)])


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def own_graph(layer: AttentionLayer, x: np.ndarray) -> RelationTarget:
    """The pairs that the layer recognises, as float64 scores have it."""
    found = []
    heads = [layer.projections(h, x, x) for h in range(layer.heads)]
    for low in range(0, len(x), 1024):
        best = np.max([query[low : low + 1024] @ key.T for query, key in heads], axis=0)
        found.append(np.argwhere(best > layer.threshold) + np.array([low, 0]))
    return relation_target(x, np.concatenate(found))


def random_layer(x: np.ndarray, key_dim: int, heads: int, share: float) -> AttentionLayer:
    rng = np.random.default_rng(key_dim)
    w = rng.standard_normal((2, heads, x.shape[1], key_dim)) / np.sqrt(key_dim)
    layer = AttentionLayer(w_q=list(w[0]), w_k=list(w[1]), threshold=0.0)
    sample = np.max([layer.scores(h, x[:256], x) for h in range(heads)], axis=0)
    tau = float(np.quantile(sample, 1 - share))
    return AttentionLayer(w_q=list(w[0]), w_k=list(w[1]), threshold=tau)


def measure(name: str, layer: AttentionLayer, x: np.ndarray, repeats: int) -> None:
    target = own_graph(layer, x)
    baseline, check, peak = [], [], 0
    for _ in range(repeats):
        baseline.append(timed(lambda: plain(layer, x)))
        tracemalloc.start()
        check.append(timed(lambda: verify_all(layer, target)))
        peak = tracemalloc.get_traced_memory()[1] >> 20
        tracemalloc.stop()
    wall, wall_check = min(t for t, _ in baseline), min(t for t, _ in check)
    share = min(t for _, t in baseline) / min(t for _, t in check)
    print(
        f"{name:<8}{layer.heads:>6}{layer.key_dims[0]:>6}{target.relations:>9}{wall:>10.2f}"
        f"{wall_check:>9.2f}{wall / wall_check:>8.0%}{share:>8.0%}{peak:>8}",
        flush=True,
    )


def verify_all(layer: AttentionLayer, target: RelationTarget) -> None:
    report = recognition_report(layer, target)
    assert report.wrong is None
    assert report.pairs == target.items**2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=16384)
    parser.add_argument("--d-model", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="m = 4096, a few seconds")
    options = parser.parse_args()
    m, d = (4096 if options.quick else options.items), options.d_model
    rng = np.random.default_rng(0)
    x = rng.standard_normal((m, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    print(f"m = {m}, d_model = {d}; best of {options.repeats}")
    print("scores   heads   d_k    edges  matmul s  check s   speed     CPU     MiB")
    for key_dim, heads in ((64, 4), (128, 2), (512, 1)):
        measure("random", random_layer(x, key_dim, heads, 1 / m), x, options.repeats)
    signs = np.where(x > 0, 1.0, -1.0)
    spread = [np.eye(d)[:, low : low + 128] for low in (0, 128)]
    tied = AttentionLayer(w_q=spread, w_k=spread, threshold=62.5)
    measure("tied", tied, signs, options.repeats)


if __name__ == "__main__":
    main()
