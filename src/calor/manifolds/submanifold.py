r"""A manifold given only by its equations: {x in R^N : f(x) = 0} with an ambient metric g(x).

The paper's equation (submanifold-def).  Everything is derived from f and g by automatic
differentiation, in `level_set`; here are the measurements, uniform points and the volume.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.checks import is_concrete, positive_integer, random_key
from ..core.types import Key, Point, Scalar
from ..store.stored import stored
from . import _geodesics
from ._survey import ANCHORS, check_output, check_regular, check_symmetries, survey
from .base import TOLERANCE
from .level_set import AbstractLevelSet
from .names import recognized

# Steps of the random walk to a uniform point, each about as long as the manifold is wide.  On the
# sphere one of them multiplies the mean of x by E[cos(length)] = 0.24, the slowest decay there.
WALK = 24


@stored("Submanifold", parts=lambda manifold: manifold.probe(), build=recognized, asks=True)
class Submanifold(AbstractLevelSet):
    """The points of R^N where a function vanishes, with the metric of the ambient space.

    The uniform law and the volume are those of a compact, connected manifold: a random walk does
    not jump between components.  A manifold that is not compact has neither; with `around` it is
    told so, and where to look: random points are near those that are given.  With
    `constraint=None` the manifold is an open subset of R^N, the domain of `metric`.

    Geodesics are integrated by `steps` steps of Runge-Kutta.  `log` and `dist` shoot for the one
    that the straight line between the points leads to; between far points it may not be shortest.
    """

    constraint: Callable[..., Any] | None = eqx.field(static=True)
    metric: Callable[..., Any] | None = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    symmetries: Callable[..., Any] | None = eqx.field(static=True)
    closed: bool = eqx.field(static=True)
    """Whether it is taken to be compact."""
    component: tuple[float, ...] | None = eqx.field(static=True)
    """A point of the component that is meant, if one was given."""
    dim: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    # What the constructor measured.  Static numbers and not arrays: a manifold has no parameters
    # that an optimizer could find.
    _slopes: tuple[float, ...] = eqx.field(static=True)  # usual length of each row of J
    anchors: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    width: float = eqx.field(static=True)  # root mean square Riemannian distance to the middle
    walk_steps: int = eqx.field(static=True)  # Runge-Kutta steps for one step of the random walk

    def __init__(
        self,
        constraint: Callable[[Point], Array] | None,
        ambient_dim: int,
        metric: Callable[[Point], Float[Array, "N N"]] | None = None,
        *,
        steps: int = 64,
        around: Float[Array, "n N"] | None = None,
        component: Point | None = None,
        symmetries: Callable[[Key], Callable[[Point], Point]] | None = None,
    ):
        """The zero set of a function.

        Args:
            constraint: function f of a point (N,) with one value or a vector of k < N values,
                written with `jax.numpy`; None for an open subset of R^N.
            ambient_dim: the dimension N of the ambient space.
            metric: function of a point (N,) that returns the symmetric positive definite matrix
                (N, N) of the ambient metric there; None for the Euclidean one.
            steps: Runge-Kutta steps for one geodesic of `exp`.
            around: points (n, N) of a manifold that is not compact, such as data; its heat kernel
                is solved for sources near them.
            component: a point of the component that is meant, if the zero set has several.
            symmetries: a function that draws isometries: of a random key, a function of a point.
                They are checked, and the network of a heat kernel is asked to respect them.
        """
        n = positive_integer(ambient_dim, "ambient_dim", "Submanifold")
        self.constraint, self.metric, self.shape = constraint, metric, (n,)
        self.steps = positive_integer(steps, "steps", "Submanifold")
        if metric is not None:
            check_output(metric, "metric", n, lambda shape: shape == (n, n), f"shape {(n, n)}")
        self._slopes, self.anchors, self.width, self.walk_steps = (), (), 1.0, self.steps
        self.closed = constraint is not None and around is None
        self.symmetries = symmetries
        self.dim = n
        if constraint is not None:
            described = "one value or a vector of values"
            shape = check_output(constraint, "constraint", n, lambda s: len(s) < 2, described)
            count = math.prod(shape)
            self.dim = n - count
            if not 0 < count < n:
                raise ValueError(
                    f"Submanifold: {count} equations in {n} dimensions leave a set of dimension "
                    f"{self.dim}; give between 1 and {n - 1} equations, or constraint=None."
                )
            self._slopes = (1.0,) * count
        if constraint is not None or around is not None:
            self._slopes, self.anchors, self.width, self.walk_steps = survey(self, around)
        self.component = None
        if component is not None:
            self.component = tuple(map(float, self.check_point(component, "component")))
            self.anchors = (self.component,)
            keys = jr.split(jr.key(0), ANCHORS)
            with jax.ensure_compile_time_eval():
                walked = np.asarray(jax.vmap(self.draw_point)(keys))
            self.anchors = tuple(map(tuple, walked.tolist()))
        if symmetries is not None:
            check_symmetries(self, symmetries)

    # Uniform points and volume.

    def is_compact(self) -> bool:
        """If it has equations and was not told where to look."""
        return self.closed

    def walk(self, t: Scalar, x0: Point, key: Key, steps: int = 24) -> Point:
        """Brownian motion in steps of Gaussian tangent vectors, shortened for the curvature.

        A Gaussian step of variance 2 dt moves too far by dt Ric / 3 of itself, in the mean; so each
        step is shorter by dt R / 6n.
        """
        time = t / steps

        def step(x, key):
            shorter = 1 - time * self.scalar_curvature(x) / (6 * self.dim)
            length = jnp.sqrt(2 * time) * jnp.maximum(shorter, 0.5)
            return self.step_at(x, length * self.draw_tangent(key, x)), None

        return jax.lax.scan(step, x0, jr.split(key, steps))[0]

    def reach(self, x: Point, x0: Point) -> Scalar:
        """The chord: the distance would be a boundary value problem."""
        return jnp.sqrt(self.inner_at(x0, x - x0, x - x0))

    def noise_reuse(self) -> int:
        """Two: noise follows geodesics in many small steps, which takes longer than to learn.

        But what is learned depends on how much noise was seen: on the torus of revolution with five
        bumps (`benchmarks/bumps.py`) the likelihood is 0.033 below the true one after 400 steps of
        fresh noise, 0.099 after as many in which each draw serves eight, 0.054 after 1500 of those.
        """
        return 2

    @eqx.filter_jit
    def draw_point(self, key: Key) -> Point:
        """Uniform: the end of a random walk whose steps are exp of Gaussian tangent vectors.

        The geodesic flow preserves the Liouville measure (volume times Lebesgue measure of
        velocities), and the reversed flow has the same law.  So the walk is reversible with
        respect to the volume, without a Metropolis correction, and forgets its start
        geometrically fast when its steps are as long as the manifold is wide.
        """
        if not self.anchors:
            raise ValueError(
                f"{self}: an open set has no uniform law. Draw points in coordinates of your own, "
                "or give some as around=points: random points are then near them."
            )
        start_key, walk_key = jr.split(key)
        start = jr.choice(start_key, jnp.asarray(self.anchors))
        scale = self.width / math.sqrt(self.dim)
        if not self.closed:
            return self.flow(start, scale / 2 * self.draw_tangent(walk_key, start), self.steps)

        def step(x, key):
            return self.flow(x, 1.5 * scale * self.draw_tangent(key, x), self.walk_steps), None

        return jax.lax.scan(step, start, jr.split(walk_key, WALK))[0]

    def volume(self, key: Key, points: int = 8192) -> tuple[Scalar, Scalar]:
        """Monte Carlo estimate of the Riemannian volume, and its standard error.

        From the fraction of pairs of uniform points that are close to each other, in chordal
        distance.  About one per cent up to dimension six; beyond, too few points are close.

        Args:
            key: random key.
            points: number of uniform points; rounded down to a multiple of 16.
        """
        if not self.closed:
            raise ValueError(f"{self}: only a compact manifold has a volume.")
        size = positive_integer(points, "points", f"{self}.volume", at_least=256) // 16
        return self._volume(random_key(key, f"{self}.volume"), size)

    @eqx.filter_jit
    def _volume(self, key, size):
        blocks = jax.vmap(self.draw_point)(jr.split(key, (16, size)).reshape(-1))
        squared_chord = lambda x, y: self.inner_at((x + y) / 2, y - x, y - x)
        return _geodesics.volume_from_pairs(blocks.reshape(16, size, -1), squared_chord, self.dim)

    def log_volume(self) -> Scalar:
        """The logarithm of `volume` for one fixed key, computed at the first call."""
        return jnp.asarray(_log_volume(self))

    # Checks.

    def fingerprint(self) -> dict[str, Any]:
        """Its name, and values of its functions."""
        return {"manifold": str(self), "equations": self.probe()}

    def probe(self) -> dict[str, Any]:
        """Values of constraint and metric at some points, as JSON: they tell manifolds apart."""
        places = np.random.default_rng(0).normal(size=(8, *self.shape)).astype(np.float32)
        values = {}
        for name in ("constraint", "metric"):
            function = getattr(self, name)
            if function is not None:
                found = np.asarray(jax.vmap(function)(jnp.asarray(places)), np.float64)
                values[name] = [v if np.isfinite(v) else None for v in found.ravel().tolist()]
        if self.component is not None:
            values["component"] = list(self.component)
        return {"shape": list(self.shape), "dim": self.dim, **values}

    def check_point(self, x: Point, name: str = "x") -> Point:
        """`x` as an array; an error says what is wrong if it is no point of the manifold."""
        x = self.check_shape(x, name)
        if is_concrete(x):
            with jax.ensure_compile_time_eval():  # x may be a constant inside jit
                offset, matrices = self._inspect(x)
            if not float(offset) <= TOLERANCE:
                raise ValueError(
                    f"{name} is not on {self}: it is {float(offset):.3g} away from it (tolerance "
                    f"{TOLERANCE:g}). Use project(x) if that was meant."
                )
            check_regular(f"{self}", name, x, *matrices)
        return x

    @eqx.filter_jit
    def _inspect(self, x):
        return self.offset_at(x), self.matrices_at(x)

    def __str__(self) -> str:
        return f"Submanifold(dim {self.dim} in R^{self.shape[0]})"


@functools.lru_cache(maxsize=64)
def _log_volume(manifold):
    with jax.ensure_compile_time_eval():
        return math.log(float(manifold.volume(jr.key(0))[0]))
