"""The paper's networks: a modified perceptron and embeddings of its input.

The perceptron is that of Wang et al., "An expert's guide to training physics-informed neural
networks" (2023).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ..core.types import Key, Scalar
from ..store.stored import stored
from .dense import Dense, dense


@stored("ModifiedMLP")
class ModifiedMLP(eqx.Module):
    """A perceptron whose layers are gated between two encodings of the input.

    With U, V two layers applied to the input, each hidden layer h becomes h U + (1 - h) V.
    """

    gates: tuple[Dense, Dense]
    layers: tuple[Dense, ...]
    log_scales: tuple[Float[Array, " o"], ...]
    """Random weight factorization: the columns of a layer's weights are scaled by exp(these)."""
    out: Dense

    def __call__(self, x: Float[Array, " i"]) -> Scalar:
        """The value at one input."""
        first, second = (jnp.tanh(gate(x)) for gate in self.gates)
        hidden = x
        for layer, log_scale in zip(self.layers, self.log_scales, strict=True):
            hidden = jnp.tanh((hidden @ layer.weight) * jnp.exp(log_scale) + layer.bias)
            hidden = hidden * first + (1 - hidden) * second
        return self.out(hidden)[0]


def modified_mlp(key: Key, inputs: int, width: int, depth: int, factorize: bool) -> ModifiedMLP:
    """A random modified perceptron of `depth` hidden layers.

    With `factorize`, weights are written as exp(s) V with s ~ N(1, 0.1) and both are trained.
    """
    key_gates, key_layers, key_scales, key_out = jr.split(key, 4)
    first, second = (dense(k, inputs, width, spread=0.0) for k in jr.split(key_gates))
    sizes = [inputs, *[width] * depth]
    layers, log_scales = [], []
    for k, k_scale, before, after in zip(
        jr.split(key_layers, depth), jr.split(key_scales, depth), sizes, sizes[1:], strict=False
    ):
        layer = dense(k, before, after, spread=0.0)
        log_scale = (1 + 0.1 * jr.normal(k_scale, (after,))) if factorize else jnp.zeros(after)
        layers.append(Dense(layer.weight * jnp.exp(-log_scale), layer.bias))
        log_scales.append(log_scale)
    return ModifiedMLP(
        (first, second), tuple(layers), tuple(log_scales), dense(key_out, width, 1, spread=0.0)
    )


@stored("FourierEmbedding")
class FourierEmbedding(eqx.Module):
    """cos(B z) and sin(B z) for random frequencies B."""

    frequencies: Float[Array, "i m"]

    def __call__(self, z: Float[Array, " i"]) -> Float[Array, " o"]:
        """The features of one input."""
        phases = z @ self.frequencies
        return jnp.concatenate([jnp.cos(phases), jnp.sin(phases)])


@stored("PowerEmbedding")
class PowerEmbedding(eqx.Module):
    """S_k(r) = (sum |r_i|^k)^(1/k) and A_k(r) = (sum over pairs |r_i - r_j|^k)^(1/k)."""

    exponents: Float[Array, " m"]

    def __call__(self, r: Float[Array, " n"]) -> Float[Array, " o"]:
        """The features of one unordered set of numbers."""
        i, j = jnp.triu_indices(len(r), 1)
        return jnp.concatenate([self._norms(r), self._norms(r[i] - r[j])])

    def _norms(self, values):
        # |r| is rounded off below 0.01, where the powers below two have no second derivative.  The
        # scale, which cancels, only keeps powers in range.
        sizes = jnp.sqrt(values**2 + 1e-4)
        scale = jax.lax.stop_gradient(jnp.max(sizes))
        powers = jax.vmap(lambda k: jnp.sum((sizes / scale) ** k) ** (1 / k))
        return scale * powers(self.exponents)
