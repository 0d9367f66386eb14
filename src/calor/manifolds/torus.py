"""The flat torus T^n = (R / 2 pi Z)^n, a point of it being n angles."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..core.checks import positive_integer
from ..core.numerics import safe_norm, wrap_angle
from .base import AbstractCompactManifold
from .names import kind
from .symmetric import AbstractSymmetricSpace


@kind("torus", "dim")
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

    def exp_at(self, x, v):
        return wrap_angle(x + v)

    def log_at(self, x, y):
        return wrap_angle(y - x)

    def dist_at(self, x, y):
        return safe_norm(wrap_angle(y - x))

    def inner_at(self, x, u, v):
        return jnp.sum(u * v)

    def project_at(self, x):
        return wrap_angle(x)

    def tangent_at(self, x, v):
        return v

    def offset_at(self, x):
        return jnp.zeros((), x.dtype)

    def draw_point(self, key):
        return jr.uniform(key, self.shape, minval=-jnp.pi, maxval=jnp.pi)

    def draw_tangent(self, key, x):
        return jr.normal(key, self.shape, x.dtype)

    def frame(self, x):
        """The coordinate directions."""
        return jnp.eye(self.dim, dtype=x.dtype)

    def coordinate_laplacian(self, x):
        """Zero: angles are harmonic where they are defined."""
        return jnp.zeros_like(x)

    def embedding(self, x):
        """Cosines and sines."""
        return jnp.concatenate([jnp.cos(x), jnp.sin(x)])

    def code_size(self):
        """A point of the plane for each angle."""
        return 2 * self.dim

    def decode(self, code):
        """The directions of points of the plane."""
        return jnp.arctan2(code[self.dim :], code[: self.dim])

    def log_volume(self):
        """n log(2 pi)."""
        return self.dim * jnp.log(2 * jnp.pi)

    def kernel_coordinates(self, x, x0):
        """The difference of the angles."""
        return wrap_angle(x - x0)

    def lifted_coordinates(self, x, x0):
        """The lift changes nothing."""
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

    def constant_curvature(self):
        """Zero."""
        return 0

    def log_area(self, y):
        """Zero."""
        return jnp.zeros((), y.dtype)

    def invariants(self, y):
        """The cosine of each angle: reflections and swaps of the angles are isometries."""
        return jnp.cos(y)[:, None]

    def grouping(self):
        """All angles together."""
        return np.ones((1, self.dim))

    def tangent_coordinates(self, v):
        """The vector itself."""
        return v, lambda slope: slope

    def point_at(self, y, x0, key):
        """The one point there is."""
        return self.exp_at(x0, y)

    def relative(self, x, x0):
        """Cosines and sines of the differences: the flat torus in R^(2n)."""
        return jnp.concatenate([jnp.cos(x - x0), jnp.sin(x - x0)])

    def origin(self):
        """Zero."""
        return jnp.zeros(self.shape)

    def injectivity_radius(self):
        """Half the length of a circle."""
        return math.pi

    def spectral_gap(self):
        """1, of the cosine of an angle."""
        return 1.0
