r"""What follows by differentiation for {x in R^N : f(x) = 0} with an ambient metric g(x).

With J = df, the orthogonal projector to the tangent space, the paper's equation (projection-def),
and the geodesic equation x'' = a(x, x') are

    P = I - g^{-1} J^T (J g^{-1} J^T)^{-1} J,
    a(x, v) = -Gamma(v, v) - g^{-1} J^T (J g^{-1} J^T)^{-1} [d^2 f(v, v) - J Gamma(v, v)],

Gamma the Christoffel symbols of g.  Along a tangent frame e_j the Laplacian of the coordinates is
sum_j a(x, e_j), and `calculus` makes the operators of equation (fp-coords) from the two.
Geodesics are integrated, and found between two points by shooting.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ..core.checks import is_concrete
from ..core.numerics import safe_sqrt, solve_positive, whiten
from ..core.types import Key, Point, Scalar, Tangent
from . import _curvature, _geodesics
from .base import TOLERANCE, AbstractManifold


class AbstractLevelSet(AbstractManifold):
    """The points of R^N where `constraint` vanishes, or all of them, with an ambient metric."""

    constraint: eqx.AbstractVar[Callable[..., Any] | None]
    """The function f; None for an open subset of R^N."""
    metric: eqx.AbstractVar[Callable[..., Any] | None]
    """The function g; None for the Euclidean metric."""
    steps: eqx.AbstractVar[int]
    """Runge-Kutta steps of a geodesic."""
    anchors: eqx.AbstractVar[tuple[tuple[float, ...], ...]]
    """Some points."""
    width: eqx.AbstractVar[float]
    """Root mean square Riemannian distance to the middle."""
    _slopes: eqx.AbstractVar[tuple[float, ...]]  # usual length of each row of J

    def equations(self, x: Point) -> Float[Array, " m"]:
        """The values f(x), each divided by the usual length of its gradient."""
        if self.constraint is None:
            return jnp.zeros(0, x.dtype)
        return jnp.atleast_1d(self.constraint(x)) / jnp.asarray(self._slopes, x.dtype)

    def _jacobian(self, x):
        if self.constraint is None:
            return jnp.zeros((0, x.size), x.dtype)
        return jax.jacrev(self.equations)(x)

    def _raise(self, x, covectors):
        """g^{-1} times one or more covectors (columns)."""
        if self.metric is None:
            return covectors
        return solve_positive(self.metric(x), covectors)

    def _normal(self, x, jacobian, values):
        """The shortest ambient w with J w = values: g^{-1} J^T (J g^{-1} J^T)^{-1} values."""
        if self.constraint is None:
            return jacobian.T @ values
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
        acceleration, jacobian = self.ambient_acceleration_at(x, v), self._jacobian(x)
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
        jacobian = self._jacobian(x)
        return jnp.eye(x.size, dtype=x.dtype) - self._normal(x, jacobian, jacobian)

    def draw_tangent(self, key: Key, x: Point) -> Tangent:
        frame = self.frame(x)
        return jr.normal(key, frame.shape[:1], x.dtype) @ frame

    def frame(self, x: Point) -> Float[Array, "N N"]:
        """The columns of P L^{-T}, with g = L L^T: they depend smoothly on x."""
        projector = self.projector_at(x)
        if self.metric is None:
            return projector
        return whiten(self.metric(x), projector.T)

    def coordinate_laplacian(self, x: Point) -> Tangent:
        """Sum of the geodesic accelerations along a frame; Euclidean: mean curvature vector."""
        return jnp.sum(jax.vmap(lambda e: self.acceleration_at(x, e))(self.frame(x)), axis=0)

    def basis(self, x: Point) -> Float[Array, "d N"]:
        """An orthonormal basis of the tangent space, as rows; it jumps from point to point."""
        columns = self._columns(x)
        if self.metric is None:
            return columns.T
        return whiten(columns.T @ self.metric_at(x) @ columns, columns.T)

    def _columns(self, x):
        """As `basis`, as columns that are orthonormal in flat space whatever the metric is."""
        return _geodesics.complement(self._jacobian(x))

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

    def matrices_at(self, x: Point) -> tuple[Float[Array, "m N"], Float[Array, "N N"]]:
        """The Jacobian of the equations and the metric."""
        return self._jacobian(x), self.metric_at(x)

    def inner_at(self, x: Point, u: Tangent, v: Tangent) -> Scalar:
        return u @ v if self.metric is None else u @ self.metric(x) @ v

    def tangent_at(self, x: Point, v: Tangent) -> Tangent:
        jacobian = self._jacobian(x)
        return v - self._normal(x, jacobian, jnp.sum(jacobian * v, axis=1))

    def offset_at(self, x: Point) -> Scalar:
        if self.constraint is None:
            return jnp.zeros((), x.dtype)
        return _geodesics.newton_distance(self.equations, x)

    # Geodesics and the closest point.

    @eqx.filter_jit
    def exp_at(self, x: Point, v: Tangent) -> Point:
        return self.flow(x, v, self.steps)

    def flow(self, x: Point, v: Tangent, steps: int) -> Point:
        """The end of the geodesic from x with velocity v, in so many steps of Runge-Kutta."""
        x, _ = _geodesics.runge_kutta(self.acceleration_at, x, self.tangent_at(x, v), steps)
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
            state = _geodesics.runge_kutta(self.acceleration_at, x, v, 4)
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
            return _geodesics.least_squares(lambda c: factor.T @ miss(c), starts, scale)

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
        coordinates = jax.lax.custom_root(system, start, solve, _geodesics.linear_solve)
        v = self.tangent_at(x, basis @ coordinates)
        gap = jax.lax.stop_gradient(self.exp_at(x, v) - y)
        return v, jnp.sqrt(self.inner_at(y, gap, gap))  # NaN stays NaN: a failure

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
            y, _ = _geodesics.closest_point(self.equations, x, start[0], self.width)
            # Newton's method can fail far from the manifold: begin again at a point on it.
            anchors = jnp.asarray(self.anchors, x.dtype)
            nearest = anchors[jnp.argmin(jnp.sum((anchors - x) ** 2, axis=1))]
            y = jnp.where(self.offset_at(y) <= TOLERANCE, y, nearest)
            return _geodesics.closest_point(self.equations, x, y, self.width)

        start = (x, jnp.zeros(x.size - self.dim, x.dtype))
        return jax.lax.custom_root(conditions, start, solve, _geodesics.linear_solve)[0]
