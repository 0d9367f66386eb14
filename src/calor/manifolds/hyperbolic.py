"""Hyperbolic space H^n of curvature -1, as the upper sheet of a hyperboloid.

Points are x = (x_0, x_1, ..., x_n) with -x_0^2 + x_1^2 + ... + x_n^2 = -1 and x_0 > 0.  Far out the
two sides of that equation cancel, so x_0 is always taken as the function sqrt(1 + |s|^2) of the
other coordinates s, and the metric and the distance are written as sums of positive terms in s.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.checks import is_concrete, positive_integer, real_array
from ..core.numerics import (
    coth_remainder,
    even_features,
    log_sinhc,
    safe_norm,
    safe_sqrt,
    sinhc,
    squared_arcsinh,
)
from ..core.types import Key, Point, Scalar, Tangent
from .names import kind
from .symmetric import AbstractSpaceForm


@kind("hyperbolic", "dim")
class Hyperbolic(AbstractSpaceForm):
    """Hyperbolic space of dimension n, on the hyperboloid in R^(1, n)."""

    dim: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, n: int):
        """The hyperbolic space of dimension `n`."""
        self.dim = positive_integer(n, "n", "Hyperbolic")
        self.shape = (self.dim + 1,)

    def exp_at(self, x: Point, v: Tangent) -> Point:
        length = safe_sqrt(self.inner_at(x, v, v))
        # Beyond this length the coordinates would overflow float32.
        length = jnp.minimum(length, 85.0)
        return self.project_at(jnp.cosh(length) * x + sinhc(length) * v)

    def log_at(self, x: Point, y: Point) -> Tangent:
        q = _half_chord(x, y)
        length = 2 * jnp.arcsinh(safe_sqrt(q))
        # y - cosh(r) x, its spatial part.  Far out the two terms cancel: there it is put together
        # from a radial and a transverse part, each from the exact difference of the points.
        s, change = x[1:], y[1:] - x[1:]
        inside = change - 2 * q * s
        far = x[0] > 1.5
        direction = jnp.where(far, s, jnp.ones_like(s))
        unit = direction / _large_norm(direction)
        radius, along = jnp.sum(unit * s), jnp.sum(unit * change)
        across = change - along * unit
        ahead = radius + along  # the radial coordinate of y
        # x_0 ahead - radius y_0, the component along the unit radial vector; where that is a
        # difference, as a quotient of (x_0 ahead)^2 - (radius y_0)^2
        slope = radius / x[0]
        numerator = along * ((ahead + radius) / x[0]) - slope * radius * jnp.sum(across**2)
        rationalized = numerator / _positive(ahead + slope * y[0])
        radial = jnp.where(ahead > 0, rationalized, x[0] * ahead - radius * y[0])
        # divided first: the components are as large as exp(2r) before
        shrink = 1 / sinhc(length)
        outside = (radial * shrink) * x[0] * unit + across * shrink
        spatial = jnp.where(far, outside, inside * shrink)
        return jnp.concatenate([jnp.sum(s / x[0] * spatial)[None], spatial])

    def dist_at(self, x: Point, y: Point) -> Scalar:
        return 2 * jnp.arcsinh(safe_sqrt(_half_chord(x, y)))

    def squared_distance(self, x: Point, y: Point) -> Scalar:
        """The square of the distance, smooth also at x = y."""
        return 4 * squared_arcsinh(_half_chord(x, y))

    def inner_at(self, x: Point, u: Tangent, v: Tangent) -> Scalar:
        # On tangent vectors u_0 = s.u / x_0, and |u|^2 = (|u_s|^2 + |s ^ u_s|^2) / (1 + |s|^2).
        # The squares would overflow far out, hence the scales.
        m = _scale(x[1:])
        s, a, b = x[1:] / m, u[1:] / m, v[1:] / m
        wedge = m * m * jnp.sum(_wedge(s, a) * _wedge(s, b)) / 2
        return (jnp.sum(a * b) + wedge) / (1 / m**2 + jnp.sum(s * s))

    def project_at(self, x: Point) -> Point:
        return x.at[0].set(_time(x[1:]))

    def tangent_at(self, x: Point, v: Tangent) -> Tangent:
        # v + <x, v> x, then the first coordinate from the others so that <x, v> = 0.
        spatial = v[1:] + (jnp.sum(x[1:] * v[1:]) - x[0] * v[0]) * x[1:]
        return jnp.concatenate([jnp.sum(x[1:] * spatial)[None] / x[0], spatial])

    def offset_at(self, x: Point) -> Scalar:
        expected = _time(x[1:])
        return jnp.abs(x[0] - expected) / expected

    def draw_point(self, key: Key) -> Point:
        x = self.origin()
        return self.exp_at(x, self.draw_tangent(key, x))

    def draw_tangent(self, key: Key, x: Point) -> Tangent:
        return jr.normal(key, (self.dim,), x.dtype) @ self.frame(x)

    def frame(self, x: Point) -> Float[Array, "m ..."]:
        """The orthonormal basis at the origin, carried to x by a boost."""
        s = x[1:]
        spatial = jnp.eye(self.dim, dtype=x.dtype) + jnp.outer(s, s / (1 + x[0]))
        return jnp.column_stack([s, spatial])

    def embedding(self, x: Point) -> Float[Array, " d"]:
        """Normal coordinates at the origin."""
        return x[1:] / sinhc(jnp.arcsinh(_large_norm(x[1:])))

    def code_size(self) -> int:
        """Normal coordinates."""
        return self.dim

    def decode(self, code: Float[Array, " c"]) -> Point:
        """The point with given normal coordinates at the origin."""
        origin = self.origin().astype(code.dtype)
        return self.exp_at(origin, jnp.concatenate([jnp.zeros(1, code.dtype), code]))

    def has_chart(self) -> bool:
        """Normal coordinates at the origin."""
        return True

    def log_chart_volume(self, x: Point) -> Scalar:
        """log of the volume that a unit cube of normal coordinates has at x."""
        return self.log_distortion(jnp.arcsinh(_large_norm(x[1:]))[None])

    def lifted_coordinates(
        self, x: Point, x0: Point
    ) -> tuple[Float[Array, " k"], Callable[[Float[Array, " k"]], Tangent]]:
        """The lift is along the geodesic from x0."""
        r = self.dist_at(x, x0)
        toward = self.log_at(x, x0) / _positive(r)
        return r[None], lambda slope: -slope[0] * toward

    def log_distortion(self, y: Float[Array, " k"]) -> Scalar:
        """(n - 1) log(sinh r / r)."""
        return (self.dim - 1) * log_sinhc(y[0])

    def first_order(self, y: Float[Array, " k"]) -> Scalar:
        """-(n-1)^2/4 + (n-1)(n-3)/4 (coth r - 1/r)/r."""
        n = self.dim
        return -((n - 1) ** 2) / 4 + (n - 1) * (n - 3) / 4 * coth_remainder(y[0])

    def constant_curvature(self) -> int:
        """Minus one."""
        return -1

    def log_area(self, y: Float[Array, " k"]) -> Scalar:
        """(n - 1) log sinh r."""
        return (self.dim - 1) * (log_sinhc(y[0]) + jnp.log(y[0]))

    def invariants(self, y: Float[Array, " k"]) -> Float[Array, "m f"]:
        """Two even functions of the distance."""
        return even_features(y)

    def relative(self, x: Point, x0: Point) -> Float[Array, " d"]:
        """The spatial part of x after a boost that takes x0 to the origin."""
        s, s0 = x[1:], x0[1:]
        return s - s0 * (x[0] - jnp.sum(s * s0) / (1 + x0[0]))

    def injectivity_radius(self) -> float:
        """Infinite."""
        return math.inf

    def to_ball(self, x: Point) -> Float[Array, " n"]:
        """The point in the Poincare ball."""
        x = self.check_point(x)
        return x[1:] / (1 + x[0])

    def from_ball(self, ball: Float[Array, " n"]) -> Point:
        """The point of the hyperboloid for a point of the Poincare ball, |ball| < 1."""
        ball = real_array(ball, "ball", (self.dim,), str(self))
        squared = jnp.sum(ball * ball)
        if is_concrete(ball) and not np.sum(np.square(ball)) < 1:
            raise ValueError(
                f"{self}: a point of the Poincare ball has norm below 1, got norm "
                f"{np.linalg.norm(ball):.6g}."
            )
        return self.project_at(jnp.concatenate([jnp.ones(1, ball.dtype), 2 * ball / (1 - squared)]))


def _scale(s):
    """A number of the size of s, at least one, to divide by before squaring."""
    return jax.lax.stop_gradient(jnp.maximum(1.0, jnp.max(jnp.abs(s))))


def _time(s):
    """x_0 = sqrt(1 + |s|^2)."""
    m = _scale(s)
    return m * jnp.sqrt(1 / m**2 + jnp.sum((s / m) ** 2))


def _large_norm(s):
    m = _scale(s)
    return m * safe_norm(s / m)


def _wedge(a, b):
    return jnp.outer(a, b) - jnp.outer(b, a)


@jax.custom_jvp
def _half_chord(x, y):
    """sinh^2(r/2) = -(1 + <x, y>) / 2 for r = dist(x, y), without cancellation.

    With polar coordinates (a, u), (b, w) this is sinh^2((a - b)/2) + sinh a sinh b sin^2(angle/2).
    """
    s, z = x[1:], y[1:]
    a, b = _large_norm(s), _large_norm(z)
    change, scale = s - z, jnp.maximum(x[0], y[0])
    difference = jnp.sum((change / scale) * (s + z))  # (a^2 - b^2) / scale
    radial = jnp.arcsinh(difference / _positive((a / scale) * y[0] + (b / scale) * x[0]))
    # (b s - a z) / sqrt(a b), from the exact difference of the points
    root_a, root_b = safe_sqrt(a), safe_sqrt(b)
    fraction = difference / _positive((a + b) / scale)
    across = change * (root_b / _positive(root_a)) - fraction * (z / _positive(root_a * root_b))
    angular = jnp.where((a > 0) & (b > 0), jnp.sum(across * across) / 4, 0.0)
    return jnp.sinh(radial / 2) ** 2 + angular


@_half_chord.defjvp
def _half_chord_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    # Exact and smooth, where the formula above is neither at the origin.
    return _half_chord(x, y), -(_minkowski(dx, y) + _minkowski(x, dy)) / 2


def _minkowski(u, v):
    return jnp.sum(u[1:] * v[1:]) - u[0] * v[0]


def _positive(x):
    return jnp.where(x > 0, x, 1.0)
