r"""Short-time laws on any manifold by shooting geodesics, with nothing known in closed form.

A tangent vector v at x0 leads to x = exp(v), at the distance |v|.  With D the volume distortion of
the exponential map, from its Jacobian J by automatic differentiation, and R the scalar curvature,

    log p = -|v|^2 / 4t - (n/2) log 4 pi t - (1/2) log D + t (R(x) + R(x0)) / 12 + O(t^2),

since the first order u_1/u_0 is the mean of R/6 along the geodesic up to terms of order |v|^2.  The
score is the vector s at x with J^T g s = d(log p)/dv: it comes along the shot geodesic, and no
boundary value problem is solved unless somebody asks for the density at given points.

How far the law is from solving the heat equation comes along the geodesic as well.  Write
log p = -|v|^2/4t - (n/2) log 4 pi t + psi(t, v), psi = -(1/2) log D + t c, c = (R(x) + R(x0)) / 12.
In the coordinates v geodesics from x0 are straight, so the singular terms of the equation cancel,
and what is left over of d(log p)/dt - Delta log p - |grad log p|^2 is

    c + v . dc/dv - Delta psi - |grad psi|^2.
"""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial import KDTree

from ...core.numerics import log_det, solve_positive
from ...core.types import Key, Point, Scalar, Tangent
from ...manifolds import Submanifold
from ...manifolds.base import TOLERANCE
from ...store.stored import stored
from ..certificate import Certificate
from ..kernel import AbstractHeatKernel, log_gaussian
from . import certify
from .laws import LAWS

# Runge-Kutta steps of a shot, at least: they are shorter than those of `exp` may be.  With these
# log p at t0 is right to 2e-6, the score to 3e-5; half as many decide on proposals.
_STEPS = 12
# The same if it is known when the law ends: at least, and as many as this part of those that a
# geodesic of three widths takes, for one of so many standard deviations.
_FEWEST, _PART, _LONGEST = 6, 0.5, 4.0
# Proposals of a draw.
_PROPOSALS = 3
# To find where geodesics stop being shortest: sources, geodesics from each, points on each.
_SOURCES, _RAYS, _MARKS = 6, 256, 48
# Standard deviations of the law that have to fit into the shortest geodesics.
_REACH = 5.0
# Geodesics whose neighbours are looked at, and how close these come where they are said to meet.
_STRETCHED, _COLLAPSED = 64, 0.05


