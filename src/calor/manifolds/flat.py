"""What flat space and the flat torus share: points are added like vectors, then brought home."""

import jax.numpy as jnp
import jax.random as jr

from ..core.numerics import safe_norm
from .symmetric import AbstractSymmetricSpace


class AbstractFlatSpace(AbstractSymmetricSpace):
    """R^n or a quotient of it by translations; `project_at` takes R^n to its representatives."""

    def exp_at(self, x, v):
        return self.project_at(x + v)

    def log_at(self, x, y):
        return self.project_at(y - x)

    def dist_at(self, x, y):
        return safe_norm(self.log_at(x, y))

    def inner_at(self, x, u, v):
        return jnp.sum(u * v)

    def tangent_at(self, x, v):
        return v

    def offset_at(self, x):
        return jnp.zeros((), x.dtype)

    def draw_tangent(self, key, x):
        return jr.normal(key, self.shape, x.dtype)

    def frame(self, x):
        """The coordinate directions."""
        return jnp.eye(self.dim, dtype=x.dtype)

    def coordinate_laplacian(self, x):
        """Zero: coordinates are harmonic where they are defined."""
        return jnp.zeros_like(x)

    def kernel_coordinates(self, x, x0):
        """The difference of the points."""
        return self.log_at(x0, x)

    def lifted_coordinates(self, x, x0):
        """The lift changes nothing."""
        return self.log_at(x0, x), lambda slope: slope

    def log_distortion(self, y):
        """Zero."""
        return jnp.zeros((), y.dtype)

    def first_order(self, y):
        """Zero."""
        return jnp.zeros((), y.dtype)

    def scalar_curvature(self):
        """Zero."""
        return 0.0

    def constant_curvature(self):
        """Zero."""
        return 0

    def log_area(self, y):
        """Zero."""
        return jnp.zeros((), y.dtype)

    def tangent_coordinates(self, v):
        """The vector itself."""
        return v, lambda slope: slope

    def point_at(self, y, x0, key):
        """The one point there is."""
        return self.exp_at(x0, y)

    def origin(self):
        """Zero."""
        return jnp.zeros(self.shape)
