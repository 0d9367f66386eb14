"""calor's own recipe: small networks in float64 and Levenberg-Marquardt.

On compact spaces time is cut into windows, each starting where the one before ends; on others the
whole interval is solved at once, in rounds of fresh points.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.flatten_util import ravel_pytree

from ...core.checks import positive_integer
from ...heat.early.laws import short_time_law
from ...manifolds import calculus
from ...training import levenberg
from ..forms import collocation
from ..forms.symmetric import RadialSolution, Settling, Spreading, normalized
from .base import AbstractRecipe, check_space, check_times

# The quadrature of the total mass has 20 nodes or more in each of so many coordinates.
_MOST_COORDINATES = 4


class Default(AbstractRecipe):
    """Small float64 networks and Levenberg-Marquardt; see `default` for the settings."""

    t0: float | None = eqx.field(static=True)
    t1: float | None = eqx.field(static=True)
    points: int = eqx.field(static=True)
    steps: int | None = eqx.field(static=True)
    rounds: int = eqx.field(static=True)
    starts: int = eqx.field(static=True)
    precision: str = eqx.field(static=True, default="float64")
    by_cover: bool = eqx.field(static=True, default=True)

    def check(self, manifold):
        """It needs kernel coordinates and, to set the mass to one, few of them if compact."""
        check_space(manifold)
        t0, t1 = self.interval(manifold)
        if t0 >= t1:
            raise ValueError(
                f"solve: the network takes over at t0 = {t0}, so t1 must be later, got t1 = {t1}."
            )
        if _has_cut_locus(manifold) and manifold.coordinate_count() > _MOST_COORDINATES:
            raise ValueError(
                f"solve: the kernel of {manifold} has {manifold.coordinate_count()} coordinates, "
                f"too many for a quadrature of its mass (at most {_MOST_COORDINATES}); a torus can "
                "be solved as a Product of circles, Torus(1)."
            )

    def interval(self, manifold):
        """From t0 on compact spaces, from zero on others."""
        t1 = self.t1 or (5.0 if len(manifold.grouping()) == 1 else 1.0)
        return (self.t0 or 0.1, t1) if _has_cut_locus(manifold) else (0.0, t1)

    def law(self, manifold: Any) -> Any:
        """With enough orders that its error at t0 is far below the one of the network."""
        return short_time_law(manifold, order=6)

    def stages(self, manifold):
        """On compact spaces one for each random start, then one for each window; else rounds."""
        steps = self.steps or (200 if _has_cut_locus(manifold) else 20)
        if not _has_cut_locus(manifold):
            return [steps] * self.rounds
        windows = len(self._edges(manifold)) - 1
        # The kernel becomes smoother: later windows need fewer steps.
        later = [max(steps // 2, 1)] * (windows - 2)
        return [max(steps // 4, 1)] * self.starts + [steps] * min(windows, 2) + later

    def begin(self, manifold, stage, done, key):
        """Random weights, the best of the random starts, or what the stage before found."""
        blocks = 2 if _has_cut_locus(manifold) else 1
        if stage == 0 or (blocks == 2 and stage < self.starts):
            parameters, _ = self._network(manifold, key)
        elif blocks == 2 and stage == self.starts:
            parameters = done.parameters[jnp.argmin(done.losses[:stage])]
        else:
            parameters = done.parameters[stage - 1]
        return levenberg.start(parameters, blocks)

    def data(self, manifold, stage, done, key):
        """Rows of the equation at collocation points and, on compact spaces, of initial values."""
        form, window = self._form(manifold), self._window(manifold, stage)
        edges = jnp.asarray(self._edges(manifold))
        start, end = edges[window], edges[window + 1]
        key_inside, key_initial = jr.split(key)
        first = jnp.where(start > 0, start, end / 200)
        t, y = collocation.points(manifold, self.points, first, end, key_inside)
        rows = [collocation.interior(form, t, y, start, end)]
        if isinstance(form, Settling):
            count = max(self.points // 4, 100)
            _, y = collocation.points(manifold, count, start, start, key_initial)
            if window == 0:
                values = collocation.initial_law(form, self.law(manifold), y, start, end)
            else:
                _, unravel = self._network(manifold, jr.key(0))
                before = unravel(done.parameters[stage - 1])
                values = collocation.initial_window(form, before, y, edges[window - 1 : window + 2])
            rows.append(values)
        return rows

    def advance(self, manifold):
        """A step of Levenberg-Marquardt."""
        _, unravel = self._network(manifold, jr.key(0))
        form = self._form(manifold)

        def equation(parameters, row):
            network = unravel(parameters)

            def u(t, y):
                return form.correction(network, t, y, row["start"], row["end"])

            change, slope = jax.grad(u, (0, 1))(row["t"], row["y"])
            basis = jnp.eye(len(slope), dtype=slope.dtype)
            laplacian = calculus.laplacian(lambda y: u(row["t"], y), row["y"], basis, row["drift"])
            residual = change - laplacian - jnp.sum(slope * slope) + row["base"]
            return row["weight"] * residual

        def initial(parameters, row):
            start, end = row["start"], row["end"]
            value = form.correction(unravel(parameters), start, row["y"], start, end)
            error = value - row["value"]
            return row["weight"] * jnp.where(row["beyond"], jnp.maximum(error, 0.0), error)

        blocks = [equation, initial] if isinstance(form, Settling) else [equation]
        return jax.jit(lambda state, rows: levenberg.advance(blocks, rows, state))

    def parameters(self, state):
        """The weights."""
        return state.parameters

    def losses(self, state):
        """Mean squares of the weighted residuals."""
        return dict(zip(("equation", "initial"), state.losses, strict=False))

    def solution(self, manifold, done):
        """The networks of all windows, or of the last round."""
        return normalized(self._solution(manifold, done, len(self._edges(manifold)) - 1))

    def _solution(self, manifold, done, windows):
        _, unravel = self._network(manifold, jr.key(0))
        last = self.starts + windows if _has_cut_locus(manifold) else self.rounds
        edges = self._edges(manifold)[: windows + 1]
        networks = jax.vmap(unravel)(done.parameters[last - windows : last])
        return RadialSolution(
            manifold, self._form(manifold), edges, networks, jnp.zeros((windows, 2))
        )

    def _edges(self, manifold):
        """Ends of the windows of time: each twice as long as the one before, the last longer."""
        t0, t1 = self.interval(manifold)
        if t0 == 0:
            return (0.0, t1)
        edges = [t0]
        while 3 * edges[-1] < t1:
            edges.append(2 * edges[-1])
        return (*edges, t1)

    def _window(self, manifold, stage):
        return max(stage - self.starts, 0) if _has_cut_locus(manifold) else 0

    def _network(self, manifold, key):
        return ravel_pytree(self._form(manifold).network(key))

    def _form(self, manifold):
        if _has_cut_locus(manifold):
            return Settling(manifold)
        # The size of the second order in time: half of what the first leaves of the equation.
        t1 = self.interval(manifold)[1]
        t, y = collocation.points(manifold, 256, jnp.asarray(t1 / 200), jnp.asarray(t1), jr.key(0))
        left = collocation.interior(Spreading(manifold, 1.0), t, y, jnp.zeros(()), jnp.ones(()))
        size = float(np.mean(np.abs(left["base"] / t))) / 2
        return Spreading(manifold, float(f"{max(size, 1e-3):.2g}"))


def default(
    *,
    t0: float | None = None,
    t1: float | None = None,
    points: int = 1200,
    steps: int | None = None,
    rounds: int = 6,
    starts: int = 2,
) -> Default:
    """calor's own recipe.

    Args:
        t0: where the network takes over from the short-time law on compact spaces (default 0.1);
            other spaces have none, the network is exact as t -> 0.
        t1: end of the solved interval (default 5, on SPD(n) 1).
        points: collocation points of a stage.
        steps: Levenberg-Marquardt steps of a stage (default 200 on compact spaces, else 20).
        rounds: sets of points on spaces without cut locus.
        starts: random starts on compact spaces, of which the best is kept.
    """
    counts = {"points": points, "rounds": rounds, "starts": starts}
    for name, value in counts.items() if steps is None else {**counts, "steps": steps}.items():
        positive_integer(value, name, "recipes.default")
    check_times(t0, t1, "recipes.default")
    return Default(t0=t0, t1=t1, points=points, steps=steps, rounds=rounds, starts=starts)


def _has_cut_locus(manifold):
    return math.isfinite(manifold.injectivity_radius())
