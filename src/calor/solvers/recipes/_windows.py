"""calor's own recipe: small networks in float64 and Levenberg-Marquardt.

On compact spaces time is cut into windows, each starting where the one before ends; on others the
whole interval is solved at once, in rounds of fresh points.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...core.registry import Registry
from ...core.types import Key
from ...heat.early.laws import short_time_law
from ...heat.kernel import AbstractHeatKernel
from ...manifolds import SPD, AbstractManifold, AbstractSymmetricSpace
from ...training import levenberg
from ...training.levenberg import Done
from ...training.sets import SetNetwork
from ..forms import collocation
from ..forms.rows import Rows
from ..forms.symmetric import RadialSolution, Settling, Spreading, normalized
from .base import (
    RECIPES,
    AbstractLeastSquares,
    AbstractPlan,
    AbstractRecipe,
    check_space,
    check_times,
    parameters_of,
    windows,
)

# The quadrature of the total mass has 20 nodes or more in each of so many coordinates.
_MOST_COORDINATES = 4

_PLANS = Registry("plan of calor's own recipe")
"""With the `end` of the solved interval by default."""


@RECIPES.register(AbstractManifold)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Default(AbstractRecipe):
    """calor's own recipe: small float64 networks and Levenberg-Marquardt."""

    name: ClassVar[str] = "default"
    by_cover: ClassVar[bool] = True

    t0: float | None = None
    """Where the network takes over from the short-time law on compact spaces (default 0.1);
    other spaces have none, the network is exact as t -> 0."""
    t1: float | None = None
    """End of the solved interval (default 5, on SPD(n) 1)."""
    points: int = 1200
    """Collocation points of a stage."""
    steps: int | None = None
    """Levenberg-Marquardt steps of a stage (default 200 on compact spaces, else 20)."""
    rounds: int = 6
    """Sets of points on spaces without cut locus."""
    starts: int = 2
    """Random starts on compact spaces, of which the best is kept."""

    def __post_init__(self) -> None:
        given = () if self.steps is None else ("steps",)
        self.check_counts("points", "rounds", "starts", *given)
        check_times(self.t0, self.t1, "recipes.default")

    def plan(self, manifold: Any) -> AbstractPlan:
        """In windows on compact spaces, in rounds on others; it needs kernel coordinates."""
        check_space(manifold)
        entry = _PLANS.find(manifold)
        assert entry is not None
        t1 = self.t1 or entry.facts["end"]
        # With enough orders that the error of the law at t0 is far below the one of the network.
        return entry.made(self, manifold, short_time_law(manifold, order=6), t1)


