"""Bounds for attention: what must be paid, and what suffices on paper. Knows no weights."""

from bounds.arithmetic import Ball
from bounds.bound import VERSION, Bound
from bounds.errors import ArgumentError, HypothesisError, ModelMismatchError, UndecidedError
from bounds.harmonics import (
    density_constant,
    harmonic_dimension,
    head_dimension,
    invariant_dimension,
)
from bounds.head_floor import head_floor, min_heads
from bounds.key_dimension import family_log2, key_dimension_bits, storage_efficiency
from bounds.model import Model
from bounds.profiles import NEAREST_NEIGHBOR, StepProfile
from bounds.softmax_scale import softmax_error, softmax_scale

__version__ = VERSION

__all__ = [
    "NEAREST_NEIGHBOR",
    "ArgumentError",
    "Ball",
    "Bound",
    "HypothesisError",
    "Model",
    "ModelMismatchError",
    "StepProfile",
    "UndecidedError",
    "density_constant",
    "family_log2",
    "harmonic_dimension",
    "head_dimension",
    "head_floor",
    "invariant_dimension",
    "key_dimension_bits",
    "min_heads",
    "softmax_error",
    "softmax_scale",
    "storage_efficiency",
]
