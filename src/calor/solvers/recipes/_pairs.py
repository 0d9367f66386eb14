r"""A recipe for manifolds that are given by their equations or metric, without any symmetry.

As calor's own recipe for symmetric spaces: small networks in float64, Levenberg-Marquardt, time cut
into windows, each starting where the one before ends.  What is different:

* The network sees both points (`calor.pairs`), and the equation is asked to hold at pairs: x0
  uniform, x the end of a short random walk from it, or uniform too.
* The points are drawn anew every few steps: pairs fill twice the dimension, and least squares on
  few fixed ones are solved better at them than between them.  More of them are where the equation
  does not hold yet.
* The initial law, values and slopes, comes from shooting geodesics (`calor.geodesics`).  It is
  fitted as far as they are shortest; beyond, log p may exceed a Gaussian of about the distance by
  little and no more.
* The volume is not known.  Once the kernel has spread, its mean over the manifold tells it.
* If isometries g are declared, log p(t, gx | gx0) = log p(t, x | x0) is asked for as well.

On a manifold that is not compact the sources x0 are near the points it was told of.
"""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.flatten_util import ravel_pytree

from ...core.checks import positive_integer
from ...heat.early.geodesics import GeodesicLaw, last_of_law, shortest_length
from ...manifolds import Submanifold
from ...training import levenberg
from ..forms import pair_rows as _pair_rows
from ..forms.pairs import PairForm, PairSolution
from .base import AbstractRecipe, check_times

# The typical error of log p with which the law along geodesics is handed over to a network.
_HANDED = 2e-3
# From here on, in units of 1/rate, the mean of the kernel over the manifold tells the volume.
_SPREAD = 0.5
# Uniform points for that mean, all pairs of which are used.
_POINTS = 2048
# The damping of least squares that go on with other points, larger for a new window.
_CONTINUED = 1e-4


