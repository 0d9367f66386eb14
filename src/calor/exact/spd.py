r"""The exact heat kernel of SPD(2), which is R x H^2 with a hyperbolic plane of radius sqrt(2).

With r1, r2 the log-eigenvalues of x relative to x0 and s = (r1 + r2)/sqrt(2),

    p = (4 pi t)^(-1/2) exp(-s^2 / 4t) * (1/2) p_H2(t/2, |r1 - r2| / 2).
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .._numerics import safe_norm
from ..heat import AbstractHeatKernel, separate_log_probs
from ..manifolds import SPD
from .hyperbolic import radial_log_prob, radial_pull, radial_sampler
from .radial import RadialSampler


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

    def _log_prob(self, t, x, x0):
        r, _ = self.manifold.kernel_coordinates(x, x0)
        scale = -(jnp.sum(r) ** 2) / (8 * t) - jnp.log(4 * jnp.pi * t) / 2
        return scale + radial_log_prob(2, t / 2, jnp.abs(r[1] - r[0]) / 2) - np.log(2)

    def _score(self, t, x, x0):
        r, lift = self.manifold.kernel_coordinates(x, x0)
        pull = radial_pull(2, t / 2, jnp.abs(r[1] - r[0]) / 2)
        shape = pull * (r[1] - r[0]) / 4
        return lift(-jnp.sum(r) / (4 * t) + jnp.stack([shape, -shape]))

    def _sample(self, t, x0, key):
        # A Gaussian symmetric matrix: its trace is the R part, the rest is tangent to H^2.
        scale, first, second = jr.normal(key, (3,), x0.dtype)
        length = safe_norm(jnp.stack([first, second]))
        # Unit length in H^2 is sqrt(2) here, and its time runs half as fast: both cancel.
        stretch = self.sampler(t / 2, length)
        matrix = jnp.array([[scale + stretch * first, stretch * second],
                            [stretch * second, scale - stretch * first]])
        identity = jnp.eye(2, dtype=x0.dtype)
        at_identity = self.manifold._exp(identity, jnp.sqrt(t) * matrix)
        factor = jnp.linalg.cholesky(x0)
        return factor @ at_identity @ factor.T

    def _log_probs(self, t, x, sources):
        return separate_log_probs(self, t, x, sources)
