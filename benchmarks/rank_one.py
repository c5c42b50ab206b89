"""H6: time and peak memory of a rank-1 layer with its certified error, against a dense solve.

The baseline builds C in float64, solves C a = b with scipy's Cholesky, and evaluates the error in
floats, without a certificate. Each case runs in a process of its own, both in one run:

    python benchmarks/rank_one.py [--quick] [--dimension 16] [--heads 8192]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np
import scipy.linalg

from constructions.head_weights import target_overlaps
from constructions.rank_one import rank_one_layer
from verification.rank_one import rank_one_error

CASES = ("dense", "random", "symmetric", "optimized")


def measure(case: str, d: int, heads: int) -> dict[str, float | str]:
    """Seconds, peak resident memory of the process in MiB, and the error found."""
    start = time.perf_counter()
    error = _dense(d, heads) if case == "dense" else _ours(case, d, heads)
    seconds = time.perf_counter() - start
    unit = 1024 if sys.platform == "darwin" else 1  # bytes there, kilobytes on Linux
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit / 1024
    return {"case": case, "seconds": seconds, "MiB": peak, **error}


def _dense(d: int, heads: int) -> dict[str, float | str]:
    rng = np.random.default_rng(0)
    q, k = (
        u / np.linalg.norm(u, axis=1, keepdims=True) for u in rng.standard_normal((2, heads, d))
    )
    gram = 0.5 + 2 / np.pi**2 * np.arcsin(np.clip(q @ q.T, -1, 1)) * np.arcsin(
        np.clip(k @ k.T, -1, 1)
    )
    overlap = target_overlaps(d)(np.einsum("hi,hi->h", q, k))
    weights = scipy.linalg.solve(gram, overlap, assume_a="pos")
    return {"error": float(1 - 2 * overlap @ weights + weights @ gram @ weights), "radius": "none"}


def _ours(directions: str, d: int, heads: int) -> dict[str, float | str]:
    ball = rank_one_error(rank_one_layer(d, heads, directions=directions))  # type: ignore[arg-type]
    return {"error": float(ball), "radius": f"{float(ball.radius):.1e}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="d = 8, H = 1024 (a few seconds)")
    parser.add_argument("--dimension", type=int, default=16)
    parser.add_argument("--heads", type=int, default=1 << 13)
    parser.add_argument(
        "--skip-dense", action="store_true", help="for H past the memory of a dense C"
    )
    parser.add_argument("--case", choices=CASES, help="run one case in this process, print JSON")
    options = parser.parse_args()
    d, heads = (8, 1 << 10) if options.quick else (options.dimension, options.heads)
    if options.case:
        print(json.dumps(measure(options.case, d, heads)))
        return
    print(
        f"d = {d}, H = {heads}\n{'case':<10}{'seconds':>9}{'MiB':>8}{'x time':>8}{'x memory':>9}  error"
    )
    baseline: dict[str, float] = {}
    for case in CASES[options.skip_dense :]:
        arguments = ["--case", case, "--dimension", str(d), "--heads", str(heads)]
        run = subprocess.run(
            [sys.executable, __file__, *arguments], capture_output=True, text=True, check=True
        )
        row = json.loads(run.stdout)
        baseline = baseline or row
        ratios = [row[name] / baseline[name] for name in ("seconds", "MiB")]
        print(
            f"{case:<10}{row['seconds']:>9.2f}{row['MiB']:>8.0f}{ratios[0]:>8.2f}{ratios[1]:>9.2f}"
            f"  {row['error']:.10f} (radius {row['radius']})"
        )


if __name__ == "__main__":
    main()
