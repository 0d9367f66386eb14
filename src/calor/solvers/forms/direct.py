"""The paper's solution, log p = N(t, x), the network of its appendix B."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.types import Point, Scalar, Tangent
from ...heat.equation import Terms
from ...manifolds import AbstractManifold, AbstractSymmetricSpace
from ...store.stored import stored
from ...training.perceptrons import FourierEmbedding, ModifiedMLP, PowerEmbedding
from .base import AbstractRadialSolution, AbstractSolution


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

    def value(self, t: Scalar, features: Float[Array, " f"]) -> Scalar:
        """log p as a function of time and of what is embedded."""
        inside = jnp.log(t / self.t0) / jnp.log(self.t1 / self.t0)
        times = self.time_embedding(inside[None])
        return self.network(jnp.concatenate([features, inside[None], times]))

    @property
    def _seen(self) -> AbstractSolution:
        space: Any = self.manifold
        unordered = self.manifold.has_unordered_coordinates()
        return _InCoordinates(space, self) if unordered else _InSpace(space, self)

    def trained(self) -> tuple[Any, ...]:
        """All of it but the manifold."""
        return self.embedding, self.time_embedding, self.network

    def log_prob(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        """log p."""
        return self._seen.log_prob(t, x, x0)

    def log_prob_and_score(self, t: Scalar, x: Point, x0: Point) -> tuple[Scalar, Tangent]:
        """By automatic differentiation, in kernel coordinates where the embedding uses them."""
        return self._seen.log_prob_and_score(t, x, x0)

    def terms(self, t: Scalar, x: Point, x0: Point) -> Terms:
        """The terms of the equation."""
        return self._seen.terms(t, x, x0)

    def phi(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """log p in kernel coordinates."""
        return self._seen.phi(t, y)


class _InSpace(AbstractSolution):
    """Embedded is the place of x in flat space, as seen from the images of x0."""

    manifold: AbstractManifold
    network: DirectSolution

    def log_prob(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        """log p."""
        space: Any = self.manifold.covering()
        embedded = jax.vmap(lambda source: self.network.embedding(space.relative(x, source)))
        return self.network.value(t, jnp.mean(embedded(self.manifold.orbit(x0)), axis=0))


class _InCoordinates(AbstractRadialSolution):
    """Embedded are kernel coordinates."""

    manifold: AbstractSymmetricSpace
    network: DirectSolution

    def phi(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """log p in kernel coordinates."""
        return self.network.value(t, self.network.embedding(y))
