"""Explicit attention weights that pay what the bounds ask."""

from constructions.algebraic_codes import dual_bch_codes, kerdock_codes, reed_solomon_codes
from constructions.attention import AttentionLayer
from constructions.codes import (
    SignCodes,
    circle_codes,
    coded_layer,
    counting_codes,
    random_sign_codes,
)
from constructions.contexts import (
    ContextTarget,
    context_layer,
    context_report,
    context_target,
    covering_contexts,
    random_contexts,
)
from constructions.edge_coloring import edge_coloring, equitable_coloring
from constructions.errors import RealizationError
from constructions.fitted_values import fitted_value_layer
from constructions.general_values import general_value_layer, hard_head_value
from constructions.generalized import GeneralizedHeads, generalized_rank_one
from constructions.identity_readout import (
    IdentityLayer,
    dual_readout,
    fitted_readout,
    identity_layer,
)
from constructions.layer_files import LayerFileError
from constructions.layer_files import load_layer as load
from constructions.layer_files import save_layer as save
from constructions.majority_vote import MajorityVote, majority_vote
from constructions.nearest_neighbor import full_rank_nearest_neighbor, nearest_neighbor
from constructions.rank_one import rank_one_layer
from constructions.relations import RelationTarget, relation_layer, relation_target
from constructions.rounding import round_weights
from constructions.routing import RoutingLayer, routing_heads, routing_layer
from constructions.step_profiles import (
    step_profile_layer,
    step_profile_target,
    step_profile_tokens,
)
from constructions.stochastic_matrix import stochastic_head
from constructions.superposition import sketched_layer, superposed_layer

__all__ = [
    "AttentionLayer",
    "ContextTarget",
    "GeneralizedHeads",
    "IdentityLayer",
    "LayerFileError",
    "MajorityVote",
    "RealizationError",
    "RelationTarget",
    "RoutingLayer",
    "SignCodes",
    "circle_codes",
    "coded_layer",
    "context_layer",
    "context_report",
    "context_target",
    "counting_codes",
    "covering_contexts",
    "dual_bch_codes",
    "dual_readout",
    "edge_coloring",
    "equitable_coloring",
    "fitted_readout",
    "fitted_value_layer",
    "full_rank_nearest_neighbor",
    "general_value_layer",
    "generalized_rank_one",
    "hard_head_value",
    "identity_layer",
    "kerdock_codes",
    "load",
    "majority_vote",
    "nearest_neighbor",
    "random_contexts",
    "random_sign_codes",
    "rank_one_layer",
    "reed_solomon_codes",
    "relation_layer",
    "relation_target",
    "round_weights",
    "routing_heads",
    "routing_layer",
    "save",
    "sketched_layer",
    "step_profile_layer",
    "step_profile_target",
    "step_profile_tokens",
    "stochastic_head",
    "superposed_layer",
]
