"""The flat torus T^n = (R / 2 pi Z)^n, a point of it being n angles."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.checks import positive_integer
from ..core.numerics import wrap_angle
from ..core.types import Key, Point, Scalar
from .base import AbstractCompactManifold
from .flat import AbstractFlatSpace
from .names import kind


@kind("torus", "dim")
class Torus(AbstractCompactManifold, AbstractFlatSpace):
    """A product of n circles of radius one; angles in radians.

    Any real numbers are accepted as angles; results lie in [-pi, pi).
    """

    dim: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, n: int):
        """The flat torus of dimension `n`."""
        self.dim = positive_integer(n, "n", "Torus")
        self.shape = (self.dim,)

    def project_at(self, x: Point) -> Point:
        return wrap_angle(x)

    def draw_point(self, key: Key) -> Point:
        return jr.uniform(key, self.shape, minval=-jnp.pi, maxval=jnp.pi)

    def embedding(self, x: Point) -> Float[Array, " d"]:
        """Cosines and sines."""
        return jnp.concatenate([jnp.cos(x), jnp.sin(x)])

    def code_size(self) -> int:
        """A point of the plane for each angle."""
        return 2 * self.dim

    def decode(self, code: Float[Array, " c"]) -> Point:
        """The directions of points of the plane."""
        return jnp.arctan2(code[self.dim :], code[: self.dim])

    def log_volume(self) -> Scalar:
        """n log(2 pi)."""
        return self.dim * jnp.log(2 * jnp.pi)

    def invariants(self, y: Float[Array, " k"]) -> Float[Array, "m f"]:
        """The cosine of each angle: reflections and swaps of the angles are isometries."""
        return jnp.cos(y)[:, None]

    def grouping(self) -> np.ndarray:
        """All angles together."""
        return np.ones((1, self.dim))

    def relative(self, x: Point, x0: Point) -> Float[Array, " d"]:
        """Cosines and sines of the differences: the flat torus in R^(2n)."""
        return jnp.concatenate([jnp.cos(x - x0), jnp.sin(x - x0)])

    def injectivity_radius(self) -> float:
        """Half the length of a circle."""
        return math.pi

    def spectral_gap(self) -> float:
        """1, of the cosine of an angle."""
        return 1.0
