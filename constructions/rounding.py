"""Weights of few bits: what makes the count C1 apply to a layer that was built."""

from __future__ import annotations

import math

import numpy as np

from bounds.arithmetic import exact_integer
from bounds.errors import ArgumentError
from constructions.attention import AttentionLayer, FloatArray


def round_weights(layer: AttentionLayer, bits: int) -> AttentionLayer:
    r"""The layer with each weight of $W_Q, W_K$ (and biases) one of the $2^b$ values $k\,2^{1-b}$.

    Integers $-2^{b-1} \le k \lt 2^{b-1}$, so every weight lies in $[-1, 1)$. First the layer is scaled:
    all its weights by one factor and the threshold by its square, which leaves what it recognises
    as it is; the rounding may not, so the result has to be judged anew. ``bits`` $b \ge 2$, at most
    32. For layers that recognise pairs; the threshold stays a float64. Source: [attention-bounds, C1].

    >>> layer = AttentionLayer(w_q=[[[4.0]]], w_k=[[[1.0]]], threshold=2.0)
    >>> rounded = round_weights(layer, 4)
    >>> rounded.w_q[0].item(), rounded.w_k[0].item(), rounded.threshold
    (0.875, 0.25, 0.095703125)
    """
    bits = exact_integer(bits, "bits", 2, 32)
    if layer.threshold is None or layer.w_v:
        raise ArgumentError("layer", layer.method, "one that recognises pairs and routes no values")
    groups = {name: getattr(layer, name) for name in ("w_q", "w_k", "b_q", "b_k")}
    largest = max(float(np.abs(array).max()) for group in groups.values() for array in group)
    if largest == 0:
        raise ArgumentError("layer", layer.method, "one with a weight that is not zero")
    step = 2.0 ** (1 - bits)
    # a power of two first, so that no factor overflows or underflows
    mantissa, exponent = math.frexp(largest)
    factor = (1 - step) / mantissa
    try:
        threshold = math.ldexp(layer.threshold * factor**2, -2 * exponent)
    except OverflowError:
        raise ArgumentError("layer", layer.method, "one whose scaled threshold is finite") from None

    def rounded(array: FloatArray) -> FloatArray:
        scaled = np.ldexp(array, -exponent) * factor
        return np.clip(np.rint(scaled / step), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1) * step

    return AttentionLayer(
        w_q=[rounded(array) for array in groups["w_q"]],
        w_k=[rounded(array) for array in groups["w_k"]],
        b_q=[rounded(array) for array in groups["b_q"]],
        b_k=[rounded(array) for array in groups["b_k"]],
        threshold=threshold,
        method=f"{layer.method}, rounded to {bits} bits",
        seed=layer.seed,
    )
