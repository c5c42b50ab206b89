r"""What both versions of the capacity paper claim, as data: with the version, without numbers.

Recorded from public abstracts [Adler2025]. No constant is published in what this package has seen,
so that none is given; a claim is never reported as a bound. What is proved here stands in
:mod:`bounds.key_dimension`, :mod:`bounds.key_dimension_real`, :mod:`bounds.key_dimension_margin`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bounds.errors import ArgumentError

Version = Literal["v1", "current"]
ClaimKind = Literal["lower bound", "upper bound", "matching bounds", "experiment"]

TITLES: dict[Version, str] = {
    "v1": "On the Capacity of Self-Attention",
    "current": "A Capacity-Based Rationale for Multi-Head Attention",
}


@dataclass(frozen=True, slots=True)
class CapacityClaim:
    """A claim of one version: what it says, in which setting, and what it leaves open.

    ``nearest``: this package's result of the same kind (not a proof of the claim).
    """

    version: Version
    name: str
    kind: ClaimKind
    statement: str
    setting: str
    unknown: str
    nearest: str
    source: str = "[Adler2025]"
    status: Literal["claim"] = "claim"

    @property
    def title(self) -> str:
        """The title of the paper in this version."""
        return TITLES[self.version]

    def __str__(self) -> str:
        return f"{self.statement} ({self.setting}) [{self.status}; Adler2025, {self.version}]"


_RECOGNITION = "relational graph recognition, several heads, fixed embeddings"

CAPACITY_CLAIMS: tuple[CapacityClaim, ...] = (
    CapacityClaim(
        "v1",
        "total key dimension",
        "matching bounds",
        "D_K = Theta(m' log m' / d_model) for a broad class of graphs",
        f"{_RECOGNITION}, Gaussian embeddings of unit norm",
        "the constants; which graphs belong to the class",
        "C1, C2, C3 from below; C4, C5 from above",
    ),
    CapacityClaim(
        "v1",
        "permutations without superposition",
        "upper bound",
        "one head is enough for a permutation graph when m = d_model",
        "relational graph recognition, m = d_model",
        "the constant in the head dimension",
        "C4",
    ),
    CapacityClaim(
        "current",
        "total key dimension",
        "matching bounds",
        "D_K grows essentially as m' / d_model, up to logarithmic factors",
        _RECOGNITION,
        "the constants and the powers of the logarithms",
        "C1, C2, C3 from below; C4, C5 from above",
    ),
    CapacityClaim(
        "current",
        "scaled softmax",
        "matching bounds",
        "corresponding guarantees hold for scaled-softmax attention",
        f"{_RECOGNITION}, softmax with a scale",
        "the scale and the error",
        "C6",
    ),
    CapacityClaim(
        "current",
        "multi-head advantage",
        "upper bound",
        "splitting a fixed D_K into more heads raises capacity, for permutation graphs too, by "
        "reducing the interference of superposed embeddings",
        f"{_RECOGNITION}, m > d_model",
        "the size of the advantage",
        "C4, C5",
    ),
    CapacityClaim(
        "current",
        "phase transitions",
        "experiment",
        "trained layers show sharp transitions at the predicted capacity",
        "controlled experiments",
        "the sizes and the fitted constant",
        "C5",
    ),
    CapacityClaim(
        "current",
        "robustness of the advantage",
        "experiment",
        "the multi-head advantage persists with softmax normalization, value routing, and a full "
        "transformer block trained with frozen GPT-2 embeddings",
        "controlled experiments",
        "the sizes",
        "C6",
    ),
)


def capacity_claims(version: Version | None = None) -> tuple[CapacityClaim, ...]:
    """The claims of one version, or of both. Source: [Adler2025].

    >>> [claim.name for claim in capacity_claims("v1")]
    ['total key dimension', 'permutations without superposition']
    """
    if version is not None and version not in TITLES:
        raise ArgumentError("version", version, f"one of {tuple(TITLES)}, or None")
    return tuple(claim for claim in CAPACITY_CLAIMS if version in (None, claim.version))
