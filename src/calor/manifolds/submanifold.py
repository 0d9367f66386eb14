r"""A manifold given only by its equations: {x in R^N : f(x) = 0} with an ambient metric g(x).

The paper's equation (submanifold-def).  Everything is derived from f and g by automatic
differentiation.  With J = df, the orthogonal projector to the tangent space, equation
(projection-def), and the geodesic equation x'' = a(x, x') are

    P = I - g^{-1} J^T (J g^{-1} J^T)^{-1} J,
    a(x, v) = -Gamma(v, v) - g^{-1} J^T (J g^{-1} J^T)^{-1} [d^2 f(v, v) - J Gamma(v, v)],

Gamma the Christoffel symbols of g.  Along a tangent frame e_j the Laplacian of the coordinates is
sum_j a(x, e_j), and `calor.calculus` makes the operators of equation (fp-coords) from the two.
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
from ..core.numerics import safe_sqrt, solve_lower, solve_positive
from ..core.types import Key, Point, Scalar, Tangent
from ..store.stored import stored
from . import _curvature
from . import _geodesics as _solvers
from ._survey import ANCHORS, check_around, check_output, check_regular, check_symmetries, survey
from .base import TOLERANCE, AbstractCompactManifold
from .names import recognized

# Steps of the random walk to a uniform point, each about as long as the manifold is wide.  On the
# sphere one of them multiplies the mean of x by E[cos(length)] = 0.24, the slowest decay there.
WALK = 24


@stored("Submanifold", parts=lambda manifold: manifold.probe(), build=recognized, asks=True)
class Submanifold(AbstractCompactManifold):
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
            given = None if around is None else check_around(around, n)
            found = survey(self, TOLERANCE, given)
            self._slopes, self.anchors, self.width, self.walk_steps = found
        if component is not None:
            self.anchors = (tuple(map(float, self.check_point(component, "component"))),)
            keys = jr.split(jr.key(0), ANCHORS)
            with jax.ensure_compile_time_eval():
                walked = np.asarray(jax.vmap(self.draw_point)(keys))
            self.anchors = tuple(map(tuple, walked.tolist()))
        if symmetries is not None:
            check_symmetries(self, symmetries)

    # Equations, projector, geodesic equation.

    def equations(self, x: Point) -> Float[Array, " m"]:
        """The values f(x), each divided by the usual length of its gradient."""
        if self.constraint is None:
            return jnp.zeros(0, x.dtype)
        return jnp.atleast_1d(self.constraint(x)) / jnp.asarray(self._slopes, x.dtype)

    def _jacobian(self, x):
        return jax.jacrev(self.equations)(x)

    def _raise(self, x, covectors):
        """g^{-1} times one or more covectors (columns)."""
        if self.metric is None:
            return covectors
        return solve_positive(self.metric(x), covectors)

    def _normal(self, x, jacobian, values):
        """The shortest ambient w with J w = values: g^{-1} J^T (J g^{-1} J^T)^{-1} values."""
        raised = self._raise(x, jacobian.T)
        return raised @ solve_positive(jacobian @ raised, values)

    def ambient_acceleration_at(self, x: Point, v: Tangent) -> Float[Array, " N"]:
        """-Gamma(v, v), as if there were no constraint."""
        if self.metric is None:
            return jnp.zeros_like(x)
        _, change = jax.jvp(self.metric, (x,), (v,))
        slope = jax.grad(lambda y: self.inner_at(y, v, v))(x)
        return -self._raise(x, change @ v - slope / 2)

    def acceleration_at(self, x: Point, v: Tangent) -> Float[Array, " N"]:
        """The second derivative a(x, v) of the geodesic through x with velocity v."""
        acceleration = self.ambient_acceleration_at(x, v)
        if self.constraint is None:
            return acceleration
        jacobian = self._jacobian(x)
        along = lambda y: jax.jvp(self.equations, (y,), (v,))[1]
        _, bending = jax.jvp(along, (x,), (v,))
        return acceleration - self._normal(
            x, jacobian, bending + jnp.sum(jacobian * acceleration, axis=1)
        )

    def projector(self, x: Point) -> Float[Array, "N N"]:
        """The matrix P(x) of the orthogonal projection to the tangent space at x."""
        return self.projector_at(self.check_point(x))

    def projector_at(self, x: Point) -> Float[Array, "N N"]:
        """`projector` of a point that is not checked."""
        identity = jnp.eye(x.size, dtype=x.dtype)
        if self.constraint is None:
            return identity
        jacobian = self._jacobian(x)
        return identity - self._normal(x, jacobian, jacobian)

    def draw_tangent(self, key: Key, x: Point) -> Tangent:
        frame = self.frame(x)
        return jr.normal(key, frame.shape[:1], x.dtype) @ frame

    def frame(self, x: Point) -> Float[Array, "N N"]:
        """The columns of P L^{-T}, with g = L L^T: they depend smoothly on x."""
        projector = self.projector_at(x)
        if self.metric is None:
            return projector
        return solve_lower(self.metric(x), projector.T)

    def coordinate_laplacian(self, x: Point) -> Tangent:
        """Sum of the geodesic accelerations along a frame; Euclidean: mean curvature vector."""
        return jnp.sum(jax.vmap(lambda e: self.acceleration_at(x, e))(self.frame(x)), axis=0)

    def basis(self, x: Point) -> Float[Array, "d N"]:
        """An orthonormal basis of the tangent space, as rows; it jumps from point to point."""
        columns = self._columns(x)
        if self.metric is None:
            return columns.T
        return solve_lower(columns.T @ self.metric_at(x) @ columns, columns.T)

    def scalar_curvature(self, x: Point) -> Scalar:
        """The scalar curvature R at x."""
        frame = self.frame(x)
        inverse, total = frame.T @ frame, jnp.zeros((), x.dtype)
        if self.metric is not None:
            total = _curvature.ambient_curvature(self.metric, x, inverse)
        if self.constraint is None:
            return total
        jacobian, hessians = self._jacobian(x), jax.hessian(self.equations)(x)
        if self.metric is not None:
            symbols = _curvature.christoffel(self.metric, x)
            hessians = hessians - jnp.tensordot(jacobian, symbols, axes=1)
        return total + _curvature.bending(hessians, jacobian @ self._raise(x, jacobian.T), inverse)

    def metric_at(self, x: Point) -> Float[Array, "N N"]:
        """The matrix g(x) of the metric of the ambient space."""
        return jnp.eye(x.size, dtype=x.dtype) if self.metric is None else self.metric(x)

    def inner_at(self, x: Point, u: Tangent, v: Tangent) -> Scalar:
        return u @ v if self.metric is None else u @ self.metric(x) @ v

    def tangent_at(self, x: Point, v: Tangent) -> Tangent:
        if self.constraint is None:
            return v
        jacobian = self._jacobian(x)
        return v - self._normal(x, jacobian, jnp.sum(jacobian * v, axis=1))

    def offset_at(self, x: Point) -> Scalar:
        if self.constraint is None:
            return jnp.zeros((), x.dtype)
        return _solvers.newton_distance(self.equations, x)

    # Geodesics and the closest point.

    @eqx.filter_jit
    def exp_at(self, x: Point, v: Tangent) -> Point:
        return self.flow(x, v, self.steps)

    def flow(self, x: Point, v: Tangent, steps: int) -> Point:
        """The end of the geodesic from x with velocity v, in so many steps of Runge-Kutta."""
        x, _ = _solvers.runge_kutta(self.acceleration_at, x, self.tangent_at(x, v), steps)
        if self.constraint is not None:
            for _ in range(2):  # so close to the manifold that Newton steps are projections
                x = x - self._normal(x, self._jacobian(x), self.equations(x))
        return x

    def step_at(self, x: Point, v: Tangent) -> Point:
        """`exp` of a short vector, in fewer steps."""
        return self.flow(x, v, 4)

    def ray(self, x: Point, v: Tangent, marks: int) -> Float[Array, "m N"]:
        """So many points along the geodesic from x with velocity v, the last one at time one."""

        def forward(state, _):
            x, v = state
            state = _solvers.runge_kutta(self.acceleration_at, x, v, 4)
            return state, state[0]

        return jax.lax.scan(forward, (x, v / marks), length=marks)[1]

    def shoot(self, x: Point, y: Point) -> tuple[Tangent, Scalar]:
        """The initial velocity of a geodesic from x to y, and by how far it misses y.

        `log` is the same with an error if the miss, a Riemannian length at y, is not small.
        """
        return self.shoot_at(self.check_point(x), self.check_point(y, "y"))

    @eqx.filter_jit
    def shoot_at(self, x: Point, y: Point) -> tuple[Tangent, Scalar]:
        """`shoot` of points that are not checked."""
        # Any bases of the two tangent spaces will do; `exp_at` projects its velocity anyway.
        basis, end_basis = map(jax.lax.stop_gradient, (self._columns(x), self._columns(y)))
        miss = lambda coordinates: self.exp_at(x, basis @ coordinates) - y

        def solve(_, start):
            factor = jnp.linalg.cholesky(self.metric_at(y))
            scale = safe_sqrt(self.inner_at(y, y, y))
            starts = jnp.asarray([1.0, 0.5, 0.25, 1.5], x.dtype)[:, None] * start
            return _solvers.least_squares(lambda c: factor.T @ miss(c), starts, scale)

        # The straight line, with the length it has in the metric: coordinates may be distorted.
        chord = y - x
        along = x + jnp.linspace(1 / 32, 31 / 32, 16, dtype=x.dtype)[:, None] * chord
        length = jnp.mean(jax.vmap(lambda z: safe_sqrt(self.inner_at(z, chord, chord)))(along))
        start = self.tangent_at(x, chord)
        start_length = safe_sqrt(self.inner_at(x, start, start))
        start = basis.T @ start * (length / jnp.where(start_length > 0, start_length, 1.0))
        start = jax.lax.stop_gradient(start)
        # Near y the tangential part of the miss is a chart, so this system is square.
        system = lambda coordinates: end_basis.T @ miss(coordinates)
        coordinates = jax.lax.custom_root(system, start, solve, _solvers.linear_solve)
        v = self.tangent_at(x, basis @ coordinates)
        gap = jax.lax.stop_gradient(self.exp_at(x, v) - y)
        return v, jnp.sqrt(self.inner_at(y, gap, gap))  # NaN stays NaN: a failure

    def _columns(self, x: Point) -> Float[Array, "N d"]:
        """As `basis`, as columns that are orthonormal in flat space whatever the metric is."""
        if self.constraint is None:
            return jnp.eye(x.size, dtype=x.dtype)
        return _solvers.complement(self._jacobian(x))

    def log_at(self, x: Point, y: Point) -> Tangent:
        v, gap = self.shoot_at(x, y)
        length, size = safe_sqrt(self.inner_at(x, v, v)), safe_sqrt(self.inner_at(y, y, y))
        rounding = 100 * float(jnp.finfo(x.dtype).eps)
        failed = ~(gap <= TOLERANCE * length + rounding * size)
        advice = "Use points closer together, more `steps`, or shoot(x, y) to see the miss."
        if not is_concrete(x, y, failed):
            return eqx.error_if(v, failed, f"{self}: no geodesic found from x to y. {advice}")
        if bool(failed):
            raise ValueError(
                f"{self}: no geodesic found from x = {x} to y = {y}: the best one has length "
                f"{float(length):.3g} and misses y by {float(gap):.3g}. {advice}"
            )
        return v

    def dist_at(self, x: Point, y: Point) -> Scalar:
        v = self.log_at(x, y)
        return safe_sqrt(self.inner_at(x, v, v))

    @eqx.filter_jit
    def project_at(self, x: Point) -> Point:
        if self.constraint is None:
            return x

        def conditions(state):  # for a minimum of |y - x|^2 / 2 + multiplier . f(y)
            y, multiplier = state
            values, pullback = jax.vjp(self.equations, y)
            return y - x + pullback(multiplier)[0], values

        def solve(_, start):
            y, _ = _solvers.closest_point(self.equations, x, start[0], self.width)
            # Newton's method can fail far from the manifold: begin again at a point on it.
            anchors = jnp.asarray(self.anchors, x.dtype)
            nearest = anchors[jnp.argmin(jnp.sum((anchors - x) ** 2, axis=1))]
            y = jnp.where(self.offset_at(y) <= TOLERANCE, y, nearest)
            return _solvers.closest_point(self.equations, x, y, self.width)

        start = (x, jnp.zeros(x.size - self.dim, x.dtype))
        return jax.lax.custom_root(conditions, start, solve, _solvers.linear_solve)[0]

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
        return _solvers.volume_from_pairs(blocks.reshape(16, size, -1), squared_chord, self.dim)

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

    def matrices_at(self, x: Point) -> tuple[Float[Array, "m N"], Float[Array, "N N"]]:
        """The Jacobian of the equations and the metric."""
        jacobian = jnp.zeros((0, x.size)) if self.constraint is None else self._jacobian(x)
        return jacobian, self.metric_at(x)

    def __str__(self) -> str:
        return f"Submanifold(dim {self.dim} in R^{self.shape[0]})"


@functools.lru_cache(maxsize=64)
def _log_volume(manifold):
    with jax.ensure_compile_time_eval():
        return math.log(float(manifold.volume(jr.key(0))[0]))
