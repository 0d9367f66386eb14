"""Flat space R^n."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr

from .._checks import positive_integer
from .._numerics import safe_norm
from .base import AbstractSymmetricSpace


class Euclidean(AbstractSymmetricSpace):
    """R^n with its flat metric."""

    dim: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, n: int):
        """The flat space of dimension `n`."""
        self.dim = positive_integer(n, "n", "Euclidean")
        self.shape = (self.dim,)

    def _exp(self, x, v):
        return x + v

    def _log(self, x, y):
        return y - x

    def _dist(self, x, y):
        return safe_norm(x - y)

    def _inner(self, x, u, v):
        return jnp.sum(u * v)

    def _project(self, x):
        return x

    def _tangent(self, x, v):
        return v

    def _offset(self, x):
        return jnp.zeros((), x.dtype)

    def _random_point(self, key):
        return jr.normal(key, self.shape)

    def _random_tangent(self, key, x):
        return jr.normal(key, self.shape, x.dtype)

    def frame(self, x):
        """The standard basis."""
        return jnp.eye(self.dim, dtype=x.dtype)

    def coordinate_laplacian(self, x):
        """Zero: coordinates are harmonic."""
        return jnp.zeros_like(x)

    def kernel_coordinates(self, x, x0):
        """The difference of the points."""
        return x - x0, lambda slope: slope

    def log_distortion(self, y):
        """Zero."""
        return jnp.zeros((), y.dtype)

    def first_order(self, y):
        """Zero."""
        return jnp.zeros((), y.dtype)

    def scalar_curvature(self):
        """Zero."""
        return 0.0
