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

from ._types import Key, Point, Scalar, Tangent
from .heat import AbstractHeatKernel
from .manifolds import AbstractManifold
from .score import AbstractScore


class TimeLaw(eqx.Module):
    """Times between t_min and t1: t^power is uniform, or log t if `power` is zero.

    Log-uniform times see every scale of the data equally often; `benchmarks/fit.py` compares.
    """

    t_min: float = eqx.field(static=True)
    t1: float = eqx.field(static=True)
    power: float = eqx.field(static=True, default=0.0)

    def draw(self, key: Key, count: int) -> Float[Array, " n"]:
        """Stratified: one time in each of `count` equally likely intervals."""
        u = (jnp.arange(count) + jr.uniform(key, (count,))) / count
        if self.power == 0:
            return self.t_min * jnp.exp(u * jnp.log(self.t1 / self.t_min))
        low, high = self.t_min**self.power, self.t1**self.power
        return (low + u * (high - low)) ** (1 / self.power)

    def weight(self, t: Scalar) -> Scalar:
        """1 / density, up to a constant."""
        return t ** (1 - self.power)


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
        return *self.kernel._noised(t, point, key), self.law.weight(t)


def squared_error(field: AbstractScore, manifold: AbstractManifold, examples: Examples) -> Scalar:
    """The weighted mean square of the differences to the targets."""

    def one(t, x, target, weight, features):
        error = field(t, x, features) - target
        return weight * manifold._inner(x, error, error)

    columns = examples.t, examples.x, examples.target, examples.weight, examples.features
    return jnp.mean(jax.vmap(one)(*columns))
