"""Bounds for attention: what must be paid, and what suffices on paper. Knows no weights."""

from bounds.arithmetic import Ball
from bounds.bound import VERSION, Bound
from bounds.capacity_claims import capacity_claims
from bounds.closed_forms import (
    closed_form_heads,
    growth_rate,
    growth_remainder,
    tail_energy,
    tail_energy_bounds,
)
from bounds.context_floor import context_floor, context_min_heads
from bounds.errors import ArgumentError, HypothesisError, ModelMismatchError, UndecidedError
from bounds.graph_families import GraphFamily, graph_family
from bounds.harmonics import (
    density_constant,
    harmonic_dimension,
    head_dimension,
    invariant_dimension,
)
from bounds.head_floor import head_floor, min_heads
from bounds.head_overlap import head_overlap, target_overlap
from bounds.identity_readout import random_readout_degree, readout_dimension
from bounds.invariant_rank import invariant_rank
from bounds.key_dimension import family_log2, key_dimension_bits, storage_efficiency
from bounds.key_dimension_best import key_dimension
from bounds.key_dimension_margin import key_dimension_margin, key_dimension_packing
from bounds.key_dimension_real import key_dimension_real, least_heads
from bounds.low_rank_bottleneck import bottleneck_dimension, stochastic_matrix_dimension
from bounds.majority_vote import (
    majority_vote_ceiling,
    majority_vote_error,
    majority_vote_heads,
)
from bounds.model import Model
from bounds.perturbed_identity import perturbed_identity_rank
from bounds.profiles import NEAREST_NEIGHBOR, StepProfile
from bounds.rank_one import rank_one_error_bound, rank_one_heads
from bounds.separation import separation, square_wave
from bounds.softmax_leakage import balanced_null_shift, leakage_scale, softmax_leakage
from bounds.softmax_scale import softmax_error, softmax_scale
from bounds.temperature import (
    orthonormal_scale,
    sphere_margin,
    sphere_scale,
    sphere_scale_with_failure,
)

__version__ = VERSION

__all__ = [
    "NEAREST_NEIGHBOR",
    "ArgumentError",
    "Ball",
    "Bound",
    "GraphFamily",
    "HypothesisError",
    "Model",
    "ModelMismatchError",
    "StepProfile",
    "UndecidedError",
    "balanced_null_shift",
    "bottleneck_dimension",
    "capacity_claims",
    "closed_form_heads",
    "context_floor",
    "context_min_heads",
    "density_constant",
    "family_log2",
    "graph_family",
    "growth_rate",
    "growth_remainder",
    "harmonic_dimension",
    "head_dimension",
    "head_floor",
    "head_overlap",
    "invariant_dimension",
    "invariant_rank",
    "key_dimension",
    "key_dimension_bits",
    "key_dimension_margin",
    "key_dimension_packing",
    "key_dimension_real",
    "leakage_scale",
    "least_heads",
    "majority_vote_ceiling",
    "majority_vote_error",
    "majority_vote_heads",
    "min_heads",
    "orthonormal_scale",
    "perturbed_identity_rank",
    "random_readout_degree",
    "rank_one_error_bound",
    "rank_one_heads",
    "readout_dimension",
    "separation",
    "softmax_error",
    "softmax_leakage",
    "softmax_scale",
    "sphere_margin",
    "sphere_scale",
    "sphere_scale_with_failure",
    "square_wave",
    "stochastic_matrix_dimension",
    "storage_efficiency",
    "tail_energy",
    "tail_energy_bounds",
    "target_overlap",
]
