"""Positive numbers with the metric sum dx_i^2 / x_i^2: a symmetric space outside the package.

Multiplication by positive numbers is an isometry, and log takes it to flat space.  It says what
`calor.solve` needs, and has no exact kernel.
"""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import calor
from calor.manifolds import AbstractSymmetricSpace


@calor.kind("ratios", "dim")
class Ratios(AbstractSymmetricSpace):
    """Vectors of n positive numbers, as seen by their ratios."""

    dim: int = eqx.field(static=True, default=1)

    @property
    def shape(self):
        return (self.dim,)

    def exp_at(self, x, v):
        return x * jnp.exp(v / x)

    def log_at(self, x, y):
        return x * jnp.log(y / x)

    def dist_at(self, x, y):
        return calor.numerics.safe_norm(jnp.log(y / x))

    def inner_at(self, x, u, v):
        return jnp.sum(u * v / x**2)

    def project_at(self, x):
        return jnp.maximum(x, jnp.finfo(x.dtype).tiny)

    def tangent_at(self, x, v):
        return v

    def offset_at(self, x):
        return jnp.max(jnp.maximum(-x, 0.0))

    def draw_point(self, key):
        return jnp.exp(jr.normal(key, self.shape))

    def draw_tangent(self, key, x):
        return x * jr.normal(key, self.shape, x.dtype)

    def frame(self, x):
        return jnp.diag(x)

    def coordinate_laplacian(self, x):
        return x

    def kernel_coordinates(self, x, x0):
        return jnp.log(x / x0)

    def lifted_coordinates(self, x, x0):
        return jnp.log(x / x0), lambda slope: x * slope

    def log_distortion(self, y):
        return jnp.zeros((), y.dtype)

    def first_order(self, y):
        return jnp.zeros((), y.dtype)

    def log_area(self, y):
        return jnp.zeros((), y.dtype)

    def scalar_curvature(self):
        return 0.0

    def invariants(self, y):
        return jnp.tanh(y)[None]

    def grouping(self):
        return np.ones((1, 1))

    def origin(self):
        return jnp.ones(self.shape)

    def injectivity_radius(self):
        return math.inf

    def tangent_coordinates(self, v):
        return v, lambda slope: slope

    def point_at(self, y, x0, key):
        return x0 * jnp.exp(y)

    def __str__(self) -> str:
        return f"Ratios({self.dim})"
