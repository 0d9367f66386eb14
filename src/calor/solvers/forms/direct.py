"""The paper's solution, log p = N(embedding of x as seen from x0, embedding of t).

N is the network of the paper's appendix B.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.types import Point, Scalar
from ...manifolds import AbstractManifold, AbstractSymmetricSpace
from ...store.stored import stored
from ...training.perceptrons import FourierEmbedding, ModifiedMLP, PowerEmbedding
from .base import AbstractRadialSolution, AbstractSolution


def direct_solution(manifold: Any, **parts: Any) -> "AbstractDirect":
    """In kernel coordinates where those are unordered, else in the flat space around."""
    unordered = manifold.has_unordered_coordinates()
    return (DirectInCoordinates if unordered else DirectInSpace)(manifold, **parts)


@stored("DirectSolution", build=direct_solution)
class AbstractDirect(AbstractSolution):
    """A network of what is embedded, which a leaf says."""

    time_embedding: eqx.AbstractVar[FourierEmbedding]
    network: eqx.AbstractVar[ModifiedMLP]
    embedding: eqx.AbstractVar[Any]
    t0: eqx.AbstractVar[float]
    t1: eqx.AbstractVar[float]

    def value(self, t: Scalar, features: Float[Array, " f"]) -> Scalar:
        """log p as a function of time and of what is embedded."""
        inside = jnp.log(t / self.t0) / jnp.log(self.t1 / self.t0)
        times = self.time_embedding(inside[None])
        return self.network(jnp.concatenate([features, inside[None], times]))

    def trained(self) -> tuple[Any, ...]:
        """All of it but the manifold."""
        return self.embedding, self.time_embedding, self.network


class DirectInSpace(AbstractDirect):
    """Embedded is the place of x in flat space, averaged over the images of x0 on a quotient."""

    manifold: AbstractManifold
    embedding: FourierEmbedding
    time_embedding: FourierEmbedding
    network: ModifiedMLP
    t0: float = eqx.field(static=True)
    t1: float = eqx.field(static=True)

    def log_prob(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        """log p."""
        space: Any = self.manifold.covering()
        embedded = jax.vmap(lambda source: self.embedding(space.relative(x, source)))
        return self.value(t, jnp.mean(embedded(self.manifold.orbit(x0)), axis=0))


class DirectInCoordinates(AbstractDirect, AbstractRadialSolution):
    """Embedded are unordered kernel coordinates, by the powers S_k and A_k."""

    manifold: AbstractSymmetricSpace
    embedding: PowerEmbedding
    time_embedding: FourierEmbedding
    network: ModifiedMLP
    t0: float = eqx.field(static=True)
    t1: float = eqx.field(static=True)

    def phi(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """log p in kernel coordinates."""
        return self.value(t, self.embedding(y))
