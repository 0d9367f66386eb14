"""What a recipe is: settings, and a plan for each manifold.

A recipe is a frozen value that a user chooses.  Its plan for a manifold holds what follows from
both, the short-time law, the solved interval and how the solution is written, and finds the
solution; `calor.solve` runs it, certifies what it found and keeps it.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.random as jr
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ...core.checks import positive_integer
from ...core.registry import Registry
from ...core.types import Key, Scalar
from ...heat.kernel import AbstractHeatKernel
from ...manifolds import AbstractManifold, AbstractSymmetricSpace
from ...training import levenberg
from ...training.levenberg import Done
from ...training.loop import train
from ...training.run import Run
from ...training.sets import SetNetwork
from ...training.settings import Training
from ...training.steps import AbstractLoss
from ..forms.base import AbstractSolution

REVISION = 9
"""Raised when a solver changes what it finds: what was kept before is solved again."""

RECIPES = Registry("recipe")
"""The recipes that manifolds are solved with by default."""


class AbstractPlan(eqx.Module):
    """A recipe for one manifold; to write a new one, supply these fields and the method."""

    manifold: eqx.AbstractVar[AbstractManifold]
    law: eqx.AbstractVar[AbstractHeatKernel]
    """The short-time law at t0 and below."""
    interval: eqx.AbstractVar[tuple[float, float]]
    """t0 and t1: below t0 the short-time law is used, beyond t1 nothing is promised."""

    @abstractmethod
    def find(self, *, key: Key, run: Run) -> tuple[AbstractSolution, float]:
        """Solve the equation; returns the solution and the seconds that it took."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AbstractRecipe(ABC):
    """How to solve; a new recipe is a frozen dataclass of settings with this method."""

    name: ClassVar[str]
    """As it is called in files."""
    by_cover: ClassVar[bool]
    """Whether a quotient is solved on its cover, by summing images, or itself."""

    @abstractmethod
    def plan(self, manifold: Any) -> AbstractPlan:
        """The plan for a manifold; raises if the recipe cannot solve on it."""

    def settings(self) -> dict[str, Any]:
        """The settings, as JSON."""
        return dataclasses.asdict(self)

    def check_counts(self, *names: str) -> None:
        """Raise unless these settings are positive integers."""
        for name in names:
            positive_integer(vars(self)[name], name, f"recipes.{self.name}")


class AbstractLeastSquares(AbstractPlan, levenberg.AbstractStages):
    """Stages of the Levenberg-Marquardt method, small networks in double precision."""

    template: eqx.AbstractVar[SetNetwork]
    """A network of the size that is solved for."""
    form: eqx.AbstractVar[Any]
    """How the solution is written in terms of it."""

    @abstractmethod
    def solution(self, done: Done) -> AbstractSolution:
        """What the stages found."""

    def find(self, *, key: Key, run: Run) -> tuple[AbstractSolution, float]:
        """Go through all stages."""
        with jax.enable_x64(True):
            done, seconds = levenberg.minimize(self, key=key, run=run)
            return self.solution(done), seconds

    def network(self, parameters: Float[Array, " p"]) -> SetNetwork:
        """The network that has these parameters."""
        return ravel_pytree(self.template)[1](parameters)

    def residual(self, function: Callable[[Any, SetNetwork, Any], Scalar]) -> levenberg.Residual:
        """A residual of the parameters from one of the form, a network and a row."""
        return lambda parameters, row: function(self.form, self.network(parameters), row)


class AbstractDescent(AbstractPlan):
    """Stochastic gradients, in single precision."""

    @abstractmethod
    def start(self, key: Key) -> AbstractSolution:
        """A solution with random weights."""

    @abstractmethod
    def loss(self, key: Key) -> AbstractLoss:
        """What is minimized."""

    @abstractmethod
    def training(self) -> Training:
        """How it is."""

    def find(self, *, key: Key, run: Run) -> tuple[AbstractSolution, float]:
        """Train a network."""
        key_start, key_steps = jr.split(jr.fold_in(key, 0))
        with jax.enable_x64(False):
            solution, history = train(
                self.start(key_start),
                self.loss(jr.fold_in(key, 1)),
                self.training(),
                key=key_steps,
                run=run,
                part=lambda solution: solution.trained(),
            )
        return solution, float(history.seconds[-1])


def descent(
    recipe: Any, *, average: float, optimizer: Callable[[Training], optax.GradientTransformation]
) -> Training:
    """The budget of a recipe with `steps`, `batch` and `learning_rate`, judged at the end."""
    return Training(
        steps=recipe.steps,
        batch=recipe.batch,
        learning_rate=recipe.learning_rate,
        average=average,
        validate_every=recipe.steps,
        optimizer=optimizer,
        # A point that float32 cannot hold, one in many thousands on SPD(10), is passed over.
        skip_nonfinite=True,
    )


def parameters_of(network: SetNetwork) -> Float[Array, " p"]:
    """All parameters of a network, in one row."""
    return ravel_pytree(network)[0]


def windows(t0: float, t1: float, factor: Callable[[float], int]) -> tuple[float, ...]:
    """The ends of windows of time, each longer than the one before by a factor.

    Raises unless t1 is later than t0.

    Args:
        t0: the start of the first.
        t1: the end of the last, which may be longer.
        factor: by which a window that starts at a time ends later.
    """
    if t0 >= t1:
        raise ValueError(
            f"solve: the network takes over at t0 = {t0:.3g}, so t1 must be later, got "
            f"t1 = {t1:.3g}."
        )
    edges = [t0]
    while 1.5 * factor(edges[-1]) * edges[-1] < t1:
        edges.append(factor(edges[-1]) * edges[-1])
    return (*edges, t1)


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