@stored("GeodesicLaw")
class GeodesicLaw(AbstractHeatKernel):
    """The short-time law of a manifold that is given by its equations."""

    manifold: Submanifold
    last: float | None = eqx.field(static=True, default=None)
    """The last time that it is asked for: the shorter geodesics are, the fewer steps they take."""

    def has_unit_mass(self) -> bool:
        """No: what comes around the manifold is left out."""
        return False

    def log_prob_at(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        basis = self.manifold.basis(x0)
        return self._value(t, x0, basis, self._coordinates(x, x0, basis))[0]

    def score_at(self, t: Scalar, x: Point, x0: Point) -> Tangent:
        basis = self.manifold.basis(x0)
        return self.along(t, x0, basis, self._coordinates(x, x0, basis))[2]

    def both_at(self, t: Scalar, x: Point, x0: Point) -> tuple[Scalar, Tangent]:
        basis = self.manifold.basis(x0)
        return self.along(t, x0, basis, self._coordinates(x, x0, basis))[1:]

    def draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        return self.known_draw(t, x0, key)[0]

    def draw_with_score(self, t: Scalar, x0: Point, key: Key) -> tuple[Point, Tangent]:
        x, _, score = self.known_draw(t, x0, key)
        return x, score

    def known_draw(self, t: Scalar, x0: Point, key: Key) -> tuple[Point, Scalar, Tangent]:
        """By a shot geodesic, along which log p and the score come."""
        basis = self.manifold.basis(x0)
        return self.along(t, x0, basis, self.velocity(t, x0, basis, key))

    def is_costly(self) -> bool:
        """At given points a geodesic has to be found."""
        return True

    def certified(self, last: float, *, rounded: bool = True) -> Certificate:
        """By what it leaves of the equation along shot geodesics.

        Measured once, for as long as draws stay within geodesics that are shortest, and cut.
        """
        manifold = self.manifold
        usual = min(last_of_law(shortest_length(manifold)), 8 * manifold.width**2 / manifold.dim)
        found = certify.measured(self, max(usual, float(last)))
        if not rounded and last > found.times[-1]:
            found = certify.measured(self, float(last), rounded=False)
        return found.until(last)

    def velocity(
        self, t: Scalar, x0: Point, basis: Float[Array, "d N"], key: Key
    ) -> Float[Array, " d"]:
        """The initial velocity of a draw, in a basis of the tangent space.

        A Gaussian vector, corrected for the curvature by a few steps of Metropolis' rule.
        """
        key_start, key_walk = jr.split(key)
        width = jnp.sqrt(2 * t)

        def draw(key):
            v = width * jr.normal(key, basis.shape[:1], x0.dtype)
            value = self._shot(x0, basis, v, self._steps() // 2)[2] / 2
            # The density of v is p D, and the Gaussian is the proposal.  Beyond a conjugate point
            # there may be no value: never stay there.
            return v, jnp.where(jnp.isfinite(value), value, -jnp.inf)

        def step(state, key):
            key_draw, key_accept = jr.split(key)
            v, value = state
            new, new_value = draw(key_draw)
            accept = jnp.log(jr.uniform(key_accept, dtype=value.dtype)) < new_value - value
            return (jnp.where(accept, new, v), jnp.where(accept, new_value, value)), None

        (v, value), _ = jax.lax.scan(step, draw(key_start), jr.split(key_walk, _PROPOSALS))
        return jnp.where(value > -jnp.inf, v, 0.0)

    def _coordinates(self, x, x0, basis):
        toward, gap = self.manifold.shoot_at(x0, x)
        # Where no geodesic is found the points are taken to be as far apart as their chord is long.
        chord = self.manifold.tangent_at(x0, x - x0)
        found = gap <= TOLERANCE * (1 + jnp.max(jnp.abs(x)))
        toward = jnp.where(found, toward, chord)
        return jax.vmap(lambda e: self.manifold.inner_at(x0, toward, e))(basis)

    def _steps(self):
        steps, widths = self.manifold.walk_steps, 3 * self.manifold.width
        if self.last is None:
            return max(_STEPS, steps // 2)
        share = min(1.0, _LONGEST * math.sqrt(2 * self.last) / widths)
        return max(_FEWEST, math.ceil(_PART * share * steps))

    def _shot(self, x0: Point, basis: Float[Array, "d N"], v: Float[Array, " d"], steps: int):
        """The end of a geodesic, the Jacobian there, and the logarithm of the distortion D."""

        def end(v):
            x = self.manifold.flow(x0, v @ basis, steps)
            return x, x

        jacobian, x = jax.jacfwd(end, has_aux=True)(v)
        return x, jacobian, log_det(jacobian.T @ self.manifold.metric_at(x) @ jacobian) / 2

    def _value(self, t, x0, basis, v) -> tuple[Scalar, tuple[Point, Float[Array, "N d"]]]:
        """log p, the end point and the Jacobian."""
        manifold = self.manifold
        x, jacobian, log_distortion = self._shot(x0, basis, v, self._steps())
        log_distortion = jnp.where(jnp.isfinite(log_distortion), log_distortion, 0.0)
        curvature = (manifold.scalar_curvature(x) + manifold.scalar_curvature(x0)) / 12
        gaussian = log_gaussian(t, v @ v, manifold.dim)
        return gaussian - log_distortion / 2 + t * curvature, (x, jacobian)

    def residual(
        self, t: Scalar, x0: Point, basis: Float[Array, "d N"], v: Float[Array, " d"]
    ) -> tuple[Scalar, Scalar]:
        """What the law leaves of the log heat equation at exp(v), and its largest term there."""
        manifold, n = self.manifold, self.manifold.dim
        curvature_there = manifold.scalar_curvature(x0)

        def parts(v):
            x, jacobian, log_distortion = self._shot(x0, basis, v, self._steps())
            c = (manifold.scalar_curvature(x) + curvature_there) / 12
            metric = jacobian.T @ manifold.metric_at(x) @ jacobian
            values = jnp.stack([t * c - log_distortion / 2, c, log_distortion])
            return values, (values, metric)

        def flux(v):
            """D G^{-1} d psi, whose divergence over D is the Laplacian."""
            slopes, (values, metric) = jax.jacfwd(parts, has_aux=True)(v)
            raised = solve_positive(metric, slopes[0])
            return jnp.exp(values[2]) * raised, (values, slopes, raised @ slopes[0])

        spread, (values, slopes, squared) = jax.jacfwd(flux, has_aux=True)(v)
        laplacian = jnp.trace(spread) * jnp.exp(-values[2])
        left = values[1] + v @ slopes[1] - laplacian - squared
        # The terms themselves, with what the Gaussian adds to them.
        change = v @ v / (4 * t**2) - n / (2 * t) + values[1]
        bend = laplacian - (n + v @ slopes[2]) / (2 * t)
        largest = jnp.max(jnp.abs(jnp.stack([change, bend, change - bend - left])))
        return left, largest

    def along(
        self, t: Scalar, x0: Point, basis: Float[Array, "d N"], v: Tangent
    ) -> tuple[Point, Scalar, Tangent]:
        """The end point, with log p and the score there."""

        def value(v):
            found, rest = self._value(t, x0, basis, v)
            return found, (found, *rest)

        slope, (found, x, jacobian) = jax.jacfwd(value, has_aux=True)(v)
        inner = jacobian.T @ self.manifold.metric_at(x) @ jacobian
        return x, found, jacobian @ solve_positive(inner, slope)


def shortest_radius(manifold: Submanifold, key: Key) -> float:
    """The length up to which geodesics are shortest, as found by shooting many.

    Infinite if all of them are, as far as they are followed: several widths of what is looked at.
    One is not shortest any more if it is longer than another one to a point nearby and the way
    from there, or if it has passed a conjugate point, where geodesics meet that start in almost the
    same direction: there the exponential map loses a dimension.
    """
    key_source, key_ray = jr.split(key)
    sources = jax.jit(jax.vmap(manifold.draw_point))(jr.split(key_source, _SOURCES))
    longest = 4 * manifold.width  # beyond half of a closed geodesic around it all
    lengths = longest * np.arange(1, _MARKS + 1) / _MARKS

    @jax.jit
    def shoot(x0, key):
        basis = manifold.basis(x0)
        v = jr.normal(key, (_RAYS, manifold.dim))
        v = longest * v / jnp.linalg.norm(v, axis=1, keepdims=True)
        ray = lambda v: manifold.ray(x0, v @ basis, _MARKS)
        places = jax.vmap(ray)(v)

        def distortion(v, places):
            jacobians = jax.jacfwd(ray)(v) * (longest / lengths)[:, None, None]
            metrics = jax.vmap(manifold.metric_at)(places)
            return jnp.einsum("mia,mij,mjb->mab", jacobians, metrics, jacobians)

        squares = jax.vmap(distortion)(v[:_STRETCHED], places[:_STRETCHED])
        return places, jax.vmap(jax.vmap(manifold.metric_at))(places), squares

    radius = longest
    along = np.broadcast_to(lengths, (_RAYS, _MARKS))
    for x0, key_source in zip(sources, jr.split(key_ray, _SOURCES), strict=True):
        places, metrics, squares = map(np.asarray, shoot(x0, key_source))
        smallest = np.linalg.eigvalsh(np.nan_to_num(squares))[..., 0]
        not_shortest = [along[:_STRETCHED][smallest < _COLLAPSED**2]]
        flat, size = along.ravel(), places.shape[-1]
        places, metrics = places.reshape(-1, size), metrics.reshape(-1, size, size)
        known = np.isfinite(places).all(axis=1)
        places, metrics, flat = places[known], metrics[known], flat[known]
        near = KDTree(places).query(places, 33)[1]
        chords = places[near] - places[:, None]
        here = np.einsum("pki,pij,pkj->pk", chords, metrics, chords)
        there = np.einsum("pki,pkij,pkj->pk", chords, metrics[near], chords)
        # Along the manifold two near points are somewhat farther apart than their chord.
        gaps = np.sqrt(np.maximum(here, there))
        detour = np.min(flat[near] + 1.1 * gaps, axis=1) + 1e-3 * longest
        not_shortest.append(flat[flat > detour])
        radius = min(radius, *(float(found.min()) for found in not_shortest if found.size), radius)
    return radius if radius < longest else math.inf


@functools.lru_cache(maxsize=16)
def shortest_length(manifold: Submanifold) -> float:
    """The `shortest_radius` of a manifold, found once."""
    return shortest_radius(manifold, jr.key(2))


def last_of_law(radius: float) -> float:
    """The time until which draws stay within geodesics that are shortest, up to a length."""
    return (radius / _REACH) ** 2 / 2


LAWS.register(Submanifold)(lambda manifold, order: GeodesicLaw(manifold))
