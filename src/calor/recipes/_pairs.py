r"""A recipe for manifolds that are given by their equations or metric, without any symmetry.

As calor's own recipe for symmetric spaces: small networks in float64, Levenberg-Marquardt, time cut
into windows, each starting where the one before ends.  What is different:

* The network sees both points (`calor.pairs`), and the equation is asked to hold at pairs: x0
  uniform, x the end of a short random walk from it, or uniform too.
* The initial law comes from shooting geodesics (`calor.geodesics`).  It is fitted as far as they
  are shortest; beyond, log p may exceed a Gaussian of about the distance by little and no more.
* The volume is not known.  Once the kernel has spread, its mean over the manifold tells it.
* If isometries g are declared, log p(t, gx | gx0) = log p(t, x | x0) is asked for as well.

On a manifold that is not compact the sources x0 are near the points it was told of.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.flatten_util import ravel_pytree

from .. import calculus, levenberg
from .._checks import positive_integer
from ..geodesics import GeodesicLaw, geodesic_walk, shortest_radius
from ..manifolds import Submanifold
from ..pairs import PairForm, PairSolution
from .base import AbstractRecipe, check_times

# Beyond where it is fitted log p may exceed a Gaussian of about the distance by this much.
_EXCESS = 1.5
# How fast rows lose weight with the depth dist^2/4t in the tail.
_FALL = 2
# The scale of the second order in time, 0.011 (t R / 2)^2 on the sphere, is below 1e-3 here.
_CURVED = 0.6
# Standard deviations of the law at t0 that have to fit into the shortest geodesics.
_REACH = 5.0
# From here on, in units of 1/rate, the mean of the kernel over the manifold tells the volume.
_SPREAD = 0.5
# Uniform points for that mean, all pairs of which are used.
_POINTS = 2048


class Pairs(AbstractRecipe):
    """Networks of pairs of points; see `pairs` for the settings."""

    t0: float | None = eqx.field(static=True)
    t1: float | None = eqx.field(static=True)
    r_max: float | None = eqx.field(static=True)
    points: int = eqx.field(static=True)
    steps: int = eqx.field(static=True)
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
        if not manifold._anchors:
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
        curvature, radius = _measure(manifold)
        radius = self.r_max or radius
        found = min(_CURVED / max(curvature, 1e-6), (radius / _REACH) ** 2 / 2)
        t0 = self.t0 or float(f"{found:.2g}")
        rate = _form(manifold).rate
        last = 6 / rate if rate > 0 else 4 * manifold._width**2 / manifold.dim
        return t0, self.t1 or float(f"{max(last, 8 * t0):.3g}")

    def law(self, manifold):
        """Along shot geodesics."""
        return GeodesicLaw(manifold)

    def stages(self, manifold):
        """One for each window; the first has to find the kernel, the others continue it."""
        return [2 * self.steps] + [self.steps] * (len(self._edges(manifold)) - 2)

    def begin(self, manifold, stage, done, key):
        """Random weights, or what the window before found."""
        if stage == 0:
            return levenberg.start(self._network(manifold, key)[0], _kinds(manifold))
        return levenberg.start(done.parameters[stage - 1], _kinds(manifold))

    def data(self, manifold, stage, done, key):
        """Rows of the equation, and of the initial values."""
        form, edges = _form(manifold), self._edges(manifold)
        ends = jnp.asarray(edges[stage]), jnp.asarray(edges[stage + 1])
        key_inside, key_initial = jr.split(key)
        constants = self._constants(manifold, done, stage + 1)
        inside = _interior(form, self.points, *ends, constants[-1], key_inside)
        if stage == 0:
            radius = jnp.asarray(self.r_max or _measure(manifold)[1])
            rows = _initial_law(form, self.points // 2, radius, *ends, constants[0], key_initial)
        else:
            unravel = self._network(manifold, jr.key(0))[1]
            before = unravel(done.parameters[stage - 1])
            times = jnp.asarray(edges[stage - 1]), *ends
            pair = constants[-2], constants[-1]
            rows = _initial_window(form, self.points // 2, before, *times, *pair, key_initial)
        if manifold.symmetries is None:
            return [inside, rows]
        return [inside, rows, _moved(manifold.symmetries, inside, jr.fold_in(key, 1))]

    def advance(self, manifold):
        """A step of Levenberg-Marquardt."""
        form, (_, unravel) = _form(manifold), self._network(manifold, jr.key(0))

        def equation(parameters, row):
            network = unravel(parameters)

            def phi(t, x):
                return form(network, row["c"], t, x, row["x0"], row["start"], row["end"])

            at_t = lambda x: phi(row["t"], x)
            slopes = jax.vmap(lambda e: jax.jvp(at_t, (row["x"],), (e,))[1])(row["frame"])
            laplacian = calculus.laplacian(at_t, row["x"], row["frame"], row["drift"])
            change = jax.grad(phi)(row["t"], row["x"])
            return row["weight"] * (change - laplacian - slopes @ slopes)

        def initial(parameters, row):
            start, end = row["start"], row["end"]
            found = form(unravel(parameters), row["c"], start, row["x"], row["x0"], start, end)
            error = found - row["value"]
            return row["weight"] * jnp.where(row["beyond"], jnp.maximum(error, 0.0), error)

        def invariance(parameters, row):
            network, ends = unravel(parameters), (row["start"], row["end"])
            value = lambda x, x0: form(network, row["c"], row["t"], x, x0, *ends)
            return row["weight"] * (value(row["x"], row["x0"]) - value(*row["moved"]))

        kinds = [equation, initial, invariance][: _kinds(manifold)]
        return jax.jit(lambda state, rows: levenberg.advance(kinds, rows, state))

    def parameters(self, state):
        """The weights."""
        return state.parameters

    def losses(self, state):
        """Mean squares of the weighted residuals."""
        return dict(zip(("equation", "initial", "invariance"), state.losses, strict=False))

    def solution(self, manifold, done):
        """The networks of all windows."""
        edges, (_, unravel) = self._edges(manifold), self._network(manifold, jr.key(0))
        windows = len(edges) - 1
        return PairSolution(
            manifold,
            _form(manifold),
            edges,
            jax.vmap(unravel)(done.parameters[:windows]),
            self._constants(manifold, done, windows),
        )

    def _edges(self, manifold):
        """Ends of the windows of time: each twice as long as the one before, the last longer."""
        t0, t1 = self.interval(manifold)
        edges = [t0]
        while 3 * edges[-1] < t1:
            edges.append(2 * edges[-1])
        return (*edges, t1)

    def _network(self, manifold, key):
        return ravel_pytree(_form(manifold).network(key, self.widths))

    def _constants(self, manifold, done, windows):
        """The constant of each window: a guess of the volume's logarithm, then what is found."""
        form, edges = _form(manifold), self._edges(manifold)
        if not manifold.is_compact:
            return jnp.zeros(windows)
        unravel = self._network(manifold, jr.key(0))[1]
        constants = [manifold.log_volume().astype(float)]
        for window in range(1, windows):
            c = constants[-1]
            if edges[window] > _SPREAD / form.rate:
                before = unravel(done.parameters[window - 1])
                ends = jnp.asarray(edges[window - 1]), jnp.asarray(edges[window])
                c = c - _log_mean(form, before, c, *ends)
            constants.append(c)
        return jnp.stack(constants)


