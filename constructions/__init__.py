"""Explicit attention weights that pay what the bounds ask."""

from constructions.attention import AttentionLayer
from constructions.errors import RealizationError
from constructions.layer_files import LayerFileError
from constructions.layer_files import load_layer as load
from constructions.layer_files import save_layer as save
from constructions.nearest_neighbor import full_rank_nearest_neighbor, nearest_neighbor
from constructions.relations import RelationTarget, relation_layer, relation_target
from constructions.rounding import round_weights

__all__ = [
    "AttentionLayer",
    "LayerFileError",
    "RealizationError",
    "RelationTarget",
    "full_rank_nearest_neighbor",
    "load",
    "nearest_neighbor",
    "relation_layer",
    "relation_target",
    "round_weights",
    "save",
]
