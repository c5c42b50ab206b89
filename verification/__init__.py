"""The judge: weights against targets, bounds against weights. Imports both; nobody imports it."""

from verification.certificate import Certificate
from verification.claims import CLAIMS, Claim
from verification.confidence import bounded_mean, clopper_pearson
from verification.identities import verify_identities
from verification.layer_size import LayerSize, layer_size
from verification.leakage import leakage_report, verify_leakage
from verification.phase import phase_rows, plot_phase, transitions
from verification.rank_one import rank_one_error
from verification.readable_sets import readable_degree
from verification.sandwich import Sandwich, sandwich, sandwich_heads
from verification.single_identities import verify_single_identities
from verification.verify import verify

__all__ = [
    "CLAIMS",
    "Certificate",
    "Claim",
    "LayerSize",
    "Sandwich",
    "bounded_mean",
    "clopper_pearson",
    "layer_size",
    "leakage_report",
    "phase_rows",
    "plot_phase",
    "rank_one_error",
    "readable_degree",
    "sandwich",
    "sandwich_heads",
    "transitions",
    "verify",
    "verify_identities",
    "verify_leakage",
    "verify_single_identities",
]
