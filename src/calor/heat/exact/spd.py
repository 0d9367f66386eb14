r"""The exact heat kernel of SPD(2), which is R x H^2 with a hyperbolic plane of radius sqrt(2).

With r1, r2 the log-eigenvalues of x relative to x0 and s = (r1 + r2)/sqrt(2),

    p = (4 pi t)^(-1/2) exp(-s^2 / 4t) * (1/2) p_H2(t/2, h),   h = |r1 - r2| / 2.

For two eigenvalues everything follows from determinants and traces, without an eigendecomposition:
r1 + r2 = log(det x / det x0), and the gradients of r1 + r2 and of h are x and
(cosh(h) x - sqrt(det x / det x0) x0) / (2 sinh h).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...core.numerics import accurate_dot, safe_norm, safe_sqrt, sinhc, squared_arcsinh
from ...core.types import Key, Point, Scalar, Tangent
from ...manifolds import SPD
from ...manifolds.matrices import cholesky
from ...store.stored import stored
from ..kernel import AbstractHeatKernel
from ..methods import method
from .hyperbolic import radial_log_prob, radial_pull, radial_sampler
from .radial import RadialSampler


@stored("SPD2Kernel", derived=("sampler",))
@method(SPD, "exact", when=lambda spd: spd.size == 2)
class SPD2Kernel(AbstractHeatKernel):
    """The heat kernel of SPD(2)."""

    manifold: SPD
    sampler: RadialSampler = eqx.field(static=True)

    def __init__(self, manifold: SPD):
        """The heat kernel of 2 x 2 matrices."""
        if manifold.size != 2:
            raise ValueError(f"The exact kernel is known for SPD(2) only, got {manifold}.")
        self.manifold = manifold
        self.sampler = radial_sampler(2)

    def log_prob_at(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        log_det, squared = _coordinates(x, x0)
        scale = -(log_det**2) / (8 * t) - jnp.log(4 * jnp.pi * t) / 2
        return scale + radial_log_prob(2, t / 2, squared) - np.log(2)

    def score_at(self, t: Scalar, x: Point, x0: Point) -> Tangent:
        log_det, squared = _coordinates(x, x0)
        h = safe_sqrt(squared)
        away = (jnp.cosh(h) * x - jnp.exp(log_det / 2) * x0) / sinhc(h)
        return -log_det / (4 * t) * x - radial_pull(2, t / 2, squared) / 2 * away

    def draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        # A Gaussian symmetric matrix: its trace is the R part, the rest is tangent to H^2.
        scale, first, second = jr.normal(key, (3,), x0.dtype)
        # Unit length in H^2 is sqrt(2) here, and its time runs half as fast: both cancel.
        stretch = self.sampler(t / 2, safe_norm(jnp.stack([first, second])))
        a, b = stretch * first, stretch * second
        tangent = jnp.sqrt(t) * jnp.array([[scale + a, b], [b, scale - a]])
        at_identity = self.manifold.exp_at(jnp.eye(2, dtype=x0.dtype), tangent)
        factor = cholesky(x0)
        return factor @ at_identity @ factor.T


def _coordinates(x, x0):
    """log(det x / det x0) and h^2."""
    # Matrices of the size of the identity: determinants of others could leave the range.  By
    # powers of two, because a rounded entry of a nearly singular matrix is another matrix.
    exponent, exponent0 = (jnp.frexp(jax.lax.stop_gradient(jnp.trace(m)))[1] for m in (x, x0))
    one = jnp.ones_like(x[0, 0])
    x, x0 = x * jnp.ldexp(one, -exponent), x0 * jnp.ldexp(one, -exponent0)
    determinant0 = _determinant(x0)
    log_det = jnp.log(_determinant(x)) - jnp.log(determinant0)
    # The entries of S = L^-1 x L^-T, x0 = L L^T, give (e^r1 - e^r2)^2 as a sum of squares.  The
    # last one follows from det S, without a difference.
    s11 = x[0, 0] / x0[0, 0]
    high, low = accurate_dot(jnp.stack([x[1, 0], -x[0, 0]]), jnp.stack([x0[0, 0], x0[1, 0]]))
    s12 = (high + low) / (x0[0, 0] * jnp.sqrt(determinant0))
    s22 = (jnp.exp(log_det) + s12**2) / s11
    squared = squared_arcsinh(((s11 - s22) ** 2 + 4 * s12**2) / (4 * jnp.exp(log_det)))
    return log_det + 2 * np.log(2) * (exponent - exponent0), squared


def _determinant(x):
    """a d - b^2 to working precision even when the matrix is nearly singular."""
    high, low = accurate_dot(jnp.stack([x[0, 0], -x[0, 1]]), jnp.stack([x[1, 1], x[1, 0]]))
    return jnp.maximum(high + low, jnp.finfo(x.dtype).tiny)
