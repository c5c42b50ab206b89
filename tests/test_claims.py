"""The claims of both papers are recorded with their versions, and each computed link holds."""

import json
import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from bounds import Bound
from bounds.capacity_claims import CAPACITY_CLAIMS
from verification import capacity_links, relation_checks
from verification.capacity_links import CAPACITY_LINKS, CapacityLink, check_capacity_claims
from verification.certificate import Certificate
from verification.claims import CLAIMS, Claim
from verification.layer_size import LayerSize
from verification.relation_checks import check_margins


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


def test_every_claim_on_capacity_has_its_link() -> None:
    """Both versions, in order; what is an experiment or open is not computed."""
    assert tuple(link.claim for link in CAPACITY_LINKS) == CAPACITY_CLAIMS
    assert {link.version for link in CAPACITY_LINKS} == {"v1", "current"}
    for link in CAPACITY_LINKS:
        assert link.ours
        assert (link.check is None) == (link.relation == "open")
        assert link.claim.kind != "experiment" or link.relation == "open"
        assert not any(isinstance(value, Bound) for value in vars(link).values())


@pytest.mark.parametrize(
    "link",
    [link for link in CAPACITY_LINKS if link.check],
    ids=lambda link: f"{link.version}-{link.name}",
)
def test_link_on_capacity_holds(link: CapacityLink) -> None:
    assert link.check is not None
    holds, evidence = link.check()
    assert holds, evidence
    assert evidence


def test_a_layer_that_is_not_verified_breaks_the_links(monkeypatch: pytest.MonkeyPatch) -> None:

    def refuted(judge: Callable[..., Certificate]) -> Callable[..., Certificate]:
        return lambda *arguments: replace(judge(*arguments), verdict="refuted")

    finding = check_capacity_claims()
    assert finding.holds
    assert finding.built == "v1: 1 consistent, 1 implied; current: 2 consistent, 1 implied, 2 open"
    assert len(finding.evidence) == len(CAPACITY_LINKS)
    monkeypatch.setattr(capacity_links, "verify", refuted(capacity_links.verify))
    monkeypatch.setattr(capacity_links, "verify_leakage", refuted(capacity_links.verify_leakage))
    for check in (
        capacity_links.check_bits_from_below,
        capacity_links.check_one_head,
        capacity_links.check_softmax,
        capacity_links.check_advantage,
    ):
        assert not check()[0]
    assert not check_capacity_claims().holds


def test_the_margins_of_the_catalogue_are_those_of_the_codes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Margins from closed forms, the packing bound from its formula; a bound above D_K fails."""
    finding = check_margins()
    assert finding.holds
    circle, orthonormal, compact = finding.evidence.values()
    assert math.isclose(circle["margin"], (1 - math.cos(2 * math.pi / 64)) / 2, rel_tol=1e-6)
    assert math.isclose(orthonormal["margin"], 0.5, rel_tol=1e-6)
    for size, total in ((circle, 2), (orthonormal, 64), (compact, 16)):
        assert size["key_dimension"] == total
        ratio = math.log(64) / math.log(1 + size["key_norm"] ** 2 / size["margin"])
        assert Bound.from_json(json.dumps(size["graph_bound"])).value == math.ceil(ratio)
    real = relation_checks.layer_size

    def claimed(*arguments: object) -> LayerSize:
        found = real(*arguments)  # type: ignore[arg-type]
        assert found.graph_bound is not None
        too_much = replace(found.graph_bound, value=found.key_dimension + 1)
        return replace(found, graph_bound=too_much)

    monkeypatch.setattr(relation_checks, "layer_size", claimed)
    assert not check_margins().holds
