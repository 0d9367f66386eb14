"""The paper's solution, log p = N(t, x), the network of its appendix B."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.types import Scalar
from ...heat.equation import radial_terms
from ...manifolds import AbstractManifold, AbstractQuotient, calculus
from ...store.stored import stored
from ...training.perceptrons import FourierEmbedding, ModifiedMLP, PowerEmbedding
from .base import AbstractSolution

# The paper's solution.


@stored("DirectSolution")
class DirectSolution(AbstractSolution):
    """log p = N(embedding of x as seen from x0, embedding of t).

    The embedding is Fourier's in the flat space around the manifold, averaged over the images of
    x0 on a quotient, or, for unordered kernel coordinates, the powers S_k and A_k.
    """

    manifold: AbstractManifold
    embedding: FourierEmbedding | PowerEmbedding
    time_embedding: FourierEmbedding
    network: ModifiedMLP
    t0: float = eqx.field(static=True)
    t1: float = eqx.field(static=True)

    def phi(self, t: Scalar, features: Float[Array, " f"]) -> Scalar:
        """log p as a function of time and embedded coordinates."""
        inside = jnp.log(t / self.t0) / jnp.log(self.t1 / self.t0)
        times = self.time_embedding(inside[None])
        return self.network(jnp.concatenate([features, inside[None], times]))

    def log_prob(self, t, x, x0):
        """log p."""
        if isinstance(self.embedding, PowerEmbedding):
            return self._radial(t, self.manifold.kernel_coordinates(x, x0))  # pyright: ignore
        sources, space = x0[None], self.manifold
        if isinstance(self.manifold, AbstractQuotient):
            sources, space = self.manifold.orbit(x0), self.manifold.cover

        def features(source):
            return self.embedding(space.relative(x, source))  # pyright: ignore

        return self.phi(t, jnp.mean(jax.vmap(features)(sources), axis=0))

    def _radial(self, t, y):
        return self.phi(t, self.embedding(y))

    def log_prob_and_score(self, t, x, x0):
        """By automatic differentiation, in kernel coordinates where the embedding uses them."""
        if isinstance(self.embedding, PowerEmbedding):
            y, lift = self.manifold.lifted_coordinates(x, x0)  # pyright: ignore
            value, slope = jax.value_and_grad(self._radial, 1)(t, y)
            return value, lift(slope)
        frame, value = self.manifold.frame(x), lambda x: self.log_prob(t, x, x0)
        return value(x), calculus.gradient(value, x, frame)

    def terms(self, t, x, x0):
        """The terms of the equation."""
        if isinstance(self.embedding, PowerEmbedding):
            y = self.manifold.kernel_coordinates(x, x0)  # pyright: ignore
            return radial_terms(self._radial, self.manifold, t, y)  # pyright: ignore
        return super().terms(t, x, x0)
