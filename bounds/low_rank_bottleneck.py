r"""The low-rank bottleneck: which attention matrices a softmax head of small dimension can have.

In columns: a context $X \in \mathbb R^{d_{model}\times n}$ of full column rank, a positive
column-stochastic $P \in \mathbb R^{n \times n}$, and
$\mathrm{softmax}(X^\top W_K^\top W_Q X/\sqrt{d_k}) = P$ wanted. [Bhojanapalli2020, Theorem 1] has
$d_k \ge n$; the sharp threshold is $n - 1$, since softmax ignores a shift of each column. The head
is :func:`constructions.stochastic_matrix.stochastic_head`; proofs: docs/related-results.md.
"""

from __future__ import annotations

from fractions import Fraction

import sympy
from flint import arb

from bounds.arithmetic import exact_integer, exact_rational, precision, to_arb
from bounds.bound import Bound
from bounds.errors import ArgumentError
from bounds.model import Model

SOURCE = "[attention-bounds, R1]"

_n, _dk = sympy.symbols("n d_k", integer=True, positive=True)

FractionMatrix = tuple[tuple[Fraction, ...], ...]

WITNESS: tuple[FractionMatrix, FractionMatrix] = (
    ((Fraction(1), Fraction(0)),),
    ((Fraction(1, 2), Fraction(3, 4)), (Fraction(1, 2), Fraction(1, 4))),
)
"""$X$ with $d_{model} = 1 < n = 2$, and $P$ that no head attains: the zero token scores all alike."""


def bottleneck_dimension(context: int) -> Bound:
    r"""The least $d_k$ with which one softmax head has every positive stochastic matrix: $n - 1$.

    For every $X$ of full column rank ($d_{model} \ge n$) and every positive column-stochastic $P$
    there are weights with $d_k = n - 1$; the matrix of :func:`hardest_matrix` has none with fewer,
    whatever the embeddings. ``context`` $n \ge 1$. Source: [attention-bounds, R1].

    >>> bottleneck_dimension(16).value
    15
    """
    n = exact_integer(context, "context", 1)
    return _bound(
        n,
        n - 1,
        "exact",
        "the head dimension with which softmax attention has every positive stochastic matrix on "
        f"{n} independent tokens is {{value}}",
        sympy.Eq(_dk, _n - 1),
        SOURCE,
    )


def bottleneck_theorem(context: int) -> Bound:
    r"""The sufficient dimension $d_k = n$ as published; one more than is needed.

    Source: [Bhojanapalli2020, Theorem 1].

    >>> bottleneck_theorem(16).value
    16
    """
    n = exact_integer(context, "context", 1)
    return _bound(
        n,
        n,
        "upper",
        f"on {n} independent tokens softmax attention of head dimension {{value}} has every "
        "positive stochastic matrix",
        sympy.Ge(_dk, _n),
        "[Bhojanapalli2020, Theorem 1]",
    )


def hardest_matrix(context: int) -> FractionMatrix:
    r"""$P = (I + \mathbf 1\mathbf 1^\top)/(n+1)$: a head that has it needs $d_k \ge n - 1$.

    $\Pi\log P = \ln2\;\Pi$, of rank $n - 1$, where $\Pi = I - \mathbf 1\mathbf 1^\top/n$.
    Source: [attention-bounds, R1].
    """
    n = exact_integer(context, "context", 1)
    return tuple(tuple(Fraction(1 + (i == j), n + 1) for j in range(n)) for i in range(n))


def stochastic_matrix_dimension(matrix: object, *, bits: int = 256) -> Bound:
    r"""A certified lower bound for the $d_k$ of a softmax head with this attention matrix.

    $d_k \ge \mathrm{rank}(\Pi\log P)$, whatever the embeddings and weights: the rank that
    elimination in ``bits``-bit balls is sure of. ``matrix``: rows of a positive column-stochastic
    matrix of exact numbers (sums exactly 1). Source: [attention-bounds, R1].

    >>> stochastic_matrix_dimension([["1/2", "3/4"], ["1/2", "1/4"]]).value
    1
    """
    rows = _stochastic(matrix)
    n = len(rows)
    with precision(exact_integer(bits, "bits", 64)):
        logs = [[to_arb(value).log() for value in row] for row in rows]
        means = [sum((row[j] for row in logs), arb(0)) / n for j in range(n)]
        value = _certain_rank([[row[j] - means[j] for j in range(n)] for row in logs])
    return Bound(
        quantity="head dimension",
        value=value,
        kind="lower",
        status="certified" if value else "vacuous",
        sentence=f"a softmax head with this attention matrix of {n} tokens has dimension at least "
        "{value}",
        statement=sympy.Ge(_dk, sympy.Symbol("rank(Pi log P)", integer=True, nonnegative=True)),
        hypotheses=("one softmax head, its scores bilinear",),
        model=_model("free"),
        source=SOURCE,
        parameters={"tokens": n},
    )


def _certain_rank(rows: list[list[arb]]) -> int:
    """How many pivots of an elimination with full pivoting are certainly not zero."""
    rank = 0
    while rows and rows[0]:
        _, i, j = max(
            (float(abs(value).lower()), i, j)
            for i, row in enumerate(rows)
            for j, value in enumerate(row)
        )
        pivot = rows[i]
        if pivot[j].contains(0):
            return rank
        rank += 1
        rows = [
            [value - row[j] / pivot[j] * pivot[k] for k, value in enumerate(row) if k != j]
            for index, row in enumerate(rows)
            if index != i
        ]
    return rank


def _stochastic(matrix: object) -> FractionMatrix:
    allowed = "a square matrix of positive numbers whose columns sum to 1"
    try:
        rows = tuple(tuple(exact_rational(value, "matrix") for value in row) for row in matrix)  # type: ignore[attr-defined]
    except TypeError:
        raise ArgumentError("matrix", matrix, allowed) from None
    if not rows or any(len(row) != len(rows) for row in rows) or min(map(min, rows)) <= 0:
        raise ArgumentError("matrix", matrix, allowed)
    if any(sum(column) != 1 for column in zip(*rows, strict=True)):
        raise ArgumentError("matrix", matrix, allowed)
    return rows


def _bound(
    n: int, value: int, kind: object, sentence: str, statement: sympy.Basic, source: str
) -> Bound:
    return Bound(
        quantity="head dimension",
        value=value,
        kind=kind,  # type: ignore[arg-type]
        status="proved",
        sentence=sentence,
        statement=statement,
        hypotheses=(
            f"{n} tokens of full rank (d_model >= {n}), fixed before the matrix",
            "one softmax head with real weights, no biases",
        ),
        model=_model("fixed"),
        source=source,
        parameters={"tokens": n},
    )


def _model(embeddings: object) -> Model:
    return Model(
        task="relations",
        attention="soft",
        readout="sum",
        embeddings=embeddings,  # type: ignore[arg-type]
    )
