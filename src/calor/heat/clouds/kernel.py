"""The heat kernel of point clouds modulo permutations, with any way of matching points.

Brownian motion of a cloud is that of its points, so draws are Gaussian and exact whatever the
matching is.  On clouds whose centre of mass is fixed the sum over permutations is the same, since a
permutation does not move the centre; only the dimension is smaller, k n - (centred coordinates).
"""

import jax.numpy as jnp

from ...manifolds import PointCloud
from ...store.stored import stored
from ..kernel import AbstractHeatKernel, compare_separately
from .matchings import AbstractMatching, Labelled


@stored("CloudKernel")
class CloudKernel(AbstractHeatKernel):
    """log p = log perm - (d/2) log(4 pi t), with log perm as the matching has it."""

    manifold: PointCloud
    matching: AbstractMatching = Labelled()

    def log_prob_at(self, t, x, x0):
        manifold, count = self.manifold, self.manifold.count(x0)
        squared = manifold.squared_distances(x, x0)
        permanent = self.matching.log_permanent(t, squared, count)
        value = permanent - manifold.dimension(x0) / 2 * jnp.log(4 * jnp.pi * t)
        return jnp.where(manifold.count(x) == count, value, -jnp.inf)

    def score_at(self, t, x, x0):
        manifold = self.manifold
        squared = manifold.squared_distances(x, x0)
        posterior = self.matching.posterior(t, squared, manifold.count(x0))
        # Rows add up to one, except in the paper's network, which does not know that they should.
        total = jnp.sum(posterior, axis=1, keepdims=True)
        toward = posterior @ manifold.places(x0) - total * manifold.places(x)
        vector = manifold.with_presence(toward, manifold.present(x))
        return manifold.tangent_at(x, vector) / (2 * t)

    def draw(self, t, x0, key):
        return x0 + jnp.sqrt(2 * t) * self.manifold.draw_tangent(key, x0)

    def compare_at(self, t, x, sources):
        return compare_separately(self, t, x, sources)

    def __str__(self) -> str:
        return f"CloudKernel({self.manifold}, {type(self.matching).__name__.lower()})"