class Windows(AbstractLeastSquares):
    """Compact spaces: windows of time, each starting where the one before ends.

    The first stages are random starts of the first window.
    """

    manifold: AbstractSymmetricSpace
    law: AbstractHeatKernel
    interval: tuple[float, float] = eqx.field(static=True)
    template: SetNetwork
    form: Settling
    recipe: Default = eqx.field(static=True)
    edges: tuple[float, ...] = eqx.field(static=True)
    """Ends of the windows: each is twice as long as the one before, the last longer."""

    def steps(self) -> tuple[int, ...]:
        """One stage for each random start, then one for each window."""
        steps, count = self.recipe.steps or 200, len(self.edges) - 1
        # The kernel becomes smoother: later windows need fewer steps.
        later = [max(steps // 2, 1)] * (count - 2)
        return (*[max(steps // 4, 1)] * self.recipe.starts, *[steps] * min(count, 2), *later)

    def residuals(self) -> dict[str, levenberg.Residual]:
        """The equation, and the values where a window starts."""
        parts = {"equation": collocation.equation, "initial": collocation.initial}
        return {name: self.residual(part) for name, part in parts.items()}

    def begin(self, stage: int, done: Done, key: Key) -> levenberg.Step:
        """Random weights, the best of the random starts, or what the window before found."""
        starts = self.recipe.starts
        if stage < starts:
            first = parameters_of(self.form.network(key))
        elif stage == starts:
            first = done.parameters[jnp.argmin(done.losses[:stage])]
        else:
            first = done.parameters[stage - 1]
        return levenberg.start(first, 2)

    def rows(self, stage: int, done: Done, key: Key) -> Sequence[Rows]:
        """Rows of the equation at collocation points, and of the initial values."""
        window = max(stage - self.recipe.starts, 0)
        edges = jnp.asarray(self.edges)
        ends = start, end = edges[window], edges[window + 1]
        draw, count = collocation.points_near_and_anywhere, self.recipe.points
        key_inside, key_initial = jr.split(key)
        t, y = draw(self.manifold, count, start, end, key_inside)
        inside = collocation.interior(self.form, t, y, ends)
        _, y = draw(self.manifold, max(count // 4, 100), start, start, key_initial)
        if window == 0:
            return inside, collocation.initial_law(self.form, self.law, y, ends)  # pyright: ignore
        before = self.network(done.parameters[stage - 1])
        known = edges[window - 1 : window + 2]
        return inside, collocation.initial_window(self.form, before, y, known)

    def solution(self, done: Done) -> RadialSolution:
        """The networks of all windows."""
        networks = jax.vmap(self.network)(done.parameters[self.recipe.starts :])
        return normalized(self.form, self.edges, networks)


def _has_cut_locus(manifold: Any) -> bool:
    return math.isfinite(manifold.injectivity_radius())


@_PLANS.register(AbstractSymmetricSpace, when=_has_cut_locus, end=5.0)
def _windows(recipe: Default, manifold: Any, law: AbstractHeatKernel, t1: float) -> Windows:
    t0 = recipe.t0 or 0.1
    if manifold.coordinate_count() > _MOST_COORDINATES:
        raise ValueError(
            f"solve: the kernel of {manifold} has {manifold.coordinate_count()} coordinates, "
            f"too many for a quadrature of its mass (at most {_MOST_COORDINATES}); a torus can "
            "be solved as a Product of circles, Torus(1)."
        )
    edges, form = windows(t0, t1, lambda t: 2), Settling(manifold)
    with jax.enable_x64(True):
        template = form.network(jr.key(0))
    return Windows(manifold, law, (t0, t1), template, form, recipe, edges)


class Rounds(AbstractLeastSquares):
    """Spaces without cut locus: the whole interval at once, in rounds of fresh points."""

    manifold: AbstractSymmetricSpace
    law: AbstractHeatKernel
    interval: tuple[float, float] = eqx.field(static=True)
    template: SetNetwork
    form: Spreading
    recipe: Default = eqx.field(static=True)

    def steps(self) -> tuple[int, ...]:
        """One stage for each round."""
        return (self.recipe.steps or 20,) * self.recipe.rounds

    def residuals(self) -> dict[str, levenberg.Residual]:
        """The equation alone: the initial value is exact."""
        return {"equation": self.residual(collocation.equation)}

    def begin(self, stage: int, done: Done, key: Key) -> levenberg.Step:
        """Random weights, or what the round before found."""
        first = parameters_of(self.form.network(key))
        return levenberg.start(first if stage == 0 else done.parameters[stage - 1], 1)

    def rows(self, stage: int, done: Done, key: Key) -> Sequence[Rows]:
        """Rows of the equation at points of Brownian motion."""
        start, end = map(jnp.asarray, self.interval)
        key_inside, _ = jr.split(key)
        count = self.recipe.points
        t, y = collocation.points_of_walks(self.manifold, count, end / 200, end, key_inside)
        return (collocation.interior(self.form, t, y, (start, end)),)

    def solution(self, done: Done) -> RadialSolution:
        """The network of the last round."""
        networks = jax.vmap(self.network)(done.parameters[-1:])
        return normalized(self.form, self.interval, networks)


@_PLANS.register(SPD, end=1.0)
@_PLANS.register(AbstractSymmetricSpace, end=5.0)
def _rounds(recipe: Default, manifold: Any, law: AbstractHeatKernel, t1: float) -> Rounds:
    with jax.enable_x64(True):
        # The size of the second order in time: half of what the first leaves of the equation.
        times = jnp.asarray(t1 / 200), jnp.asarray(t1)
        t, y = collocation.points_of_walks(manifold, 256, *times, jr.key(0))
        ends = jnp.zeros(()), jnp.ones(())
        left = collocation.interior(Spreading(manifold, 1.0), t, y, ends)
        size = float(np.mean(np.abs(left["base"] / t))) / 2
        form = Spreading(manifold, float(f"{max(size, 1e-3):.2g}"))
        return Rounds(manifold, law, (0.0, t1), form.network(jr.key(0)), form, recipe)
