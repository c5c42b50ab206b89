"""The judge: weights against targets, bounds against weights. Imports both; nobody imports it."""

from verification.certificate import Certificate
from verification.confidence import bounded_mean, clopper_pearson
from verification.verify import verify

__all__ = ["Certificate", "bounded_mean", "clopper_pearson", "verify"]