@functools.lru_cache(maxsize=16)
def _measure(manifold):
    """The largest scalar curvature, and the length up to which geodesics are shortest."""
    points = jax.jit(jax.vmap(manifold._random_point))(jr.split(jr.key(1), 256))
    curvatures = jax.jit(jax.vmap(manifold.scalar_curvature))(points)
    return float(jnp.max(jnp.abs(curvatures))), shortest_radius(manifold, jr.key(2))


def _kinds(manifold):
    """The number of kinds of rows."""
    return 2 if manifold.symmetries is None else 3


def _form(manifold):
    # Rayleigh's quotient of the coordinates is an upper bound of the first eigenvalue.
    width, anchors = manifold._width, np.asarray(manifold._anchors)
    rate = float(f"{manifold.dim / width**2:.2g}") if manifold.is_compact else 0.0
    centre = anchors.mean(axis=0)
    spread = float(np.sqrt(np.mean(np.sum((anchors - centre) ** 2, axis=1))))
    numbers = tuple(float(f"{c:.3g}") for c in centre)
    return PairForm(manifold, rate, float(f"{width:.3g}"), numbers, float(f"{spread:.3g}"))


@eqx.filter_jit
def _log_mean(form, network, c, start, end):
    """log of the mean of vol p at the time `end` over all pairs of random points."""
    x = jax.vmap(form.manifold._random_point)(jr.split(jr.key(3), _POINTS)).astype(c.dtype)
    others = jnp.arange(_POINTS)

    def row(i):
        values = jax.vmap(lambda y: form(network, c, end, x[i], y, start, end))(x)
        return jnp.sum(jnp.where(others == i, 0.0, jnp.exp(values)))

    return jnp.log(jnp.sum(jax.lax.map(row, others)) / (_POINTS * (_POINTS - 1)))


