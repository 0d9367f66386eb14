"""What a recipe is.

A recipe is a frozen value that cuts the work into stages of small steps.  A stage starts from what
the stages before it found, `begin`, and its data, `data`, do not change; `calor.solve` runs the
steps, shows progress, saves and resumes.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ...core.types import Key
from ...heat.kernel import AbstractHeatKernel
from ...manifolds import AbstractManifold, AbstractSymmetricSpace
from ..forms.base import AbstractSolution

REVISION = 7
"""Raised when a solver changes what it finds: what was kept before is solved again."""


class Done(eqx.Module):
    """What the finished stages found."""

    parameters: Float[Array, "s p"]
    losses: Float[Array, " s"]


class AbstractRecipe(eqx.Module):
    """How to train; to write a new recipe, supply these methods."""

    precision: eqx.AbstractVar[str]
    """The floating point type to train in."""
    by_cover: eqx.AbstractVar[bool]
    """Whether a quotient is solved on its cover, by summing images, or itself."""

    @abstractmethod
    def check(self, manifold: Any) -> None:
        """Raise if the recipe cannot solve on this manifold."""

    @abstractmethod
    def interval(self, manifold: Any) -> tuple[float, float]:
        """t0 and t1: below t0 the short-time law is used, beyond t1 nothing is promised."""

    @abstractmethod
    def law(self, manifold: Any) -> AbstractHeatKernel:
        """The short-time law at t0 and below."""

    @abstractmethod
    def stages(self, manifold: Any) -> list[int]:
        """The number of steps in each stage."""

    @abstractmethod
    def begin(self, manifold: Any, stage: int, done: Done, key: Key) -> Any:
        """The state at the beginning of a stage, a pytree of arrays."""

    @abstractmethod
    def data(self, manifold: Any, stage: int, done: Done, key: Key) -> Any:
        """The data of a stage."""

    @abstractmethod
    def advance(self, manifold: Any) -> Callable[[Any, Any], Any]:
        """A function that takes state and data of a stage to the state after one step."""

    @abstractmethod
    def parameters(self, state: Any) -> Float[Array, " p"]:
        """What to keep of a stage."""

    @abstractmethod
    def losses(self, state: Any) -> dict[str, Array]:
        """The terms of the loss."""

    @abstractmethod
    def solution(self, manifold: Any, done: Done) -> AbstractSolution:
        """What was learned."""


def check_space(manifold: AbstractManifold) -> None:
    """Raise unless the manifold has kernel coordinates."""
    if not isinstance(manifold, AbstractSymmetricSpace):
        raise ValueError(
            f"solve: {manifold} has no kernel coordinates. The recipes solve on Sphere, Torus, "
            "Hyperbolic, SPD and Euclidean, and on finite quotients and products of them."
        )


def check_times(t0: float | None, t1: float | None, owner: str) -> None:
    """Raise unless the times that are given are an interval."""
    for name, value in {"t0": t0, "t1": t1}.items():
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{owner}: {name} must be positive and finite, got {value}.")
    if t0 is not None and t1 is not None and t0 >= t1:
        raise ValueError(f"{owner}: t0 must be below t1, got t0 = {t0} and t1 = {t1}.")
