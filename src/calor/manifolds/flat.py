"""What flat space and the flat torus share: points are added like vectors, then brought home."""

from collections.abc import Callable

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ..core.numerics import safe_norm
from ..core.types import Key, Point, Scalar, Tangent
from .symmetric import AbstractSymmetricSpace


class AbstractFlatSpace(AbstractSymmetricSpace):
    """R^n or a quotient of it by translations; `project_at` takes R^n to its representatives."""

    def exp_at(self, x: Point, v: Tangent) -> Point:
        return self.project_at(x + v)

    def log_at(self, x: Point, y: Point) -> Tangent:
        return self.project_at(y - x)

    def dist_at(self, x: Point, y: Point) -> Scalar:
        return safe_norm(self.log_at(x, y))

    def inner_at(self, x: Point, u: Tangent, v: Tangent) -> Scalar:
        return jnp.sum(u * v)

    def tangent_at(self, x: Point, v: Tangent) -> Tangent:
        return v

    def offset_at(self, x: Point) -> Scalar:
        return jnp.zeros((), x.dtype)

    def draw_tangent(self, key: Key, x: Point) -> Tangent:
        return jr.normal(key, self.shape, x.dtype)

    def frame(self, x: Point) -> Float[Array, "m ..."]:
        """The coordinate directions."""
        return jnp.eye(self.dim, dtype=x.dtype)

    def coordinate_laplacian(self, x: Point) -> Tangent:
        """Zero: coordinates are harmonic where they are defined."""
        return jnp.zeros_like(x)

    def kernel_coordinates(self, x: Point, x0: Point) -> Float[Array, " k"]:
        """The difference of the points."""
        return self.log_at(x0, x)

    def lifted_coordinates(
        self, x: Point, x0: Point
    ) -> tuple[Float[Array, " k"], Callable[[Float[Array, " k"]], Tangent]]:
        """The lift changes nothing."""
        return self.log_at(x0, x), lambda slope: slope

    def log_distortion(self, y: Float[Array, " k"]) -> Scalar:
        """Zero."""
        return jnp.zeros((), y.dtype)

    def first_order(self, y: Float[Array, " k"]) -> Scalar:
        """Zero."""
        return jnp.zeros((), y.dtype)

    def scalar_curvature(self) -> float:
        """Zero."""
        return 0.0

    def constant_curvature(self) -> int | None:
        """Zero."""
        return 0

    def log_area(self, y: Float[Array, " k"]) -> Scalar:
        """Zero."""
        return jnp.zeros((), y.dtype)

    def tangent_coordinates(
        self, v: Tangent
    ) -> tuple[Float[Array, " k"], Callable[[Float[Array, " k"]], Tangent]]:
        """The vector itself."""
        return v, lambda slope: slope

    def point_at(self, y: Float[Array, " k"], x0: Point, key: Key) -> Point:
        """The one point there is."""
        return self.exp_at(x0, y)

    def origin(self) -> Point:
        """Zero."""
        return jnp.zeros(self.shape)
