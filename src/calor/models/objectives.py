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
from .fields import AbstractScore
from .prior import AbstractPrior
from .times import TimeLaw


class Examples(eqx.Module):
    """What a field learns from: targets at times and places, and how much they count."""

    t: Float[Array, " n"]
    x: Float[Array, "n ..."]
    target: Float[Array, "n ..."]
    weight: Float[Array, " n"]
    features: Float[Array, "n c"]


class AbstractObjective(eqx.Module):
    """How data become examples; the field has no part in it."""

    law: eqx.AbstractVar[TimeLaw]

    @abstractmethod
    def example(
        self, t: Scalar, point: Point, features: Float[Array, " c"], key: Key
    ) -> tuple[Point, Tangent, Scalar]:
        """A place, the target there and its weight, at the time t, from a data point."""

    def draw(
        self, points: Float[Array, "n ..."], features: Float[Array, "n c"], key: Key
    ) -> Examples:
        """An example from each data point, at random times."""
        key_time, key_each = jr.split(key)
        t = self.law.draw(key_time, len(points))
        keys = jr.split(key_each, len(points))
        return Examples(t, *jax.vmap(self.example)(t, points, features, keys), features)


class Denoising(AbstractObjective):
    """The score of the noised data is learned from the scores of a heat kernel."""

    law: TimeLaw
    kernel: AbstractHeatKernel

    def example(self, t, point, features, key):
        """Noise, and the score of the kernel there."""
        return *self.kernel.draw_with_score(t, point, key), self.law.weight(t)


def squared_error(field: AbstractScore, manifold: AbstractManifold, examples: Examples) -> Scalar:
    """The weighted mean square of the differences to the targets."""

    def one(t, x, target, weight, features):
        error = field(t, x, features) - target
        return weight * manifold.inner_at(x, error, error)

    columns = examples.t, examples.x, examples.target, examples.weight, examples.features
    return jnp.mean(jax.vmap(one)(*columns))


class Matching(AbstractObjective):
    """The velocity is learned from those of single geodesics from the prior to data points."""

    law: TimeLaw
    manifold: AbstractManifold
    prior: AbstractPrior
    labelled: bool = eqx.field(static=True, default=False)
    """Whether points of clouds are joined as they are listed, not as they match best."""

    def example(self, t, point, features, key):
        """A place on a geodesic to the data point, and the velocity there."""
        manifold = self.manifold
        join = (lambda x, y: y - x) if self.labelled else manifold.log_at
        left, start = jnp.sqrt(t / self.law.t1), self.prior.partner(point, key, features)
        x = manifold.exp_at(point, left * join(point, start.astype(point.dtype)))
        return x, join(x, point) / left, jnp.ones_like(t)
