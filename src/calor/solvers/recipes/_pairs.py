r"""A recipe for manifolds that are given by their equations or metric, without any symmetry.

As calor's own recipe for symmetric spaces: small networks in float64, Levenberg-Marquardt, time cut
into windows, each starting where the one before ends.  What is different:

* The network sees both points (`forms.pairs`), and the equation is asked to hold at pairs: x0
  uniform, x the end of a short random walk from it, or uniform too.
* The points are drawn anew every few steps: pairs fill twice the dimension, and least squares on
  few fixed ones are solved better at them than between them.  More of them are where the equation
  does not hold yet.
* The initial law, values and slopes, comes from shooting geodesics (`heat.early.geodesics`).  It is
  fitted as far as they are shortest; beyond, log p may exceed a Gaussian of about the distance by
  little and no more.
* The volume is not known.  Once the kernel has spread, its mean over the manifold tells it.
* If isometries g are declared, log p(t, gx | gx0) = log p(t, x | x0) is asked for as well.

On a manifold that is not compact the sources x0 are near the points it was told of.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...core.types import Key
from ...heat.early.geodesics import GeodesicLaw, last_of_law, shortest_length
from ...manifolds import Submanifold
from ...training import levenberg
from ...training.levenberg import Done
from ...training.sets import SetNetwork
from ..forms import pair_rows
from ..forms.pairs import PairForm, PairSolution, Window
from ..forms.rows import Rows
from .base import (
    RECIPES,
    AbstractLeastSquares,
    AbstractPlan,
    AbstractRecipe,
    check_times,
    parameters_of,
    windows,
)

# The typical error of log p with which the law along geodesics is handed over to a network.
_HANDED = 2e-3
# From here on, in units of 1/rate, the mean of the kernel over the manifold tells the volume.
_SPREAD = 0.5
# Uniform points for that mean, all pairs of which are used.
_POINTS = 2048
# The damping of least squares that go on with other points, and of those of a new window.
_CONTINUED, _NEW = 1e-4, 1e-2


@RECIPES.register(Submanifold)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Pairs(AbstractRecipe):
    """A recipe for a manifold given by its equations, or by a metric on an open set."""

    name: ClassVar[str] = "pairs"
    by_cover: ClassVar[bool] = True

    t0: float | None = None
    """Where the network takes over from the law along geodesics; by default found from what the
    law leaves of the heat equation, and from `r_max`."""
    t1: float | None = None
    """End of the solved interval; by default five over a guess of the first eigenvalue, and without
    one, until the kernel is about three times as wide as where its sources are, or twice t0."""
    r_max: float | None = None
    """The length up to which geodesics are shortest; by default found by shooting."""
    points: int = 4000
    """Collocation points of a round."""
    steps: int = 10
    """Levenberg-Marquardt steps of a round."""
    rounds: int = 4
    """Sets of points for each window; the first window has twice as many."""
    widths: tuple[int, ...] = (24, 24, 24)
    """Of the layers of a network."""

    def __post_init__(self) -> None:
        self.check_counts("points", "steps", "rounds")
        object.__setattr__(self, "widths", tuple(self.widths))
        if len(self.widths) < 2:
            raise ValueError(
                f"recipes.pairs: widths must be of two layers or more, got {self.widths}."
            )
        check_times(self.t0, self.t1, "recipes.pairs")
        if self.r_max is not None and not self.r_max > 0:
            raise ValueError(f"recipes.pairs: r_max must be positive, got {self.r_max}.")

    def plan(self, manifold: Any) -> AbstractPlan:
        """From where the law is accurate to where the kernel is uniform.

        It needs equations or a metric, and points to look around.
        """
        if not isinstance(manifold, Submanifold):
            raise ValueError(
                f"solve: recipes.pairs is for a Submanifold, got {manifold}; recipes.default "
                "solves on symmetric spaces."
            )
        if not manifold.anchors:
            raise ValueError(
                f"solve: {manifold} is an open set, which is not compact: say where its kernel is "
                "needed, as in Submanifold(None, n, metric, around=points)."
            )
        form = _form(manifold)
        rate = form.rate
        last = 5 / rate if rate > 0 else 4 * manifold.width**2 / manifold.dim
        radius = self.r_max or shortest_length(manifold)
        t0 = self.t0 or _latest(manifold, radius, 2 * last)
        # Where nothing settles, every window is harder than the one before.
        spread = 8 * t0 if rate > 0 else 2 * t0
        t1 = self.t1 or float(f"{max(last, spread):.3g}")
        # A factor of two while the kernel spreads, then of four: late it is a few eigenfunctions,
        # which one network follows for longer.
        edges = windows(t0, t1, lambda t: 2 if rate * t < _SPREAD else 4)
        with jax.enable_x64(True):
            template = form.network(jr.key(0), self.widths)
        law = GeodesicLaw(manifold)
        return PairWindows(manifold, law, (t0, t1), template, form, self, edges, radius)


class PairWindows(AbstractLeastSquares):
    """Networks of pairs of points, in windows of time and rounds of fresh points in each."""

    manifold: Submanifold
    law: GeodesicLaw
    interval: tuple[float, float] = eqx.field(static=True)
    template: SetNetwork
    form: PairForm
    recipe: Pairs = eqx.field(static=True)
    edges: tuple[float, ...] = eqx.field(static=True)
    """Ends of the windows of time."""
    radius: float = eqx.field(static=True)
    """The length up to which geodesics are shortest."""

    def steps(self) -> tuple[int, ...]:
        """Rounds of each window; the first has to find the kernel, the others continue it."""
        return (self.recipe.steps,) * self.recipe.rounds * len(self.edges)

    def residuals(self) -> dict[str, levenberg.Residual]:
        """The equation, values and slopes where a window starts, and what isometries keep."""
        parts = {
            "equation": pair_rows.equation,
            "initial": pair_rows.initial,
            "slope": pair_rows.slope,
        }
        if self.manifold.symmetries is not None:
            parts["invariance"] = pair_rows.invariance
        return {name: self.residual(part) for name, part in parts.items()}

    def begin(self, stage: int, done: Done, key: Key) -> levenberg.Step:
        """Random weights, or what the round or the window before found."""
        blocks = len(self.residuals())
        if stage == 0:
            random = self.form.network(key, self.recipe.widths)
            return levenberg.start(parameters_of(random), blocks, _NEW)
        is_new = self._number(stage) > self._number(stage - 1)
        damping = _NEW if is_new else _CONTINUED
        return levenberg.start(done.parameters[stage - 1], blocks, damping)

    def rows(self, stage: int, done: Done, key: Key) -> Sequence[Rows]:
        """Rows of the equation, of the initial values and slopes, and of images."""
        form, number, count = self.form, self._number(stage), self.recipe.points
        windows = self._windows(done, number + 1)
        key_inside, key_initial = jr.split(key)
        trained = None
        if stage > 0 and self._number(stage - 1) == number:
            trained = self.network(done.parameters[stage - 1])
        inside = pair_rows.interior(form, count, trained, windows[-1], key_inside)
        if number == 0:
            radius = jnp.asarray(self.radius)
            initial = pair_rows.initial_law(form, count // 2, radius, windows[0], key_initial)
        else:
            before, (earlier, now) = self._found(done, number - 1), windows[-2:]
            given = form, count // 2, before, earlier, now
            initial = pair_rows.initial_window(*given, key_initial)
        if self.manifold.symmetries is None:
            return (inside, *initial)
        moved = pair_rows.moved(self.manifold.symmetries, inside, jr.fold_in(key, 1))
        return (inside, *initial, moved)

    def solution(self, done: Done) -> PairSolution:
        """The networks of all windows."""
        windows = self._windows(done, len(self.edges) - 1)
        networks = [self._found(done, number) for number in range(len(windows))]
        stacked = jax.tree.map(lambda *arrays: jnp.stack(arrays), *networks)
        constants = jnp.stack([window.c for window in windows])
        return PairSolution(self.manifold, self.form, self.edges, stacked, constants)

    def _number(self, stage: int) -> int:
        """The number of a stage's window; the first one has twice as many rounds."""
        return max(stage // self.recipe.rounds - 1, 0)

    def _found(self, done: Done, number: int) -> SetNetwork:
        """The network after the last round of a window."""
        return self.network(done.parameters[(number + 2) * self.recipe.rounds - 1])

    def _windows(self, done: Done, count: int) -> list[Window]:
        """The first windows: with a guess of the volume's logarithm, then with what is found."""
        edges, is_compact = jnp.asarray(self.edges), self.manifold.is_compact()
        c = self.manifold.log_volume().astype(float) if is_compact else jnp.zeros(())
        windows = [Window(c, edges[0], edges[1])]
        for number in range(1, count):
            if is_compact and self.edges[number] > _SPREAD / self.form.rate:
                c = c - _log_mean(self.form, self._found(done, number - 1), windows[-1])
            windows.append(Window(c, edges[number], edges[number + 1]))
        return windows


@functools.lru_cache(maxsize=16)
def _latest(manifold, radius, last):
    """The time up to which the law is good: by its own residual, and within shortest geodesics."""
    last = min(last, last_of_law(radius))
    certificate = GeodesicLaw(manifold).certified(last)
    times = np.geomspace(certificate.times[0], certificate.times[-1], 100)
    found = max((t for t in times if certificate.estimate(t) <= _HANDED), default=times[0])
    digit = 10.0 ** (math.floor(math.log10(found)) - 1)
    return float(f"{math.floor(found / digit) * digit:.2g}")  # rounded down: later is not known


@functools.lru_cache(maxsize=16)
def _rate(manifold):
    """About the first eigenvalue of the Laplacian, from above.

    The least of Rayleigh's quotients, mean |df|^2 over the variance of f, of linear functions f.
    """
    points = jax.jit(jax.vmap(manifold.draw_point))(jr.split(jr.key(4), _POINTS))
    inverse = lambda x: manifold.basis(x).T @ manifold.basis(x)
    slopes = np.mean(jax.jit(jax.vmap(inverse))(points), axis=0, dtype=float)
    variances, directions = np.linalg.eigh(np.cov(np.asarray(points, float).T))
    kept = variances > 1e-6 * variances[-1]
    functions = directions[:, kept] / np.sqrt(variances[kept])
    return float(f"{np.linalg.eigvalsh(functions.T @ slopes @ functions)[0]:.2g}")


def _form(manifold):
    width, anchors = manifold.width, np.asarray(manifold.anchors)
    rate = _rate(manifold) if manifold.is_compact() else 0.0
    centre = anchors.mean(axis=0)
    spread = float(np.sqrt(np.mean(np.sum((anchors - centre) ** 2, axis=1))))
    numbers = tuple(float(f"{c:.3g}") for c in centre)
    return PairForm(manifold, rate, float(f"{width:.3g}"), numbers, float(f"{spread:.3g}"))


@eqx.filter_jit
def _log_mean(form, network, window):
    """log of the mean of vol p where a window ends, over all pairs of random points."""
    x = jax.vmap(form.manifold.draw_point)(jr.split(jr.key(3), _POINTS)).astype(window.c.dtype)
    others = jnp.arange(_POINTS)

    def row(i):
        values = jax.vmap(lambda y: form(network, window, window.end, x[i], y))(x)
        return jnp.sum(jnp.where(others == i, 0.0, jnp.exp(values)))

    return jnp.log(jnp.sum(jax.lax.map(row, others)) / (_POINTS * (_POINTS - 1)))