def _pairs(manifold, t, key):
    """A pair for each time: x0 anywhere, x near it, further out, or anywhere."""
    key_source, key_walk, key_far = jr.split(key, 3)
    count = len(t)
    x0 = jax.vmap(manifold._random_point)(jr.split(key_source, count)).astype(t.dtype)
    kind = jnp.arange(count) % 3
    walk = lambda t, x0, key: geodesic_walk(manifold, t, x0, key, 8)
    # Without a uniform law, far away is where few paths go.
    longest = 1.7 if manifold.is_compact else 3.0
    stretch = jnp.where(kind == 2, longest, jnp.where(kind == 1, 1.7, 1.0))
    near = jax.vmap(walk)(stretch * t, x0, jr.split(key_walk, count))
    if not manifold.is_compact:
        return near, x0
    far = jax.vmap(manifold._random_point)(jr.split(key_far, count)).astype(t.dtype)
    return jnp.where((kind == 2)[:, None], far, near), x0


def _depth(form, t, x, x0):
    return form.squared_distance(x, x0) / (4 * t)


@eqx.filter_jit
def _interior(form, count, start, end, c, key):
    """The rows of the equation itself."""
    key_time, key_pairs = jr.split(key)
    manifold = form.manifold
    u = (jnp.arange(count) + jr.uniform(key_time, (count,))) / count
    t = start * (end / start) ** u
    x, x0 = _pairs(manifold, t, key_pairs)

    def row(t, x, x0):
        weight = t / (1 + _depth(form, t, x, x0)) ** _FALL / form.late(t) / np.sqrt(count)
        return {
            "t": t,
            "x": x,
            "x0": x0,
            "frame": manifold.orthonormal(x),
            "drift": manifold.coordinate_laplacian(x),
            "weight": weight,
            "c": c,
            "start": start,
            "end": end,
        }

    return jax.vmap(row)(t, x, x0)


