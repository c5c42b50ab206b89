r"""The largest key dimension that any result of part C asks for, with the others beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bounds.bound import Bound
from bounds.errors import ArgumentError
from bounds.graph_families import Family, GraphFamily, graph_family
from bounds.key_dimension import key_dimension_bits
from bounds.key_dimension_margin import key_dimension_margin, key_dimension_packing
from bounds.key_dimension_real import RealReadout, key_dimension_real


@dataclass(frozen=True, slots=True)
class KeyDimension:
    """The best lower bound for one model, and all that were tried.

    ``best``: the bound of the largest value (the first of ``candidates`` among equals).
    ``candidates``: what was computed, by name: ``"C2"`` (real weights), ``"C1"`` (bits), ``"C3"``
    (margin and weight norm), ``"C3 packing"`` (margin and key norm), each with its hypotheses.
    """

    best: Bound
    candidates: tuple[tuple[str, Bound], ...]

    @property
    def value(self) -> int:
        """The least total key dimension that no candidate excludes."""
        return _value(self.best)

    @property
    def winner(self) -> str:
        """The name of the candidate that is ``best``."""
        return next(name for name, bound in self.candidates if bound is self.best)

    def __str__(self) -> str:
        others = ", ".join(f"{name}: {bound.value_text()}" for name, bound in self.candidates)
        return f"{self.best} (of {others})"


def key_dimension(
    items: int,
    d_model: int,
    family: Family | GraphFamily = "permutation",
    *,
    relations: int | None = None,
    degree: int | None = None,
    edges: Iterable[tuple[int, int]] | None = None,
    bits: int | None = None,
    threshold_bits: int = 0,
    margin: object = None,
    weight_norm: object = None,
    key_norm: object = None,
    heads: int | None = None,
    biases: bool = False,
    readout: RealReadout = "max-threshold",
) -> KeyDimension:
    r"""The best lower bound on $D_K$ for layers that must realise every graph of a family.

    Real weights always obey C2; ``bits`` $b$ a weight add C1 (at ``threshold_bits`` of a stored
    threshold, and $d_{model} + 1$ rows of weights with ``biases``); a ``margin`` $\gamma$ adds C3
    with ``weight_norm`` $B$ and the packing bound with ``key_norm`` $R$. By default $R = B$ where
    there are no biases, and $R = 1$ when neither is given: unit queries and keys, as the bound's
    hypotheses then say. All conditions are taken to hold together. ``heads``: at most so many.
    Source: [attention-bounds, C2].

    >>> found = key_dimension(1024, 64, bits=8)
    >>> found.value, found.winner, dict(found.candidates)["C2"].value
    (9, 'C1', 4)
    >>> key_dimension(2**30, 512, margin="1/2").candidates[1][1].value
    19
    """
    graphs = graph_family(items, family, relations, degree=degree, edges=edges)
    if margin is None and (weight_norm is not None or key_norm is not None):
        name = "weight_norm" if weight_norm is not None else "key_norm"
        raise ArgumentError(name, weight_norm or key_norm, "absent without a margin")
    if margin is not None and weight_norm is None and key_norm is None:
        key_norm = 1  # a margin has a scale: that of unit queries and keys
    if margin is not None and readout != "max-threshold":
        raise ArgumentError("margin", margin, "absent for the readout 'row-argmax'")
    candidates = [
        (
            "C2",
            key_dimension_real(
                items, d_model, family=graphs, heads=heads, biases=biases, readout=readout
            ),
        )
    ]
    if bits is not None:
        bound = key_dimension_bits(
            items, d_model + biases, bits, family=graphs, threshold_bits=threshold_bits
        )
        candidates.append(("C1", replace(bound, model=replace(bound.model, readout=readout))))
    elif threshold_bits != 0:
        raise ArgumentError("threshold_bits", threshold_bits, "0 without bits")
    if weight_norm is not None:
        bound = key_dimension_margin(
            items, d_model, margin, weight_norm, family=graphs, biases=biases
        )
        candidates.append(("C3", bound))
    if margin is not None and (key_norm is not None or not biases):
        reach = weight_norm if key_norm is None else key_norm
        bound = key_dimension_packing(items, margin, reach, family=graphs)
        candidates.append(("C3 packing", bound))
    best = max((bound for _, bound in candidates), key=_value)
    return KeyDimension(best, tuple(candidates))


def _value(bound: Bound) -> int:
    assert isinstance(bound.value, int)
    return bound.value
