"""A first guess of what data look like: its score is known, and a network corrects it."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.types import Key, Scalar
from ...heat.kernel import AbstractHeatKernel
from ..prior import AbstractPrior


class AbstractGuess(eqx.Module):
    """A law of embedded points, given the features that come with them."""

    @abstractmethod
    def score(
        self, z: Float[Array, " d"], t: Scalar, features: Float[Array, " c"]
    ) -> Float[Array, " d"]:
        """The gradient of the logarithm of the density at time t."""

    def has_volume(self) -> bool:
        """Whether the score of points has a volume term beside that of places."""
        return False

    def prior(self, kernel: AbstractHeatKernel, t1: float, key: Key) -> AbstractPrior | None:
        """Where generation starts, if the guess knows: the law that the kernel noised until t1."""
        return None

    def smallest(self, places: Float[Array, "n d"]) -> float:
        """What places are divided by at least before a network sees them."""
        return 0.0

    def widths(self, features: Float[Array, "n c"]) -> tuple[float, float] | None:
        """A small and a large variance of the law, if times are to follow from them."""
        return None


class AbstractChartLaw(AbstractGuess):
    """A guess that has a density and draws, on a manifold that one chart covers."""

    @abstractmethod
    def count(self) -> int:
        """How many Gaussians it has."""

    @abstractmethod
    def log_prob(
        self, z: Float[Array, " d"], noise: Scalar, features: Float[Array, " c"]
    ) -> Scalar:
        """The log-density of places after noise that has so much variance 2t in flat space."""

    @abstractmethod
    def sample(self, key: Key, noise: Scalar, features: Float[Array, " c"]) -> Float[Array, " d"]:
        """A draw of a place."""


def spread(variances: Float[Array, "*n d"], t: Scalar, growth: float) -> Float[Array, "*n d"]:
    """Variances at time t, if curvature drives noise apart at such a rate.

    They obey dv/dt = 2 + growth v.
    """
    if growth == 0:
        return variances + 2 * t
    return jnp.exp(growth * t) * variances + 2 / growth * jnp.expm1(growth * t)
