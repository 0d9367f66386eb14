"""The unit sphere S^n in R^(n+1)."""

import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ..core.checks import positive_integer
from ..core.numerics import cot_remainder, safe_norm, sinc
from ..core.types import Key, Point, Scalar, Tangent
from .base import AbstractCompactManifold
from .names import kind
from .symmetric import AbstractSpaceForm


@kind("sphere", "dim")
class Sphere(AbstractCompactManifold, AbstractSpaceForm):
    """The unit sphere of dimension n; points are unit vectors of R^(n+1)."""

    dim: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, n: int):
        """The unit sphere of dimension `n`."""
        self.dim = positive_integer(n, "n", "Sphere")
        self.shape = (self.dim + 1,)

    def exp_at(self, x: Point, v: Tangent) -> Point:
        v = self.tangent_at(x, v)
        length = safe_norm(v)
        return self.project_at(jnp.cos(length) * x + sinc(length) * v)

    def log_at(self, x: Point, y: Point) -> Tangent:
        direction, sine, cosine = self.polar(x, y)
        tiny = jnp.asarray(1e-12, x.dtype)
        off_axis = sine > tiny
        # Exactly opposite points are joined by geodesics in all directions: take one of them.
        away = self.tangent_at(x, jnp.zeros_like(x).at[jnp.argmin(jnp.abs(x))].set(1.0))
        direction = jnp.where(off_axis | (cosine > 0), direction, jnp.pi * away / safe_norm(away))
        sine = jnp.where(off_axis, sine, 1.0)
        return direction * jnp.where(off_axis, jnp.arctan2(sine, cosine) / sine, 1.0)

    def dist_at(self, x: Point, y: Point) -> Scalar:
        _, sine, cosine = self.polar(x, y)
        return jnp.arctan2(sine, cosine)

    def inner_at(self, x: Point, u: Tangent, v: Tangent) -> Scalar:
        return jnp.sum(u * v)

    def project_at(self, x: Point) -> Point:
        norm = safe_norm(x)
        pole = jnp.zeros_like(x).at[0].set(1.0)  # every point is nearest to the origin: take one
        return jnp.where(norm > 0, x / jnp.where(norm > 0, norm, 1.0), pole)

    def tangent_at(self, x: Point, v: Tangent) -> Tangent:
        # Dividing by x.x keeps this exact for an x whose norm is off by rounding.
        return v - x * (jnp.sum(x * v) / jnp.sum(x * x))

    def offset_at(self, x: Point) -> Scalar:
        return jnp.abs(safe_norm(x) - 1)

    def draw_point(self, key: Key) -> Point:
        return self.project_at(jr.normal(key, self.shape))

    def draw_tangent(self, key: Key, x: Point) -> Tangent:
        return self.tangent_at(x, jr.normal(key, self.shape, x.dtype))

    def polar(self, x: Point, y: Point) -> tuple[Tangent, Scalar, Scalar]:
        """The part of y orthogonal to x, its length sin r, and cos r, for r = dist(x, y).

        The orthogonal part is taken of y - x or of y + x, whichever is short: differences of
        neighbouring numbers are exact, so sin r keeps its relative accuracy at both ends.
        """
        cosine = jnp.sum(x * y)
        side = jnp.where(cosine > 0, 1.0, -1.0).astype(x.dtype)
        direction = self.tangent_at(x, y - side * x)
        return direction, safe_norm(direction), cosine

    def frame(self, x: Point) -> Float[Array, "m ..."]:
        """The columns of the projector I - x x^T."""
        return jnp.eye(self.dim + 1, dtype=x.dtype) - jnp.outer(x, x)

    def basis(self, x: Point) -> Float[Array, "m ..."]:
        """The coordinate directions but the first, after a reflection that takes that one to x."""
        axis = x.at[0].add(jnp.where(x[0] >= 0, 1.0, -1.0))
        reflection = jnp.eye(self.dim + 1, dtype=x.dtype)
        return (reflection - jnp.outer(axis, 2 * axis / jnp.sum(axis * axis)))[1:]

    def log_volume(self) -> Scalar:
        """log of 2 pi^((n+1)/2) / Gamma((n+1)/2)."""
        half = (self.dim + 1) / 2
        return jnp.asarray(math.log(2) + half * math.log(math.pi) - math.lgamma(half))

    def lifted_coordinates(
        self, x: Point, x0: Point
    ) -> tuple[Float[Array, " k"], Callable[[Float[Array, " k"]], Tangent]]:
        """The lift is along the geodesic from x0."""
        direction, sine, cosine = self.polar(x, x0)
        toward = direction / jnp.where(sine > 0, sine, 1.0)
        return jnp.arctan2(sine, cosine)[None], lambda slope: -slope[0] * toward

    def log_distortion(self, y: Float[Array, " k"]) -> Scalar:
        """(n - 1) log(sin r / r)."""
        return (self.dim - 1) * jnp.log(jnp.maximum(sinc(y[0]), 1e-30))

    def first_order(self, y: Float[Array, " k"]) -> Scalar:
        """(n-1)^2/4 - (n-1)(n-3)/4 (1/r - cot r)/r."""
        n = self.dim
        # Beyond 3.1 the law is far from valid; the clip keeps it finite at the antipode.
        bracket = cot_remainder(jnp.minimum(y[0], 3.1))
        return (n - 1) ** 2 / 4 - (n - 1) * (n - 3) / 4 * bracket

    def constant_curvature(self) -> int:
        """One."""
        return 1

    def log_area(self, y: Float[Array, " k"]) -> Scalar:
        """(n - 1) log sin r."""
        return (self.dim - 1) * jnp.log(jnp.sin(y[0]))

    def invariants(self, y: Float[Array, " k"]) -> Float[Array, "m f"]:
        """cos r."""
        return jnp.cos(y)[None]

    def relative(self, x: Point, x0: Point) -> Float[Array, " d"]:
        """x after a reflection that takes x0 to the first coordinate vector."""
        side = jnp.where(x0[0] >= 0, 1.0, -1.0)
        axis = x0.at[0].add(side)
        return -side * (x - axis * (2 * jnp.sum(axis * x) / jnp.sum(axis * axis)))

    def injectivity_radius(self) -> float:
        """The distance pi of antipodes."""
        return math.pi

    def spectral_gap(self) -> float:
        """n, of the coordinate functions."""
        return float(self.dim)
