"""Manifolds whose isometries carry any point to a fixed origin."""

import math
from abc import abstractmethod
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.numerics import safe_norm, safe_sqrt
from ..core.types import Key, Point, Scalar, Tangent
from .base import AbstractManifold


class AbstractSymmetricSpace(AbstractManifold):
    """A manifold whose isometries carry any source x0 to a fixed origin.

    Its heat kernel is then a function of t and of a few coordinates y of the pair (x, x0), with
    |y| = dist(x, x0): the distance on spheres and hyperbolic spaces, the logarithms of relative
    eigenvalues on SPD(n), the difference of the points in flat space.
    """

    @abstractmethod
    def kernel_coordinates(self, x: Point, x0: Point) -> Float[Array, " k"]:
        """The coordinates y of x as seen from x0."""

    @abstractmethod
    def lifted_coordinates(
        self, x: Point, x0: Point
    ) -> tuple[Float[Array, " k"], Callable[[Float[Array, " k"]], Tangent]]:
        """The coordinates y, and the lift of df/dy to the gradient in x of f(y(x))."""

    @abstractmethod
    def log_distortion(self, y: Float[Array, " k"]) -> Scalar:
        """log D: how the exponential map at x0 distorts volume at y, zero at y = 0."""

    def has_distortion(self) -> bool:
        """In kernel coordinates."""
        return True

    def log_and_distortion(self, x: Point, y: Point) -> tuple[Tangent, Scalar]:
        """`log_at`, and `log_distortion` at the kernel coordinates."""
        return self.log_at(x, y), self.log_distortion(self.kernel_coordinates(y, x))

    @abstractmethod
    def first_order(self, y: Float[Array, " k"]) -> Scalar:
        r"""The first order in time of the heat kernel, u_1 / u_0.

        It is the mean of D^{1/2} Delta D^{-1/2} along the geodesic from x0, so that
        log p = log G - (1/2) log D + t first_order(y) + O(t^2) with G the Gaussian of |y|.
        """

    @abstractmethod
    def scalar_curvature(self) -> float:
        """The scalar curvature, a constant: six times `first_order` at y = 0."""

    def noise_growth(self) -> float:
        """-(2/3) R / dim with R the scalar curvature, from the Laplacian of squared distances."""
        return -2 / 3 * self.scalar_curvature() / self.dim

    def curved_from(self) -> float:
        """The time from which noise feels negative curvature most of all.

        1.5 dim / |R| if the scalar curvature R is negative, else infinity.
        """
        curvature = self.scalar_curvature()
        return 1.5 * self.dim / -curvature if curvature < 0 else math.inf

    # What a solver of the heat equation and a sampler need beyond that.

    @abstractmethod
    def log_area(self, y: Float[Array, " k"]) -> Scalar:
        """log J: the volume of the points with coordinates near y is J(y) dy, up to a constant.

        In these coordinates Delta f = sum_a d^2 f / dy_a^2 + <grad log J, grad f>.
        """

    @abstractmethod
    def invariants(self, y: Float[Array, " k"]) -> Float[Array, "m f"]:
        """Smooth functions of y, f of them for each of m unordered items.

        The heat kernel is a smooth function of them, unchanged when items are permuted within the
        symmetry of `grouping`; they stay of order one.
        """

    @abstractmethod
    def grouping(self) -> np.ndarray:
        """Which items belong to which unordered group: a matrix of zeros and ones, (g, m)."""

    @abstractmethod
    def origin(self) -> Point:
        """A point to measure from."""

    def coordinate_count(self) -> int:
        """The number k of kernel coordinates."""
        origin = jax.eval_shape(self.origin)
        return jax.eval_shape(lambda x: self.kernel_coordinates(x, x), origin).size

    def has_unordered_coordinates(self) -> bool:
        """If each of them has a group of items to itself."""
        return len(self.grouping()) > 1

    def sources(self, count: int, key: Key) -> Float[Array, "n ..."]:
        """The origin: the space looks the same from everywhere."""
        origin = self.origin()
        return jnp.broadcast_to(origin, (count, *origin.shape))

    @abstractmethod
    def injectivity_radius(self) -> float:
        """Within this distance geodesics from a point are shortest; infinite: everywhere."""

    # What some need beyond that: draws of solved kernels, and the paper's recipe.

    def tangent_coordinates(
        self, v: Tangent
    ) -> tuple[Float[Array, " k"], Callable[[Float[Array, " k"]], Tangent]]:
        """The coordinates of exp(v), for v at the origin, and the lift of df/dy to df/dv."""
        raise self._lacks("tangent_coordinates", "draws of a solved kernel")

    def point_at(self, y: Float[Array, " k"], x0: Point, key: Key) -> Point:
        """A random point whose coordinates relative to x0 are y, uniform among those."""
        raise self._lacks("point_at", "draws of a solved kernel")

    def relative(self, x: Point, x0: Point) -> Float[Array, " d"]:
        """x as seen from x0: its place in a flat space after an isometry took x0 to the origin."""
        raise self._lacks("relative", "the paper's recipe")

    def _lacks(self, name: str, who: str) -> ValueError:
        return ValueError(f"{self} has no method {name}, which {who} would need.")


class AbstractSpaceForm(AbstractSymmetricSpace):
    """A sphere x.x = 1 of R^(n+1), or of R^(1, n): constant curvature, and all directions alike."""

    @abstractmethod
    def constant_curvature(self) -> int:
        """The sectional curvature, 1 or -1."""

    def scalar_curvature(self) -> float:
        """n(n - 1) times the sectional curvature."""
        return float(self.constant_curvature() * self.dim * (self.dim - 1))

    def origin(self) -> Point:
        """The first coordinate vector."""
        return jnp.zeros(self.shape).at[0].set(1.0)

    def coordinate_laplacian(self, x: Point) -> Tangent:
        """-n x times the curvature: coordinates are eigenfunctions of the Laplacian."""
        return -self.constant_curvature() * self.dim * x

    def kernel_coordinates(self, x: Point, x0: Point) -> Float[Array, " k"]:
        """The distance."""
        return self.dist_at(x, x0)[None]

    def grouping(self) -> np.ndarray:
        """One item."""
        return np.ones((1, 1))

    def tangent_coordinates(
        self, v: Tangent
    ) -> tuple[Float[Array, " k"], Callable[[Float[Array, " k"]], Tangent]]:
        """The length of v, which at the origin is the Euclidean one."""
        length = safe_norm(v)
        return length[None], lambda slope: v * (slope[0] / jnp.maximum(length, 1e-12))

    def point_at(self, y: Float[Array, " k"], x0: Point, key: Key) -> Point:
        """Go the distance y in a random direction."""
        v = self.draw_tangent(key, x0)
        return self.exp_at(x0, v * (y[0] / safe_sqrt(self.inner_at(x0, v, v))))
