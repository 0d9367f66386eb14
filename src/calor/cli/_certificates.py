"""Certificates of learned kernels, as JSON."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..heat.certificate import Certificate

_ROWS = ("times", "largest", "mean", "normalized", "log_mass", "radius")


def as_dict(certificate: "Certificate") -> dict[str, Any]:
    """What a certificate says."""
    return {
        "manifold": str(certificate.manifold),
        "initial_error": certificate.initial_error,
        "t0": certificate.t0,
        "points": certificate.points,
        "law": certificate.law,
        "poor": certificate.poor,
        **{name: list(vars(certificate)[name]) for name in _ROWS},
        "bound": [certificate.bound(t) for t in certificate.times],
    }
