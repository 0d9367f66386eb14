"""A first guess of what data look like: its score is known, and a network corrects it."""

from abc import abstractmethod

import equinox as eqx
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

    def prior(self, kernel: AbstractHeatKernel, t1: float, key: Key) -> AbstractPrior | None:
        """Where generation starts, if the guess knows: the law that the kernel noised until t1."""
        return None

    def smallest(self, places: Float[Array, "n d"]) -> float:
        """What places are divided by at least before a network sees them."""
        return 0.0

    def widths(self, features: Float[Array, "n c"]) -> tuple[float, float] | None:
        """A small and a large variance of the law, if times are to follow from them."""
        return None
