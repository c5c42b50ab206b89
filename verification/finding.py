"""One line of the check, and the numbers it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bounds import Ball, Bound


@dataclass(frozen=True)
class Finding:
    """One line of the check: a result, its bound, what was built, and whether both hold."""

    result: str
    subject: str
    bound: str
    built: str
    holds: bool
    evidence: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON-ready data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def ball(bound: Bound) -> Ball:
    """The ball that a bound encloses its number in."""
    assert isinstance(bound.value, Ball)
    return bound.value


def upper_float(bound: Bound) -> float:
    """A float no smaller than the number that a bound encloses."""
    return ball(bound).upper_float()
