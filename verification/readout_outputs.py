r"""Outputs of a layer that names neighbours, in float64 with their errors, and in ball arithmetic.

Coordinate $j$ of the output at item $i$ is $z_{ij} = \sum_h\sum_la^h_{il}u_{lj}$ with
$u_{lj} = \langle x_l, r_j\rangle$ and attention $a$. With exact routing it would be the sum of
$u_{lj}$ over the neighbours that are present; it is off by at most
$\sum_{l\in N(i)}(1-a_{il})|u_{lj}| + q_i\max_l|u_{lj}|$, where $q_i$ is the attention to other items,
both certified by :func:`verification.leakage.attention_off_sum`.

Rounding: $\hat u$ from float64 is within $\gamma_d\|x_l\|\|r_j\|$ of $u$ in any order of summation,
so with $n$ neighbours a sum is within $2\gamma_{d+n+8}\|r_j\|\sum_{l\in N(i)}\|x_l\|$;
$\gamma_n = nu/(1-nu)$, $u = 2^{-53}$ [Higham2002, Section 3.1]. The page is docs/C6-identities.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb

from bounds.arithmetic import certify, to_arb
from bounds.errors import ArgumentError, UndecidedError
from constructions.attention import AttentionLayer, FloatArray
from constructions.identity_readout import IdentityLayer
from constructions.neighbor_sums import NeighborSums
from constructions.recognition import rounding_factor
from constructions.relations import IntArray, RelationTarget
from constructions.screening import row_norms
from verification.exact_forward import ExactLayer, exact_matrix
from verification.leakage import attention_off_sum

COLUMNS = 256
"""Candidates judged at once."""

_UNIT = 2.0**-53
_EXACT_WORK = 1_000_000
_UP = 1 + 2.0**-40


@dataclass(frozen=True)
class Block:
    r"""Some candidates: ``cross`` (m, columns) is $u_{lj}$, ``error`` (rows, columns) bounds how far

    the sums of $u_{lj}$ over a row's neighbours, in float64, are from the outputs: ``shift`` by
    attention that is off, ``slack`` by rounding.
    """

    candidates: IntArray
    cross: FloatArray
    shift: FloatArray
    slack: FloatArray

    @property
    def error(self) -> FloatArray:
        """Both errors."""
        return self.shift + self.slack


class OutputErrors:
    """Rows of one context, or with ``None`` of all contexts at once, and their errors."""

    def __init__(
        self, identity: IdentityLayer, target: RelationTarget, items: IntArray | None
    ) -> None:
        self.identity, self.target = identity, target
        missing, self.stray = attention_off_sum(identity.routing, target, items)
        self.rows = np.arange(target.items) if items is None else items
        self.inside = np.isin(target.edges, self.rows).all(axis=1)
        self.graph = NeighborSums(target.edges, target.items)
        self.present = self.graph.matrix(np.where(self.inside, 1.0, 0.0))
        self.missing = self.graph.matrix(missing)

    def place(self) -> IntArray:
        """The row of each item, -1 for items without one."""
        place = np.full(self.target.items, -1)
        place[self.rows] = np.arange(len(self.rows))
        return place

    def blocks(self) -> Iterator[Block]:
        """All candidates, some at a time."""
        x, readout = self.target.embeddings, self.identity.readout
        m, d = x.shape
        sizes, lengths = upper_norms(x), upper_norms(readout)
        near = (self.present @ sizes)[self.rows]
        astray = (self.missing @ sizes)[self.rows] + self.stray * sizes.max()
        gamma = 2 * rounding_factor(d + int(np.bincount(self.target.edges[:, 0]).max()) + 8)
        theta = self.identity.threshold
        # the comparison with the threshold, if there is one, and underflow
        fixed = (8 * _UNIT * abs(theta) if np.isfinite(theta) else 0.0) + lost_to_underflow(d, m)
        for start in range(0, m, COLUMNS):
            part = np.arange(start, min(start + COLUMNS, m))
            cross = cross_products(x, readout[part])
            reached = np.abs(cross[self.rows]).max(axis=0)
            shift = (self.missing @ np.abs(cross))[self.rows] + np.outer(self.stray, reached)
            shift = (shift + gamma * np.outer(astray, lengths[part])) * _UP
            yield Block(part, cross, shift, gamma * np.outer(near, lengths[part]) + fixed)


def exact_output(
    identity: IdentityLayer,
    target: RelationTarget,
    row: int,
    candidates: Sequence[int],
    context: IntArray,
) -> arb | None:
    """One output minus the threshold, or the first of two minus the second: a ball that has a sign.

    ``None`` where that costs too much, or more than 4096 bits. A ball that is exactly 0 has a sign.
    """
    layer = identity.layer
    if len(context) * layer.d_model * layer.key_dimension > _EXACT_WORK:
        return None
    tokens = identity.routing.tokens(target.embeddings)
    vectors = np.append(
        identity.readout[list(candidates)].T, np.zeros((1, len(candidates))), axis=0
    )
    exact = ExactLayer(
        AttentionLayer(
            w_q=layer.w_q,
            w_k=layer.w_k,
            b_q=layer.b_q,
            b_k=layer.b_k,
            w_v=[vectors] * layer.heads,
            w_o=[np.array([[1.0, -1.0][: len(candidates)]])] * layer.heads,
            kind="soft",
            logit_scale=layer.logit_scale,
        )
    )
    points = exact_matrix(np.append(tokens[context], tokens[-1:], axis=0))
    query = exact_matrix(tokens[row : row + 1])
    level = Fraction(identity.threshold) if len(candidates) == 1 else Fraction(0)

    def attempt(_: int) -> arb | None:
        above = exact.output(points, query)[0, 0] - to_arb(level)
        return above if above > 0 or above <= 0 else None

    try:
        return certify(attempt, "the output", limit=1 << 12)
    except UndecidedError:
        return None


def check_identity_layer(identity: IdentityLayer, target: RelationTarget) -> None:
    """An ``ArgumentError`` unless the layer is a routing layer with one readout for the target's items."""
    layer = identity.layer
    shape = (target.items, target.embeddings.shape[1])
    if layer.kind != "soft" or not layer.w_v or layer.b_v:
        raise ArgumentError("identity", layer.method, "a layer of soft heads with values, no b_v")
    if layer.d_model != shape[1] + 1:
        raise ArgumentError("embeddings", shape, f"of width {layer.d_model - 1}")
    if not all(np.array_equal(w, np.eye(shape[1] + 1, shape[1])) for w in layer.w_v):
        raise ArgumentError("w_v", layer.method, "the items themselves, in every head")
    if identity.readout.shape != shape:
        raise ArgumentError("readout", identity.readout.shape, f"of shape {shape}")
    if not all(np.array_equal(w, identity.readout) for w in layer.w_o):
        raise ArgumentError("w_o", layer.method, "one readout for all heads")


def upper_norms(rows: FloatArray) -> FloatArray:
    """Norms of the rows, rounded up, or an ``OverflowError``."""
    with np.errstate(over="ignore"):
        return _finite(row_norms(np.abs(rows)) * (1 + (rows.shape[1] + 8) * 2.0**-52))


def lost_to_underflow(d: int, m: int) -> float:
    """More than underflow loses in so many products."""
    return 4.0 * (d + 1) * (m + 8) * 2.0**-1022


def cross_products(embeddings: FloatArray, vectors: FloatArray) -> FloatArray:
    r"""$\langle x_l, r_j\rangle$ in float64, or an ``OverflowError``."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _finite(embeddings @ vectors.T)


def _finite(array: FloatArray) -> FloatArray:
    if not np.isfinite(array).all():
        raise OverflowError(
            "the outputs overflow float64: scale the embeddings or the readout down"
        )
    return array
