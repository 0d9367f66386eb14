"""Flat space R^n."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..core.checks import positive_integer
from ..core.numerics import safe_norm
from .names import kind
from .symmetric import AbstractSymmetricSpace


@kind("euclidean", "dim")
class Euclidean(AbstractSymmetricSpace):
    """R^n with its flat metric."""

    dim: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, n: int):
        """The flat space of dimension `n`."""
        self.dim = positive_integer(n, "n", "Euclidean")
        self.shape = (self.dim,)

    def exp_at(self, x, v):
        return x + v

    def log_at(self, x, y):
        return y - x

    def dist_at(self, x, y):
        return safe_norm(x - y)

    def inner_at(self, x, u, v):
        return jnp.sum(u * v)

    def project_at(self, x):
        return x

    def tangent_at(self, x, v):
        return v

    def offset_at(self, x):
        return jnp.zeros((), x.dtype)

    def draw_point(self, key):
        return jr.normal(key, self.shape)

    def draw_tangent(self, key, x):
        return jr.normal(key, self.shape, x.dtype)

    def frame(self, x):
        """The standard basis."""
        return jnp.eye(self.dim, dtype=x.dtype)

    def coordinate_laplacian(self, x):
        """Zero: coordinates are harmonic."""
        return jnp.zeros_like(x)

    def kernel_coordinates(self, x, x0):
        """The difference of the points."""
        return x - x0

    def lifted_coordinates(self, x, x0):
        """The lift changes nothing."""
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

    def constant_curvature(self):
        """Zero."""
        return 0

    def log_area(self, y):
        """Zero."""
        return jnp.zeros((), y.dtype)

    def invariants(self, y):
        """The coordinates, kept of order one."""
        return jnp.tanh(y)[None]

    def grouping(self):
        """One item."""
        return np.ones((1, 1))

    def tangent_coordinates(self, v):
        """The vector itself."""
        return v, lambda slope: slope

    def point_at(self, y, x0, key):
        """The one point there is."""
        return self.exp_at(x0, y)

    def relative(self, x, x0):
        """The difference of the points."""
        return x - x0

    def origin(self):
        """Zero."""
        return jnp.zeros(self.shape)

    def injectivity_radius(self):
        """Infinite."""
        return math.inf

    def spectral_gap(self):
        """Zero: the spectrum is continuous."""
        return 0.0
