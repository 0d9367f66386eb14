"""The heat kernel of point clouds modulo permutations, with any way of matching points.

Brownian motion of a cloud is that of its points, so draws are Gaussian and exact whatever the
matching is.  On clouds whose centre of mass is fixed the sum over permutations is the same, since a
permutation does not move the centre; only the dimension is smaller, k n - (centred coordinates).
"""

from functools import partial

import jax.numpy as jnp

from ...core.types import Key, Point, Scalar, Tangent
from ...manifolds import PointCloud
from ...store.stored import stored
from ..early.laws import LAWS
from ..kernel import AbstractHeatKernel
from ..methods import method
from .matchings import AbstractMatching, Bethe, Exact, Labelled, Sinkhorn
from .permanents import LARGEST_EXACT


@stored("CloudKernel")
class CloudKernel(AbstractHeatKernel):
    """log p = log perm - (d/2) log(4 pi t), with log perm as the matching has it."""

    manifold: PointCloud
    matching: AbstractMatching = Labelled()

    def log_prob_at(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        manifold, count = self.manifold, self.manifold.count(x0)
        squared = manifold.squared_distances(x, x0)
        permanent = self.matching.log_permanent(t, squared, count)
        value = permanent - manifold.dimension(x0) / 2 * jnp.log(4 * jnp.pi * t)
        return jnp.where(manifold.count(x) == count, value, -jnp.inf)

    def score_at(self, t: Scalar, x: Point, x0: Point) -> Tangent:
        manifold = self.manifold
        squared = manifold.squared_distances(x, x0)
        posterior = self.matching.posterior(t, squared, manifold.count(x0))
        # Rows add up to one, except in the paper's network, which does not know that they should.
        total = jnp.sum(posterior, axis=1, keepdims=True)
        toward = posterior @ manifold.places(x0) - total * manifold.places(x)
        vector = manifold.with_presence(toward, manifold.present(x))
        return manifold.tangent_at(x, vector) / (2 * t)

    def draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        return x0 + jnp.sqrt(2 * t) * self.manifold.draw_tangent(key, x0)

    def join(self, x: Point, y: Point) -> Tangent:
        """As points are matched: to themselves if they keep their labels, else by distance."""
        return self.matching.join(self.manifold, x, y)

    def __str__(self) -> str:
        return f"CloudKernel({self.manifold}, {type(self.matching).__name__.lower()})"


def _matched(matching, manifold, *, key, cache):
    return CloudKernel(manifold, matching())


# Every point by itself: exact as t -> 0.
LAWS.register(PointCloud)(lambda manifold, order: CloudKernel(manifold))
_is_small = lambda cloud: cloud.size <= LARGEST_EXACT
method(PointCloud, "exact", when=_is_small)(partial(_matched, Exact))
method(PointCloud, "bethe", rank=3)(partial(_matched, Bethe))
method(PointCloud, "sinkhorn", rank=4)(partial(_matched, Sinkhorn))
method(PointCloud, "labelled", rank=5)(partial(_matched, Labelled))
