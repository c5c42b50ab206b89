"""P1-P6 are recorded with their versions, and each computed link holds."""

import pytest

from bounds import Bound
from verification.claims import CLAIMS, Claim


def test_all_six_are_there_with_version_and_constants() -> None:
    assert [claim.name for claim in CLAIMS] == ["P1", "P2", "P3", "P4", "P5", "P6"]
    for claim in CLAIMS:
        assert "2407.16153" in claim.version or "ICLR 2025" in claim.version
        assert claim.constants
        assert claim.ours
        assert not any(isinstance(value, Bound) for value in vars(claim).values())


def test_the_conjecture_is_never_a_bound() -> None:
    conjecture = CLAIMS[4]
    assert conjecture.relation == "open"
    assert conjecture.check is None


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if claim.check], ids=lambda c: c.name)
def test_link_holds(claim: Claim) -> None:
    assert claim.check is not None
    holds, evidence = claim.check()
    assert holds, evidence
    assert evidence
