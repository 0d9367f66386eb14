r"""A mixture of Gaussians around centres in a flat space, and how heat spreads it.

Gaussians of variance 2 tau_j around centres c_j are, a time t later, Gaussians of variance
2 (t + tau_j), so the score of the noised mixture is known at all times,

    grad log p_t(z) = sum_j a_j (c_j - z) / (2 (t + tau_j)),     a_j the share of part j at z.

Fitted to embedded data it is a first guess of their score.  It knows where the data are; a network
that corrects it is left with their shape.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ...core.types import Key, Scalar
from ...store.stored import stored
from .base import AbstractGuess

# Rounds of expectation and maximization, and the most points that they look at.
_ROUNDS, _POINTS = 30, 100_000


@stored("Mixture")
class Mixture(AbstractGuess):
    """Parts with weights, centres and widths, near an n-dimensional set in R^d."""

    centres: Float[Array, "m d"]
    times: Float[Array, " m"]
    log_weights: Float[Array, " m"]
    dim: int = eqx.field(static=True)

    def log_parts(self, z: Float[Array, " d"], t: Scalar) -> Float[Array, " m"]:
        """The logarithm of each part's density at time t, up to a common constant."""
        times = self.times + t
        squares = jnp.sum((self.centres - z) ** 2, axis=1)
        return self.log_weights - squares / (4 * times) - self.dim / 2 * jnp.log(times)

    def score(
        self, z: Float[Array, " d"], t: Scalar, features: Float[Array, " c"]
    ) -> Float[Array, " d"]:
        """The gradient of the logarithm of the density at time t, whatever the condition."""
        pull = jax.nn.softmax(self.log_parts(z, t)) / (2 * (self.times + t))
        return pull @ self.centres - jnp.sum(pull) * z


def fit_mixture(
    places: Float[Array, "n d"], dim: int, parts: int, least: float, key: Key
) -> Mixture:
    """A mixture of large likelihood, by EM from random data points.

    Args:
        places: the data.
        dim: the dimension n of the set that they lie on.
        parts: how many Gaussians.
        least: the smallest tau.
        key: a random key.
    """
    few = places[jr.permutation(key, len(places))[:_POINTS]]
    few = few - (middle := jnp.mean(few, axis=0))  # squares below are differences
    centres = few[:parts]
    spread = jnp.mean(jnp.sum(few * few, axis=1)) / (2 * dim)
    usual = jnp.maximum(spread * len(centres) ** (-2 / dim), least)
    mixture = Mixture(
        centres, jnp.full(len(centres), usual), jnp.zeros(len(centres), few.dtype), dim
    )

    @jax.jit
    def improve(mixture: Mixture) -> Mixture:
        nowhere = jnp.zeros((), few.dtype)
        share = jax.nn.softmax(jax.vmap(lambda z: mixture.log_parts(z, nowhere))(few), axis=1)
        mass = jnp.sum(share, axis=0) + 1e-6
        centres = (share.T @ few + 1e-6 * mixture.centres) / mass[:, None]
        squares = share.T @ jnp.sum(few * few, axis=1) / mass - jnp.sum(centres * centres, axis=1)
        # With one more observation of the usual width, so that few points do not seem too narrow.
        times = (mass * squares / (2 * dim) + usual) / (mass + 1)
        return Mixture(centres, jnp.maximum(times, least), jnp.log(mass), dim)

    for _ in range(_ROUNDS):
        mixture = improve(mixture)
    return Mixture(mixture.centres + middle, mixture.times, mixture.log_weights, dim)