class Pairs(AbstractRecipe):
    """Networks of pairs of points; see `pairs` for the settings."""

    t0: float | None = eqx.field(static=True)
    t1: float | None = eqx.field(static=True)
    r_max: float | None = eqx.field(static=True)
    points: int = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    rounds: int = eqx.field(static=True)
    widths: tuple[int, ...] = eqx.field(static=True)
    precision: str = eqx.field(static=True, default="float64")
    by_cover: bool = eqx.field(static=True, default=True)

    def check(self, manifold):
        """It needs equations or a metric, and points to look around."""
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
        t0, t1 = self.interval(manifold)
        if t0 >= t1:
            raise ValueError(
                f"solve: the network takes over at t0 = {t0:.3g}, so t1 must be later, got "
                f"t1 = {t1:.3g}."
            )

    def interval(self, manifold):
        """From where the law is accurate to where the kernel is uniform."""
        rate = _form(manifold).rate
        last = 5 / rate if rate > 0 else 4 * manifold.width**2 / manifold.dim
        t0 = self.t0 or _latest(manifold, self._radius(manifold), 2 * last)
        # Where nothing settles, every window is harder than the one before.
        spread = 8 * t0 if rate > 0 else 2 * t0
        return t0, self.t1 or float(f"{max(last, spread):.3g}")

    def _radius(self, manifold):
        return self.r_max or shortest_length(manifold)

    def law(self, manifold):
        """Along shot geodesics."""
        return GeodesicLaw(manifold)

    def stages(self, manifold):
        """Rounds of each window; the first has to find the kernel, the others continue it."""
        return [self.steps] * self.rounds * len(self._edges(manifold))

    def begin(self, manifold, stage, done, key):
        """Random weights, or what the round or the window before found."""
        if stage == 0:
            return levenberg.start(self._network(manifold, key)[0], _kinds(manifold))
        is_new = self._window(stage) > self._window(stage - 1)
        damping = 1e-2 if is_new else _CONTINUED
        return levenberg.start(done.parameters[stage - 1], _kinds(manifold), damping)

    def data(self, manifold, stage, done, key):
        """Rows of the equation, and of the initial values."""
        form, edges, window = _form(manifold), self._edges(manifold), self._window(stage)
        ends = jnp.asarray(edges[window]), jnp.asarray(edges[window + 1])
        key_inside, key_initial = jr.split(key)
        constants = self._constants(manifold, done, window + 1)
        trained = None
        if stage > 0 and self._window(stage - 1) == window:
            trained = self._network(manifold, jr.key(0))[1](done.parameters[stage - 1])
        inside = _pair_rows.interior(form, self.points, trained, *ends, constants[-1], key_inside)
        count = self.points // 2
        if window == 0:
            radius = jnp.asarray(self._radius(manifold))
            initial = _pair_rows.initial_law(form, count, radius, *ends, constants[0], key_initial)
        else:
            before = self._found(manifold, done, window - 1)
            times = jnp.asarray(edges[window - 1]), *ends
            pair = constants[-2], constants[-1]
            initial = _pair_rows.initial_window(form, count, before, *times, *pair, key_initial)
        if manifold.symmetries is None:
            return [inside, *initial]
        moved = _pair_rows.moved(manifold.symmetries, inside, jr.fold_in(key, 1))
        return [inside, *initial, moved]

    def advance(self, manifold):
        """A step of Levenberg-Marquardt."""
        form, (_, unravel) = _form(manifold), self._network(manifold, jr.key(0))

        def equation(parameters, row):
            return _pair_rows.equation(form, unravel(parameters), row)

        def initial(parameters, row):
            start, end = row["start"], row["end"]
            found = form(unravel(parameters), row["c"], start, row["x"], row["x0"], start, end)
            error = found - row["value"]
            return row["weight"] * jnp.where(row["beyond"], jnp.maximum(error, 0.0), error)

        def slope(parameters, row):
            network, ends = unravel(parameters), (row["start"], row["end"])
            value = lambda x: form(network, row["c"], row["start"], x, row["x0"], *ends)
            found = jax.jvp(value, (row["x"],), (row["direction"],))[1]
            return row["weight"] * (found - row["slope"])

        def invariance(parameters, row):
            network, ends = unravel(parameters), (row["start"], row["end"])
            value = lambda x, x0: form(network, row["c"], row["t"], x, x0, *ends)
            return row["weight"] * (value(row["x"], row["x0"]) - value(*row["moved"]))

        kinds = [equation, initial, slope, invariance][: _kinds(manifold)]
        return jax.jit(lambda state, rows: levenberg.advance(kinds, rows, state))

    def parameters(self, state):
        """The weights."""
        return state.parameters

    def losses(self, state):
        """Mean squares of the weighted residuals."""
        names = ("equation", "initial", "slope", "invariance")
        return dict(zip(names, state.losses, strict=False))

    def solution(self, manifold, done):
        """The networks of all windows."""
        edges = self._edges(manifold)
        windows = len(edges) - 1
        networks = [self._found(manifold, done, window) for window in range(windows)]
        return PairSolution(
            manifold,
            _form(manifold),
            edges,
            jax.tree.map(lambda *arrays: jnp.stack(arrays), *networks),
            self._constants(manifold, done, windows),
        )

    def _window(self, stage):
        """The window of a stage; the first one has twice as many rounds."""
        return max(stage // self.rounds - 1, 0)

    def _found(self, manifold, done, window):
        """The network after the last round of a window."""
        last = (window + 2) * self.rounds - 1
        return self._network(manifold, jr.key(0))[1](done.parameters[last])

    def _edges(self, manifold):
        """Ends of the windows of time: a factor of two while the kernel spreads, then of four.

        Late it is a few eigenfunctions, which one network follows for longer.
        """
        t0, t1 = self.interval(manifold)
        edges, rate = [t0], _form(manifold).rate
        while True:
            factor = 2 if rate * edges[-1] < _SPREAD else 4
            if 1.5 * factor * edges[-1] >= t1:  # the last one may be longer
                return (*edges, t1)
            edges.append(factor * edges[-1])

    def _network(self, manifold, key):
        return ravel_pytree(_form(manifold).network(key, self.widths))

    def _constants(self, manifold, done, windows):
        """The constant of each window: a guess of the volume's logarithm, then what is found."""
        form, edges = _form(manifold), self._edges(manifold)
        if not manifold.is_compact():
            return jnp.zeros(windows)
        constants = [manifold.log_volume().astype(float)]
        for window in range(1, windows):
            c = constants[-1]
            if edges[window] > _SPREAD / form.rate:
                before = self._found(manifold, done, window - 1)
                ends = jnp.asarray(edges[window - 1]), jnp.asarray(edges[window])
                c = c - _log_mean(form, before, c, *ends)
            constants.append(c)
        return jnp.stack(constants)


@functools.lru_cache(maxsize=16)
def _latest(manifold, radius, last):
    """The time up to which the law is good: by its own residual, and within shortest geodesics."""
    last = min(last, last_of_law(radius))
    certificate = GeodesicLaw(manifold).certified(last)
    times = np.geomspace(certificate.times[0], certificate.times[-1], 100)
    found = max((t for t in times if certificate.estimate(t) <= _HANDED), default=times[0])
    digit = 10.0 ** (math.floor(math.log10(found)) - 1)
    return float(f"{math.floor(found / digit) * digit:.2g}")  # rounded down: later is not known


def _kinds(manifold):
    """The number of kinds of rows."""
    return 3 if manifold.symmetries is None else 4


@functools.lru_cache(maxsize=16)
def _rate(manifold):
    """About the first eigenvalue of the Laplacian, from above.

    The least of Rayleigh's quotients, mean |df|^2 over the variance of f, of linear functions f.
    """
    points = jax.jit(jax.vmap(manifold.draw_point))(jr.split(jr.key(4), _POINTS))
    inverse = lambda x: manifold.orthonormal(x).T @ manifold.orthonormal(x)
    slopes = np.mean(jax.jit(jax.vmap(inverse))(points), axis=0, dtype=float)
    variances, directions = np.linalg.eigh(np.cov(np.asarray(points, float).T))
    kept = directions[:, variances > 1e-6 * variances[-1]]
    kept = kept / np.sqrt(variances[variances > 1e-6 * variances[-1]])
    return float(f"{np.linalg.eigvalsh(kept.T @ slopes @ kept)[0]:.2g}")


def _form(manifold):
    width, anchors = manifold.width, np.asarray(manifold.anchors)
    rate = _rate(manifold) if manifold.is_compact() else 0.0
    centre = anchors.mean(axis=0)
    spread = float(np.sqrt(np.mean(np.sum((anchors - centre) ** 2, axis=1))))
    numbers = tuple(float(f"{c:.3g}") for c in centre)
    return PairForm(manifold, rate, float(f"{width:.3g}"), numbers, float(f"{spread:.3g}"))


@eqx.filter_jit
def _log_mean(form, network, c, start, end):
    """log of the mean of vol p at the time `end` over all pairs of random points."""
    x = jax.vmap(form.manifold.draw_point)(jr.split(jr.key(3), _POINTS)).astype(c.dtype)
    others = jnp.arange(_POINTS)

    def row(i):
        values = jax.vmap(lambda y: form(network, c, end, x[i], y, start, end))(x)
        return jnp.sum(jnp.where(others == i, 0.0, jnp.exp(values)))

    return jnp.log(jnp.sum(jax.lax.map(row, others)) / (_POINTS * (_POINTS - 1)))


def pairs(
    *,
    t0: float | None = None,
    t1: float | None = None,
    r_max: float | None = None,
    points: int = 4000,
    steps: int = 10,
    rounds: int = 4,
    widths: tuple[int, ...] = (24, 24, 24),
) -> Pairs:
    """A recipe for a manifold given by its equations, or by a metric on an open set.

    Args:
        t0: where the network takes over from the law along geodesics; by default found from what
            the law leaves of the heat equation, and from `r_max`.
        t1: end of the solved interval; by default five over a guess of the first eigenvalue, and
            without one, until the kernel is about three times as wide as where its
            sources are, or twice t0.
        r_max: the length up to which geodesics are shortest; by default found by shooting.
        points: collocation points of a round.
        steps: Levenberg-Marquardt steps of a round.
        rounds: sets of points for each window; the first window has twice as many.
        widths: of the layers of a network.
    """
    for name, value in {"points": points, "steps": steps, "rounds": rounds}.items():
        positive_integer(value, name, "recipes.pairs")
    if len(widths) < 2:
        raise ValueError(f"recipes.pairs: widths must be of two layers or more, got {widths}.")
    check_times(t0, t1, "recipes.pairs")
    if r_max is not None and not r_max > 0:
        raise ValueError(f"recipes.pairs: r_max must be positive, got {r_max}.")
    return Pairs(
        t0=t0,
        t1=t1,
        r_max=r_max,
        points=points,
        steps=steps,
        rounds=rounds,
        widths=tuple(widths),
    )
