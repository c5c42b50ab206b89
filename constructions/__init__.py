"""Explicit attention weights that pay what the bounds ask."""

from constructions.attention import AttentionLayer
from constructions.errors import RealizationError
from constructions.fitted_values import fitted_value_layer
from constructions.general_values import general_value_layer, hard_head_value
from constructions.generalized import GeneralizedHeads, generalized_rank_one
from constructions.layer_files import LayerFileError
from constructions.layer_files import load_layer as load
from constructions.layer_files import save_layer as save
from constructions.majority_vote import MajorityVote, majority_vote
from constructions.nearest_neighbor import full_rank_nearest_neighbor, nearest_neighbor
from constructions.rank_one import rank_one_layer
from constructions.relations import RelationTarget, relation_layer, relation_target
from constructions.rounding import round_weights
from constructions.step_profiles import (
    step_profile_layer,
    step_profile_target,
    step_profile_tokens,
)

__all__ = [
    "AttentionLayer",
    "GeneralizedHeads",
    "LayerFileError",
    "MajorityVote",
    "RealizationError",
    "RelationTarget",
    "fitted_value_layer",
    "full_rank_nearest_neighbor",
    "general_value_layer",
    "generalized_rank_one",
    "hard_head_value",
    "load",
    "majority_vote",
    "nearest_neighbor",
    "rank_one_layer",
    "relation_layer",
    "relation_target",
    "round_weights",
    "save",
    "step_profile_layer",
    "step_profile_target",
    "step_profile_tokens",
]
