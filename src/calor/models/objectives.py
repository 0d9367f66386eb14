r"""Noise and what is learned from it: denoising score matching with any heat kernel.

A data point x0 is noised to x ~ p(t, . | x0); the score of the noised data is the conditional
expectation of grad log p(t, x | x0), so it minimizes

    E_t E_x0 E_x  weight(t) | s(t, x) - grad_x log p(t, x | x0) |^2     (Riemannian norm).

With weight = 1 / (density of t) this is the integral over t of the squared error, which bounds the
log-likelihood.  The target is of size 1/sqrt(2t), the weight of log-uniform times is t: the loss
stays bounded as t -> 0.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ..core.types import Key, Point, Scalar, Tangent
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import AbstractManifold
from .fields import AbstractField
from .prior import AbstractPrior
from .times import Times


class Examples(eqx.Module):
    """What a field learns from: targets at times and places, and how much they count."""

    t: Float[Array, " n"]
    x: Float[Array, "n ..."]
    target: Float[Array, "n ..."]
    weight: Float[Array, " n"]
    features: Float[Array, "n c"]


class AbstractObjective(eqx.Module):
    """How data become examples; the field has no part in it."""

    times: eqx.AbstractVar[Times]

    @abstractmethod
    def example(
        self, t: Scalar, point: Point, features: Float[Array, " c"], key: Key
    ) -> tuple[Point, Tangent, Scalar]:
        """A place, the target there and its weight, at the time t, from a data point."""

    def draw(
        self,
        points: Float[Array, "n ..."],
        features: Float[Array, "n c"],
        key: Key,
        starts: Float[Array, " n"] | None = None,
    ) -> Examples:
        """An example from each data point, at random times.

        A point that was measured with the noise of a time s is as a draw of the true point after
        that time: noise of the time t - s more makes it a draw after the time t, whose score is
        learned all the same.  It says nothing of times before s.
        """
        key_time, key_each = jr.split(key)
        t = self.times.draw(key_time, len(points))
        keys = jr.split(key_each, len(points))
        if starts is None:
            return Examples(t, *jax.vmap(self.example)(t, points, features, keys), features)
        left = t - starts
        more = jnp.where(left > 0, left, t)
        x, target, weight = jax.vmap(self.example)(more, points, features, keys)
        # The target grows as left goes to zero, so that late noise says more.
        weight = self.times.weight(t) * jnp.clip(left / t, 0, 1)
        return Examples(t, x, target, weight, features)


class Denoising(AbstractObjective):
    """The score of the noised data is learned from the scores of a heat kernel."""

    times: Times
    kernel: AbstractHeatKernel

    def example(
        self, t: Scalar, point: Point, features: Float[Array, " c"], key: Key
    ) -> tuple[Point, Tangent, Scalar]:
        """Noise, and the score of the kernel there."""
        return *self.kernel.draw_with_score(t, point, key), self.times.weight(t)


def squared_error(field: AbstractField, manifold: AbstractManifold, examples: Examples) -> Scalar:
    """The weighted mean square of the differences to the targets."""

    def one(
        t: Scalar, x: Point, target: Tangent, weight: Scalar, features: Float[Array, " c"]
    ) -> Scalar:
        error = field(t, x, features) - target
        return weight * manifold.inner_at(x, error, error)

    columns = examples.t, examples.x, examples.target, examples.weight, examples.features
    return jnp.mean(jax.vmap(one)(*columns))


class FlowMatching(AbstractObjective):
    """The velocity is learned from those of single geodesics from the prior to data points."""

    times: Times
    kernel: AbstractHeatKernel
    """Its noise moves along the geodesics."""
    prior: AbstractPrior

    def example(
        self, t: Scalar, point: Point, features: Float[Array, " c"], key: Key
    ) -> tuple[Point, Tangent, Scalar]:
        """A place on a geodesic to the data point, and the velocity there."""
        kernel, left = self.kernel, jnp.sqrt(t / self.times.t1)
        start = self.prior.partner(point, key, features).astype(point.dtype)
        x = kernel.manifold.exp_at(point, left * kernel.join(point, start))
        return x, kernel.join(x, point) / left, jnp.ones_like(t)
