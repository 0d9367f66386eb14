r"""calor's own recipe for point clouds: a network of Sinkhorn's matrix, `calor.matchings.Learned`.

The loss is, for clouds of up to nine points, where the permanent is at hand, the error of the score
relative to the score, and, with a weight, the heat equation of single points of clouds of sixteen
(`calor.cloud_solutions`) relative to its terms.  Adam; the average of the weights is kept.  The
network knows neither the number of points nor of coordinates, so that one serves all clouds; on
larger clouds the heat equation judges it.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from ...core.checks import positive_integer
from ...core.types import Key
from ...heat.clouds import permanents
from ...heat.clouds.kernel import CloudKernel
from ...heat.clouds.matchings import Labelled, Learned, matching_network
from ...manifolds import PointCloud
from ..forms.clouds import CloudSolution, row_residual
from .base import AbstractRecipe

# Steps of Adam in one compiled call; clouds to draw from; the weight of the past in the average.
_CHUNK, _POOL, _MEMORY = 25, 1000, 0.995
# Sizes of clouds: those compared with permanents, those that only the equation judges.
_SMALL, _LARGE = 9, 16


class CloudState(eqx.Module):
    """The state of a training."""

    count: Int[Array, ""]
    key: Key
    weights: Float[Array, " p"]
    averaged: Float[Array, " p"]
    optimizer: Any
    terms: Float[Array, " 2"]


class Clouds(AbstractRecipe):
    """See `clouds` for the settings."""

    width: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    batch: int = eqx.field(static=True)
    learning_rate: float = eqx.field(static=True)
    equation: float = eqx.field(static=True)
    exact: float = eqx.field(static=True)
    precision: str = eqx.field(static=True, default="float32")
    by_cover: bool = eqx.field(static=True, default=False)

    def check(self, manifold):
        """Clouds only."""
        if not isinstance(manifold, PointCloud):
            raise ValueError(f"solve: recipes.clouds solves on PointCloud, not on {manifold}.")

    def interval(self, manifold):
        """From zero, where it is exact, to 5."""
        return 0.0, 5.0

    def law(self, manifold):
        """Every point its own, which is exact as t -> 0."""
        return CloudKernel(manifold, Labelled())

    def stages(self, manifold):
        """One stage."""
        return [-(-self.steps // _CHUNK)]

    def begin(self, manifold, stage, done, key):
        """Random weights."""
        key_network, key_steps = jr.split(key)
        weights, _ = self._network(key_network)
        state = self._optimizer().init(weights)
        zero = jnp.zeros((), int)
        return CloudState(zero, jr.key_data(key_steps), weights, weights, state, jnp.ones(2))

    def data(self, manifold, stage, done, key):
        """Clouds to start from, small and large."""
        keys = jr.split(key)
        return tuple(
            jnp.asarray(PointCloud(n, 8).grown(_POOL, k), jnp.float32)
            for n, k in zip((_SMALL, _LARGE), keys, strict=True)
        )

    def advance(self, manifold):
        """Some steps of Adam."""
        optimizer, (_, unravel) = self._optimizer(), self._network(jr.key(0))
        end = self.interval(manifold)[1]

        def noised(pool, number, key):
            key_cloud, key_time, key_noise = jr.split(key, 3)
            x0 = pool[jr.randint(key_cloud, (number,), 0, len(pool))]
            u = (jnp.arange(number) + jr.uniform(key_time, (number,))) / number
            t = 0.02 * (end / 0.02) ** u
            noise = jr.normal(key_noise, x0.shape)
            return t, x0 + jnp.sqrt(2 * t)[:, None, None] * noise, x0

        def by_equation(matching, pool, key):
            key_pair, key_row, key_direction = jr.split(key, 3)
            number = max(self.batch // 4, 1)
            t, x, x0 = noised(pool, number, key_pair)
            rows = jr.randint(key_row, (number,), 0, x.shape[1])
            directions = jr.normal(key_direction, (number, x.shape[2]))
            one = lambda *args: row_residual(matching, *args)
            residual, variance = jax.vmap(one)(t, x, x0, rows, directions)
            size = 0.1 + jax.lax.stop_gradient(jnp.abs(variance))
            return jnp.mean((residual / size) ** 2)

        def by_permanent(matching, pool, key):
            key_pair, key_count = jr.split(key)
            t, x, x0 = noised(pool, self.batch, key_pair)
            # Half of the clouds are whole, the others lack points.
            counts = jnp.minimum(jr.randint(key_count, t.shape, 2, 2 * _SMALL), _SMALL)

            def one(t, x, x0, count):
                present = jnp.arange(_SMALL) < count
                both = present[:, None] & present
                logits = -jnp.sum((x[:, None] - x0) ** 2, axis=-1) / (4 * t)
                alone = jnp.where(jnp.eye(_SMALL, dtype=bool), 0.0, permanents.NEVER)
                logits = jnp.where(both, logits, alone)
                true = jax.lax.stop_gradient(permanents.exact_posterior(logits))
                found = jax.grad(matching.of_logits)(logits, count.astype(x.dtype))
                score = jnp.where(present[:, None], true @ x0 - x, 0.0)
                error = jnp.where(present[:, None], (found - true) @ x0, 0.0)
                return jnp.sum(error**2) / jnp.sum(score**2)

            return jnp.mean(jax.vmap(one)(t, x, x0, counts))

        def losses(weights, data, key):
            matching = unravel(weights)
            key_equation, key_exact = jr.split(key)
            zero = jnp.zeros(())
            equation = by_equation(matching, data[1], key_equation) if self.equation else zero
            exact = by_permanent(matching, data[0], key_exact) if self.exact else zero
            return self.equation * equation + self.exact * exact, jnp.stack([equation, exact])

        def step(state, data):
            key, key_step = jr.split(jr.wrap_key_data(state.key))
            gradient, terms = jax.grad(losses, has_aux=True)(state.weights, data, key_step)
            gradient = jnp.where(jnp.all(jnp.isfinite(gradient)), gradient, 0.0)
            change, inner = optimizer.update(gradient, state.optimizer)
            weights = state.weights + change
            averaged = _MEMORY * state.averaged + (1 - _MEMORY) * weights
            terms = 0.98 * state.terms + 0.02 * terms
            return CloudState(state.count + 1, jr.key_data(key), weights, averaged, inner, terms)

        @jax.jit
        def chunk(state, data):
            return jax.lax.fori_loop(0, _CHUNK, lambda _, state: step(state, data), state)

        return chunk

    def parameters(self, state):
        """The averaged weights."""
        return state.averaged

    def losses(self, state):
        """Running means."""
        return {"equation": state.terms[0], "score": state.terms[1]}

    def solution(self, manifold, done):
        """The network."""
        _, unravel = self._network(jr.key(0))
        return CloudSolution(manifold, unravel(done.parameters[0]))

    def _optimizer(self):
        warm = min(100, self.steps // 4)
        rate = self.learning_rate
        schedule = optax.warmup_cosine_decay_schedule(0.0, rate, warm, self.steps, 0.01 * rate)
        return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))

    def _network(self, key):
        return ravel_pytree(Learned(matching_network(key, self.width, self.depth)))


def clouds(
    *,
    width: int = 32,
    depth: int = 2,
    steps: int = 3000,
    batch: int = 64,
    learning_rate: float = 4e-3,
    equation: float = 0.0,
    exact: float = 1.0,
) -> Clouds:
    """calor's recipe for point clouds.

    Args:
        width: of the network.
        depth: how often rows and columns exchange messages.
        steps: of Adam.
        batch: clouds in a step.
        learning_rate: at the start of a cosine schedule.
        equation: the weight of the heat equation, which costs more and teaches slower.
        exact: the weight of permanents of small clouds; zero learns from the equation alone.
    """
    for name, value in {"width": width, "depth": depth, "steps": steps, "batch": batch}.items():
        positive_integer(value, name, "recipes.clouds")
    if equation < 0 or exact < 0 or equation + exact == 0:
        raise ValueError(
            f"recipes.clouds: equation and exact must not be negative, nor both zero, got "
            f"{equation} and {exact}."
        )
    return Clouds(
        width=width,
        depth=depth,
        steps=steps,
        batch=batch,
        learning_rate=float(learning_rate),
        equation=float(equation),
        exact=float(exact),
    )
