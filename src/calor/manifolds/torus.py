"""The flat torus T^n = (R / 2 pi Z)^n, a point of it being n angles."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr

from .._checks import positive_integer
from .._numerics import safe_norm, wrap_angle
from .base import AbstractCompactManifold, AbstractSymmetricSpace


class Torus(AbstractCompactManifold, AbstractSymmetricSpace):
    """A product of n circles of radius one; angles in radians.

    Any real numbers are accepted as angles; results lie in [-pi, pi).
    """

    dim: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, n: int):
        """The flat torus of dimension `n`."""
        self.dim = positive_integer(n, "n", "Torus")
        self.shape = (self.dim,)

    def _exp(self, x, v):
        return wrap_angle(x + v)

    def _log(self, x, y):
        return wrap_angle(y - x)

    def _dist(self, x, y):
        return safe_norm(wrap_angle(y - x))

    def _inner(self, x, u, v):
        return jnp.sum(u * v)

    def _project(self, x):
        return wrap_angle(x)

    def _tangent(self, x, v):
        return v

    def _offset(self, x):
        return jnp.zeros((), x.dtype)

    def _random_point(self, key):
        return jr.uniform(key, self.shape, minval=-jnp.pi, maxval=jnp.pi)

    def _random_tangent(self, key, x):
        return jr.normal(key, self.shape, x.dtype)

    def frame(self, x):
        """The coordinate directions."""
        return jnp.eye(self.dim, dtype=x.dtype)

    def coordinate_laplacian(self, x):
        """Zero: angles are harmonic where they are defined."""
        return jnp.zeros_like(x)

    def log_volume(self):
        """n log(2 pi)."""
        return self.dim * jnp.log(2 * jnp.pi)

    def kernel_coordinates(self, x, x0):
        """The difference of the angles."""
        return wrap_angle(x - x0), lambda slope: slope

    def log_distortion(self, y):
        """Zero."""
        return jnp.zeros((), y.dtype)

    def first_order(self, y):
        """Zero."""
        return jnp.zeros((), y.dtype)

    def scalar_curvature(self):
        """Zero."""
        return 0.0