@eqx.filter_jit
def _initial_law(form, count, radius, t0, end, c, key):
    """The rows of the initial condition at t0: half by shooting, half from above, far away."""
    manifold, law = form.manifold, GeodesicLaw(form.manifold)
    key_source, key_shot, key_far = jr.split(key, 3)
    x0 = jax.vmap(manifold._random_point)(jr.split(key_source, count)).astype(t0.dtype)
    gaussian = -manifold.dim / 2 * jnp.log(4 * jnp.pi * t0)
    common = {"c": c, "start": t0, "end": end}

    def shot(x0, key, stretch):
        basis = manifold.orthonormal(x0)
        v = stretch * jnp.sqrt(2 * t0) * jr.normal(key, (manifold.dim,), x0.dtype)
        value, (x, _) = law._value(t0, x0, basis, v)
        length = jnp.sqrt(v @ v)
        known = jnp.isfinite(value) & (length < radius)
        weight = jnp.where(known, 3 / (1 + length**2 / (4 * t0)) ** _FALL, 0.0)
        value = jnp.where(known, value, 0.0) + c
        return {"x": x, "x0": x0, "value": value, "weight": weight, "beyond": False, **common}

    def far(x, x0):
        depth = _depth(form, t0, x, x0)
        weight = jnp.where(jnp.sqrt(4 * t0 * depth) > radius, 0.03, 0.0)
        value = gaussian - depth + _EXCESS + c
        return {"x": x, "x0": x0, "value": value, "weight": weight, "beyond": True, **common}

    stretches = jnp.where(jnp.arange(count) % 2 == 0, 1.0, 1.5)
    near = jax.vmap(shot)(x0, jr.split(key_shot, count), stretches)
    x = jax.vmap(manifold._random_point)(jr.split(key_far, count)).astype(t0.dtype)
    rows = jax.tree.map(
        lambda a, b: jnp.concatenate([jnp.asarray(a), jnp.asarray(b)]), near, jax.vmap(far)(x, x0)
    )
    return {**rows, "weight": rows["weight"] / np.sqrt(count)}


@eqx.filter_jit
def _initial_window(form, count, before, earlier, start, end, c_before, c, key):
    """The rows of the initial condition of a window: the values where the one before it ends."""
    times = jnp.full(count, start)
    x, x0 = _pairs(form.manifold, times, key)

    def row(x, x0):
        value = form(before, c_before, start, x, x0, earlier, start)
        weight = 3 / (1 + _depth(form, start, x, x0)) ** _FALL / form.late(start) / np.sqrt(count)
        return {
            "x": x,
            "x0": x0,
            "value": value - c_before + c,
            "weight": weight,
            "beyond": False,
            "c": c,
            "start": start,
            "end": end,
        }

    return jax.vmap(row)(x, x0)


@eqx.filter_jit
def _moved(symmetries, inside, key):
    """Rows that ask for the same value at a pair and at its image under a random isometry."""
    kept = ("t", "x", "x0", "c", "start", "end")

    def move(key, t, x, x0, weight):
        isometry = symmetries(key)
        return {"moved": (isometry(x), isometry(x0)), "weight": weight / t}

    keys = jr.split(key, len(inside["t"]))
    moved = jax.vmap(move)(keys, *(inside[name] for name in ("t", "x", "x0", "weight")))
    return {**{name: inside[name] for name in kept}, **moved}


def pairs(
    *,
    t0: float | None = None,
    t1: float | None = None,
    r_max: float | None = None,
    points: int = 3000,
    steps: int = 40,
    widths: tuple[int, ...] = (24, 24, 24),
) -> Pairs:
    """A recipe for a manifold given by its equations, or by a metric on an open set.

    Args:
        t0: where the network takes over from the law along geodesics; by default found from the
            curvature and from `r_max`.
        t1: end of the solved interval; by default six over a guess of the first eigenvalue, and
            without one, until the kernel is four times as wide as where its sources are.
        r_max: the length up to which geodesics are shortest; by default found by shooting.
        points: collocation points of a window.
        steps: Levenberg-Marquardt steps of a window; the first one has twice as many.
        widths: of the layers of a network.
    """
    for name, value in {"points": points, "steps": steps}.items():
        positive_integer(value, name, "recipes.pairs")
    if len(widths) < 2:
        raise ValueError(f"recipes.pairs: widths must be of two layers or more, got {widths}.")
    check_times(t0, t1, "recipes.pairs")
    if r_max is not None and not r_max > 0:
        raise ValueError(f"recipes.pairs: r_max must be positive, got {r_max}.")
    return Pairs(t0=t0, t1=t1, r_max=r_max, points=points, steps=steps, widths=tuple(widths))
