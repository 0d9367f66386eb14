r"""Noise and what is learned from it: denoising score matching with any heat kernel.

A data point x0 is noised to x ~ p(t, . | x0); the score of the noised data is the conditional
expectation of grad log p(t, x | x0), so it minimizes

    E_t E_x0 E_x  weight(t) | s(t, x) - grad_x log p(t, x | x0) |^2     (Riemannian norm).

With weight = 1 / (density of t) this is the integral over t of the squared error, which bounds the
log-likelihood.  The target is of size 1/sqrt(2t), the weight of log-uniform times is t: the loss
stays bounded as t -> 0.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ._types import Key, Scalar
from .heat import AbstractHeatKernel
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


def denoising_loss(
    score: AbstractScore,
    kernel: AbstractHeatKernel,
    law: TimeLaw,
    x0: Float[Array, "n ..."],
    condition: Float[Array, "n c"],
    key: Key,
) -> Scalar:
    """The loss of a batch of data points, each noised once."""

    def one(t, x0, condition, key):
        x, target = jax.lax.stop_gradient(kernel._noised(t, x0, key))
        error = score(t, x, condition) - target
        return law.weight(t) * kernel.manifold._inner(x, error, error)

    return mean_loss(one, law, x0, condition, key)


def mean_loss(
    one: Callable[..., Scalar],
    law: TimeLaw,
    points: Float[Array, "n ..."],
    condition: Float[Array, "n c"],
    key: Key,
) -> Scalar:
    """The mean of a loss of time, point, condition and random key, at random times."""
    key_time, key_each = jr.split(key)
    times = law.draw(key_time, len(points))
    return jnp.mean(jax.vmap(one)(times, points, condition, jr.split(key_each, len(points))))
