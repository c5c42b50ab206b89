"""The main job: every result at its standard parameters, lower bound beside construction, judged."""

from __future__ import annotations

from collections.abc import Callable

from verification import capacity_links, head_checks, relation_checks
from verification.finding import Finding

CATALOGUE: tuple[Callable[[], Finding], ...] = (
    head_checks.check_full_rank_hard,
    head_checks.check_full_rank_soft,
    head_checks.check_head_floor,
    head_checks.check_floor_below_layer,
    head_checks.check_general_values,
    head_checks.check_tightness,
    head_checks.check_closed_form,
    head_checks.check_separation,
    head_checks.check_sandwich,
    head_checks.check_majority_vote,
    head_checks.check_context,
    head_checks.check_claims,
    relation_checks.check_real_weights,
    relation_checks.check_margins,
    relation_checks.check_rank_one_relations,
    relation_checks.check_superposition,
    relation_checks.check_compact_relations,
    relation_checks.check_tokens,
    relation_checks.check_routing,
    relation_checks.check_identities,
    relation_checks.check_bottleneck,
    capacity_links.check_capacity_claims,
)
"""Every check of ``attention-bounds check``, in the order of the table."""
