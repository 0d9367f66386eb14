"""Flat space R^n."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.checks import positive_integer
from ..core.types import Key, Point, Scalar
from .flat import AbstractFlatSpace
from .names import kind


@kind("euclidean", "dim")
class Euclidean(AbstractFlatSpace):
    """R^n with its flat metric."""

    dim: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, n: int):
        """The flat space of dimension `n`."""
        self.dim = positive_integer(n, "n", "Euclidean")
        self.shape = (self.dim,)

    def project_at(self, x: Point) -> Point:
        return x

    def draw_point(self, key: Key) -> Point:
        return jr.normal(key, self.shape)

    def has_chart(self) -> bool:
        """The space itself."""
        return True

    def log_chart_volume(self, x: Point) -> Scalar:
        """Zero."""
        return jnp.zeros((), x.dtype)

    def invariants(self, y: Float[Array, " k"]) -> Float[Array, "m f"]:
        """The coordinates, kept of order one."""
        return jnp.tanh(y)[None]

    def grouping(self) -> np.ndarray:
        """One item."""
        return np.ones((1, 1))

    def relative(self, x: Point, x0: Point) -> Float[Array, " d"]:
        """The difference of the points."""
        return x - x0

    def injectivity_radius(self) -> float:
        """Infinite."""
        return math.inf
