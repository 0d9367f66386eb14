"""Affine maps, the layers of all networks."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ..core.types import Key
from ..store.stored import stored


@stored("Dense")
class Dense(eqx.Module):
    """An affine map x -> x W + b, with random weights that keep variances and spread biases."""

    weight: Float[Array, "i o"]
    bias: Float[Array, " o"]

    def __call__(self, x: Float[Array, "... i"]) -> Float[Array, "... o"]:
        """Apply it along the last axis."""
        return x @ self.weight + self.bias


def dense(key: Key, inputs: int, outputs: int, spread: float = 1.0, scale: float = 1.0) -> Dense:
    """A random affine map, `scale` times one that keeps variances.

    Its biases are uniform in [-spread, spread].
    """
    key_weight, key_bias = jr.split(key)
    weight = scale * (jr.normal(key_weight, (inputs, outputs)) / jnp.sqrt(max(inputs, 1)))
    return Dense(weight, jr.uniform(key_bias, (outputs,), minval=-spread, maxval=spread))
