"""The layer against a reference that computes one entry at a time in exact or 60-digit numbers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bounds.errors import ArgumentError
from constructions import AttentionLayer

RIGHT = {"w_q": [np.eye(2)], "w_k": [np.eye(2)]}
SMALL = st.integers(-8, 8).map(lambda k: k / 4)


def exact(array: Any) -> list[list[Fraction]]:
    return [[Fraction(float(value)) for value in row] for row in np.atleast_2d(array)]


def product(rows: list[list[Fraction]], matrix: list[list[Fraction]]) -> list[list[Fraction]]:
    return [
        [
            sum((r * m[j] for r, m in zip(row, matrix, strict=True)), Fraction(0))
            for j in range(len(matrix[0]))
        ]
        for row in rows
    ]


def affine(rows: Any, weights: Any, bias: Any) -> list[list[Fraction]]:
    found = product(exact(rows), exact(weights))
    shift = [Fraction(0)] * len(found[0]) if bias is None else exact(bias)[0]
    return [[a + b for a, b in zip(row, shift, strict=True)] for row in found]


def reference(
    layer: AttentionLayer, queries: Any, context: Any, mask: Any = None
) -> list[list[mpmath.mpf]]:
    """The equations of the module, entry by entry: exact scores, softmax in 60 digits."""
    with mpmath.workdps(60):
        d_out = layer.w_o[0].shape[0]
        total = [[mpmath.mpf(0)] * d_out for _ in range(len(queries))]
        for h in range(layer.heads):
            q = affine(queries, layer.w_q[h], layer.b_q[h] if layer.b_q else None)
            k = affine(context, layer.w_k[h], layer.b_k[h] if layer.b_k else None)
            v = affine(context, layer.w_v[h], layer.b_v[h] if layer.b_v else None)
            o = product(v, [list(column) for column in zip(*exact(layer.w_o[h]), strict=True)])
            for i in range(len(queries)):
                seen = [j for j in range(len(k)) if mask is None or mask[i][j]]
                if not seen:
                    continue
                score = {j: sum(a * b for a, b in zip(q[i], k[j], strict=True)) for j in seen}
                top = max(score.values())
                if layer.kind == "hard":
                    share = {min(j for j in seen if score[j] == top): mpmath.mpf(1)}
                else:
                    scale = Fraction(layer.logit_scale)
                    logits = {j: scale * (score[j] - top) for j in seen}
                    share = {
                        j: mpmath.exp(mpmath.mpf(x.numerator) / x.denominator)
                        for j, x in logits.items()
                    }
                    whole = mpmath.fsum(share.values())
                    share = {j: x / whole for j, x in share.items()}
                for j, weight in share.items():
                    for c in range(d_out):
                        entry = mpmath.mpf(o[j][c].numerator) / o[j][c].denominator
                        total[i][c] += weight * entry
        return total


@st.composite
def layers(draw: Callable[..., Any]) -> AttentionLayer:
    d, heads, d_out = (draw(st.integers(1, 3)) for _ in range(3))
    sizes = [(draw(st.integers(1, 3)), draw(st.integers(1, 3))) for _ in range(heads)]

    def some(*shape: int) -> np.ndarray:
        return draw(arrays(np.float64, shape, elements=SMALL))

    given_biases = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    return AttentionLayer(
        w_q=[some(d, k) for k, _ in sizes],
        w_k=[some(d, k) for k, _ in sizes],
        w_v=[some(d, v) for _, v in sizes],
        w_o=[some(d_out, v) for _, v in sizes],
        b_q=[some(k) for k, _ in sizes] if given_biases[0] else (),
        b_k=[some(k) for k, _ in sizes] if given_biases[1] else (),
        b_v=[some(v) for _, v in sizes] if given_biases[2] else (),
        kind=draw(st.sampled_from(["hard", "soft"])),
        logit_scale=draw(st.sampled_from([1.0, 0.125, 3.0])),
    )


@given(layers(), st.integers(1, 3), st.integers(1, 4), st.data())
def test_equals_the_reference(layer: AttentionLayer, n: int, size: int, data: Any) -> None:
    """Quarters and small sizes make every score exact in float64: ties are real ties."""
    queries = data.draw(arrays(np.float64, (n, layer.d_model), elements=SMALL))
    context = data.draw(arrays(np.float64, (size, layer.d_model), elements=SMALL))
    mask = data.draw(st.none() | arrays(bool, (n, size)))
    got = layer.attend(queries, context, mask)
    wanted = np.array(reference(layer, queries, context, mask), dtype=np.float64)
    assert got.shape == wanted.shape
    if layer.kind == "hard":
        np.testing.assert_array_equal(got, wanted)
    else:
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def test_scores_and_recognition_equal_the_reference() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (6, 3)) / 2
    layer = AttentionLayer(
        w_q=[rng.integers(-4, 5, (3, 2)), rng.integers(-4, 5, (3, 1))],
        w_k=[rng.integers(-4, 5, (3, 2)), rng.integers(-4, 5, (3, 1))],
        b_q=[[1, -1], [2]],
        b_k=[[0, 1], [-2]],
        threshold=3,
    )
    recognized = np.zeros((6, 6), dtype=bool)
    for h in range(2):
        q = affine(x, layer.w_q[h], layer.b_q[h])
        k = affine(x, layer.w_k[h], layer.b_k[h])
        scores = [[sum(a * b for a, b in zip(u, v, strict=True)) for v in k] for u in q]
        np.testing.assert_array_equal(layer.scores(h, x, x), np.array(scores, dtype=np.float64))
        recognized |= np.array(scores) > 3
    np.testing.assert_array_equal(layer.recognize(x), recognized)
    assert recognized.any()
    assert not recognized.all()
    assert (layer.key_dims, layer.key_dimension, layer.parameters) == ((2, 1), 3, 25)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]])
def test_hard_ties_go_to_the_smallest_index(order: list[int]) -> None:
    points = np.array([[1.0, 0.0], [1.0, 5.0], [0.0, 3.0], [1.0, -2.0]])[order]
    layer = AttentionLayer(**RIGHT)
    weights = layer.attention(0, [[1.0, 0.0]], points)
    first = next(i for i in range(4) if points[i, 0] == 1.0)
    np.testing.assert_array_equal(weights, np.eye(4)[[first]])
    assert layer.attention(0, [[0.0, 0.0]], points).argmax() == 0


SIZES = st.sampled_from([1e-300, 1e-200, 1e-100, 1e-9, 1.0, 1e9, 1e100, 1e200, 1e300])


@given(st.integers(0, 2**32), SIZES, SIZES, SIZES)
def test_softmax_at_any_scale(seed: int, scale: float, size: float, other: float) -> None:
    """No nan, no overflow, and the right weights for logits from 1e-900 to 1e900."""
    rng = np.random.default_rng(seed)
    queries, context = size * rng.uniform(-1, 1, (3, 2)), other * rng.uniform(-1, 1, (5, 2))
    context[3] = context[1]
    layer = AttentionLayer(**RIGHT, kind="soft", logit_scale=scale)
    weights = layer.attention(0, queries, context)
    with mpmath.workdps(80):
        for i in range(3):
            logits = [
                mpmath.mpf(scale)
                * mpmath.fdot(
                    zip(map(mpmath.mpf, queries[i]), map(mpmath.mpf, context[j]), strict=True)
                )
                for j in range(5)
            ]
            gaps = sorted(max(logits) - logit for logit in logits)
            error = 1e-14 * max(1, max(abs(logit) for logit in logits))  # of float scores
            if error > 1e-3 and gaps[2] < 2 * error:
                continue
            shares = [mpmath.exp(logit - max(logits)) for logit in logits]
            wanted = [float(share / mpmath.fsum(shares)) for share in shares]
            np.testing.assert_allclose(weights[i], wanted, atol=1e-9 + 2 * min(float(error), 1e-2))
    np.testing.assert_array_equal(weights[:, 3], weights[:, 1])
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-14)


def test_exact_softmax_values_at_extreme_scales() -> None:
    """Two keys 1 and 0: the share of the first is the logistic of the logit, at any split of it."""
    for size, other, scale in [
        (1e-300, 1e300, 2.0),
        (1e200, 1e-100, 2e-100),
        (1e-200, 1e-100, 2e300),
        (1e300, 1.0, 2e-300),
        (5e-324, 1e300, 2e23),
    ]:
        layer = AttentionLayer(w_q=[[[1.0]]], w_k=[[[1.0]]], kind="soft", logit_scale=scale)
        logit = mpmath.mpf(size) * mpmath.mpf(other) * mpmath.mpf(scale)
        wanted = float(1 / (1 + mpmath.exp(-logit)))
        got = layer.attention(0, [[size]], [[other], [0.0]])
        assert got[0, 0] == pytest.approx(wanted, rel=1e-14)
        assert got[0, 1] == pytest.approx(1 - wanted, rel=1e-12)


def test_hard_selection_among_keys_of_very_different_sizes() -> None:
    """Found by scaling all keys by the largest: small keys must not underflow to ties."""
    layer = AttentionLayer(w_q=[[[1.0]]], w_k=[[[1.0]]])
    keys = [[-1e200], [1e-200], [2e-200]]
    assert layer.attention(0, [[1.0]], keys).argmax() == 2
    assert layer.attention(0, [[1e-200]], keys).argmax() == 2
    assert layer.attention(0, [[-1e-200]], keys).argmax() == 0


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_a_masked_row_is_zero_and_masked_tokens_do_not_count(kind: Any) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    layer = AttentionLayer(
        w_q=[np.eye(3)],
        w_k=[np.eye(3)],
        w_v=[np.eye(3)],
        w_o=[np.eye(3)],
        b_v=[[1.0, 2.0, 3.0]],
        kind=kind,
        logit_scale=2.0,
    )
    mask = np.ones((4, 5), dtype=bool)
    mask[1] = False
    mask[2] = [True, False, True, False, False]
    got = layer.attend(y, x, mask)
    np.testing.assert_array_equal(got[1], np.zeros(3))
    np.testing.assert_allclose(got[2], layer.attend(y[2:3], x[[0, 2]])[0], rtol=1e-14)
    np.testing.assert_allclose(got[3], layer.attend(y, x)[3], rtol=1e-14)
    weights = layer.attention(0, y, x, mask)
    assert (weights[~mask] == 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), [1, 0, 1, 1], rtol=1e-14)


@given(st.integers(0, 2**32), st.sampled_from(["hard", "soft"]))
def test_rotations_and_permutations(seed: int, kind: Any) -> None:
    rng = np.random.default_rng(seed)
    d, d_k, d_v, size, n = 4, 3, 2, 6, 3
    w = {"w_q": (d, d_k), "w_k": (d, d_k), "w_v": (d, d_v), "w_o": (d, d_v)}
    weights = {name: [rng.standard_normal(shape) for _ in range(2)] for name, shape in w.items()}
    x, y = rng.standard_normal((size, d)), rng.standard_normal((n, d))
    layer = AttentionLayer(**weights, kind=kind, logit_scale=1.5)
    got = layer.attend(y, x)
    turn, _ = np.linalg.qr(rng.standard_normal((d, d)))
    turned = AttentionLayer(
        **{name: [turn @ array for array in group] for name, group in weights.items()},
        kind=kind,
        logit_scale=1.5,
    )
    np.testing.assert_allclose(turned.attend(y @ turn.T, x @ turn.T), got @ turn.T, atol=1e-10)
    order = rng.permutation(size)
    np.testing.assert_allclose(layer.attend(y, x[order]), got, atol=1e-10)
    for h in range(2):
        np.testing.assert_allclose(
            layer.attention(h, y, x[order]), layer.attention(h, y, x)[:, order], atol=1e-12
        )
    order = rng.permutation(n)
    np.testing.assert_allclose(layer.attend(y[order], x), got[order], atol=1e-10)


def test_arrays_are_copied_and_read_only() -> None:
    mine = np.eye(2)
    layer = AttentionLayer(w_q=[mine], w_k=[np.eye(2, dtype=np.float32)])
    mine[0, 0] = 7.0
    assert layer.w_q[0][0, 0] == 1.0
    assert layer.w_k[0].dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        layer.w_q[0][0, 0] = 2.0
    with pytest.raises(AttributeError):
        layer.kind = "soft"  # type: ignore[misc]
    tokens = np.eye(2)
    tokens.setflags(write=False)
    np.testing.assert_array_equal(layer.scores(0, tokens, tokens), np.eye(2))
    np.testing.assert_array_equal(layer.scores(0, tokens[::-1].T, tokens), tokens[::-1].T)


BAD_ARRAYS: dict[str, tuple[Any, str]] = {
    "nan": ([[1.0, np.nan], [0.0, 1.0]], r"w_q\[0\]\[0, 1\] = nan"),
    "inf": ([[1.0, 0.0], [-np.inf, 1.0]], r"w_q\[0\]\[1, 0\] = -inf"),
    "complex": (np.eye(2) * 1j, "real dtype"),
    "object": (np.array([[1, None], [0, 1]]), "real dtype"),
    "text": ([["1", "0"], ["0", "1"]], "real dtype"),
    "dates": (np.zeros((2, 2), dtype="M8[s]"), "real dtype"),
    "ragged": ([[1.0], [0.0, 1.0]], "rectangular"),
    "wide floats": (np.eye(2, dtype=np.longdouble), "at most 64 bits"),
    "large integers": ([[2**53 + 1, 0], [0, 1]], r"2\*\*53"),
    "least integer": (np.array([[-(2**63), 0], [0, 1]]), r"2\*\*53"),
    "one axis": ([1.0, 0.0], "2 axes"),
    "three axes": (np.ones((1, 2, 2)), "2 axes"),
    "other width": (np.ones((2, 3)), r"w_k\[0\]"),
    "other height": (np.ones((3, 2)), r"w_k\[0\]"),
    "no columns": (np.ones((2, 0)), r"w_[qk]\[0\]"),
    "no rows": (np.ones((0, 2)), r"w_[qk]\[0\]"),
}


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_bad_weights_are_refused_by_name(name: str) -> None:
    value, message = BAD_ARRAYS[name]
    with pytest.raises(ArgumentError, match=message):
        AttentionLayer(w_q=[value], w_k=[np.eye(2)])


I2 = np.eye(2)
BAD_LAYERS: dict[str, tuple[dict[str, Any], str]] = {
    "no heads": ({"w_q": [], "w_k": []}, "w_q"),
    "heads differ": ({"w_k": [I2, I2]}, "w_k"),
    "no w_o": ({"w_v": [I2]}, "w_o"),
    "w_o alone": ({"w_o": [I2]}, "w_o"),
    "b_v alone": ({"b_v": [[1.0, 2.0]]}, "b_v"),
    "w_o shape": ({"w_v": [I2], "w_o": [np.ones((2, 3))]}, r"w_o\[0\]"),
    "w_v shape": ({"w_v": [np.ones((3, 2))], "w_o": [I2]}, r"w_v\[0\]"),
    "empty values": ({"w_v": [np.ones((2, 0))], "w_o": [np.ones((2, 0))]}, r"w_v\[0\]"),
    "bias shape": ({"b_q": [[1.0]]}, r"b_q\[0\]"),
    "bias axes": ({"b_k": [[[1.0, 2.0]]]}, r"b_k\[0\]"),
    "one bias": ({"w_q": [I2, I2], "w_k": [I2, I2], "b_q": [[1.0, 2.0]]}, "b_q"),
    "d_out differs": (
        {"w_q": [I2, I2], "w_k": [I2, I2], "w_v": [I2, I2], "w_o": [I2, np.ones((3, 2))]},
        r"w_o\[1\]",
    ),
    "kind": ({"kind": "medium"}, "kind"),
    **{
        f"logit_scale {value!r}": ({"logit_scale": value}, "logit_scale")
        for value in (0.0, -1.0, np.nan, np.inf, 1j, None, True, 10**400, "wide")
    },
    **{
        f"threshold {value!r}": ({"threshold": value}, "threshold")
        for value in (np.nan, -np.inf, 1j, "low", 10**400)
    },
    "seed": ({"seed": 1.5}, "seed"),
    "method": ({"method": 3}, "method"),
}


@pytest.mark.parametrize("name", BAD_LAYERS)
def test_bad_layers_are_refused_by_name(name: str) -> None:
    arguments, message = BAD_LAYERS[name]
    with pytest.raises(ArgumentError, match=message):
        AttentionLayer(**(RIGHT | arguments))


BAD_TOKENS: dict[str, tuple[Any, str]] = {
    "empty": (np.ones((0, 2)), "at least 1"),
    "wide": (np.ones((1, 3)), "at least 1, 2"),
    "flat": ([1.0, 2.0], "2 axes"),
    "nan": ([[np.nan, 0.0]], "nan"),
    "ragged": ([[1.0], [1.0, 2.0]], "rectangular"),
    "complex": ([[1j, 0]], "real dtype"),
}


@pytest.mark.parametrize("name", BAD_TOKENS)
@pytest.mark.parametrize("side", ["queries", "context"])
def test_bad_tokens_are_refused_by_name(name: str, side: str) -> None:
    layer = AttentionLayer(**RIGHT, w_v=[I2], w_o=[I2])
    value, message = BAD_TOKENS[name]
    arguments = {"queries": I2, "context": I2} | {side: value}
    for call in (
        layer.attend,
        lambda **a: layer.scores(0, **a),
        lambda **a: layer.attention(0, **a),
    ):
        with pytest.raises(ArgumentError, match=message) as failure:
            call(**arguments)
        assert str(failure.value).startswith(side)


@pytest.mark.parametrize("mask", [np.ones((2, 2)), np.ones((2, 3), dtype=bool), [True, False], 1])
def test_bad_masks(mask: Any) -> None:
    with pytest.raises(ArgumentError, match="mask"):
        AttentionLayer(**RIGHT).attention(0, I2, I2, mask)


def test_overflow_and_missing_parts_are_errors() -> None:
    big = [[1e200, 1e200]]
    layer = AttentionLayer(w_q=[1e200 * I2], w_k=[I2], w_v=[1e200 * I2], w_o=[I2], threshold=0.0)
    with pytest.raises(OverflowError, match="queries"):
        layer.attention(0, big, I2)
    with pytest.raises(OverflowError, match="values"):
        layer.attend(I2, big)
    with pytest.raises(OverflowError, match="scores"):
        layer.scores(0, I2, big)
    with pytest.raises(OverflowError, match="scores"):
        layer.recognize(big)
    with pytest.raises(ArgumentError, match="values"):
        AttentionLayer(**RIGHT).attend(I2, I2)
    with pytest.raises(ArgumentError, match="threshold"):
        AttentionLayer(**RIGHT).recognize(I2)
