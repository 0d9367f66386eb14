"""Products of manifolds: a point is the concatenation of the flattened points of the factors."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Float

from ..core.numerics import safe_sqrt
from ..core.types import Key, Point, Scalar, Tangent
from .base import AbstractManifold
from .names import kind, manifold_named, name_of


def _parse(name: str) -> AbstractManifold:
    return Product(*(manifold_named(part) for part in name.split("*")))


def _spell(product: "Product") -> str:
    return "*".join(name_of(factor) for factor in product.manifolds)


@kind("*", form="", parse=_parse, spell=_spell)
class Product(AbstractManifold):
    """M_1 x ... x M_k with the sum of the metrics.

    A point is one flat array; `split` and `join` go between it and the points of the factors.
    """

    manifolds: tuple[AbstractManifold, ...]
    dim: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, *manifolds: AbstractManifold):
        """The product of the given manifolds."""
        if not manifolds:
            raise ValueError("Product: at least one manifold is needed, got none.")
        for manifold in manifolds:
            if not isinstance(manifold, AbstractManifold):
                raise TypeError(f"Product: every factor must be a manifold, got {manifold!r:.80}.")
        self.manifolds = manifolds
        self.dim = sum(manifold.dim for manifold in manifolds)
        self.shape = (sum(math.prod(manifold.shape) for manifold in manifolds),)

    def split(self, x: Point) -> tuple[Point, ...]:
        """The points of the factors that make up x."""
        return self._split(self.check_shape(x, "x"))

    def _split(self, x):
        parts, start = [], 0
        for manifold in self.manifolds:
            stop = start + math.prod(manifold.shape)
            parts.append(x[start:stop].reshape(manifold.shape))
            start = stop
        return tuple(parts)

    def join(self, *parts: Point) -> Point:
        """One point of the product from one of each factor."""
        if len(parts) != len(self.manifolds):
            raise ValueError(f"{self}: join takes {len(self.manifolds)} points, got {len(parts)}.")
        factors = enumerate(zip(self.manifolds, parts, strict=True))
        checked = [m.check_shape(part, f"factor {number}") for number, (m, part) in factors]
        return jnp.concatenate([jnp.ravel(part) for part in checked])

    def check_point(self, x: Point, name: str = "x") -> Point:
        """`x` as an array; an error says which factor it is no point of."""
        x = self.check_shape(x, name)
        for number, (manifold, part) in enumerate(zip(self.manifolds, self._split(x), strict=True)):
            manifold.check_point(part, f"{name} (factor {number})")
        return x

    def _each(self, method: str, *arrays: Point) -> list[Any]:
        factors = zip(*(self._split(array) for array in arrays), strict=True)
        return [
            getattr(manifold, method)(*parts)
            for manifold, parts in zip(self.manifolds, factors, strict=True)
        ]

    def exp_at(self, x: Point, v: Tangent) -> Point:
        return self.join(*self._each("exp_at", x, v))

    def log_at(self, x: Point, y: Point) -> Tangent:
        return self.join(*self._each("log_at", x, y))

    def dist_at(self, x: Point, y: Point) -> Scalar:
        return safe_sqrt(jnp.sum(jnp.stack(self._each("dist_at", x, y)) ** 2))

    def inner_at(self, x: Point, u: Tangent, v: Tangent) -> Scalar:
        return jnp.sum(jnp.stack(self._each("inner_at", x, u, v)))

    def project_at(self, x: Point) -> Point:
        return self.join(*self._each("project_at", x))

    def tangent_at(self, x: Point, v: Tangent) -> Tangent:
        return self.join(*self._each("tangent_at", x, v))

    def offset_at(self, x: Point) -> Scalar:
        return jnp.max(jnp.stack(self._each("offset_at", x)))

    def draw_point(self, key: Key) -> Point:
        keys = jr.split(key, len(self.manifolds))
        parts = [m.draw_point(k) for m, k in zip(self.manifolds, keys, strict=True)]
        return self.join(*parts)

    def draw_tangent(self, key: Key, x: Point) -> Tangent:
        keys = jr.split(key, len(self.manifolds))
        factors = zip(self.manifolds, keys, self._split(x), strict=True)
        return self.join(*(m.draw_tangent(k, part) for m, k, part in factors))

    def frame(self, x: Point) -> Float[Array, "m ..."]:
        """The frames of the factors, side by side."""
        return block_diag(*(frame.reshape(len(frame), -1) for frame in self._each("frame", x)))

    def basis(self, x: Point) -> Float[Array, "m ..."]:
        """The bases of the factors, side by side."""
        return block_diag(*(basis.reshape(len(basis), -1) for basis in self._each("basis", x)))

    def coordinate_laplacian(self, x: Point) -> Tangent:
        """The ones of the factors."""
        return self.join(*self._each("coordinate_laplacian", x))

    def embedding(self, x: Point) -> Float[Array, " d"]:
        """The ones of the factors, side by side."""
        return jnp.concatenate(self._each("embedding", x))

    def lookalikes(self, x: Point) -> Float[Array, "g ..."]:
        """All combinations of those of the factors."""
        images = self._each("lookalikes", x)
        flat = [image.reshape(len(image), -1) for image in images]
        numbers = np.indices([len(image) for image in flat]).reshape(len(flat), -1)
        chosen = [image[number] for image, number in zip(flat, numbers, strict=True)]
        return jnp.concatenate(chosen, axis=1)

    def code_size(self) -> int:
        """The numbers of all factors."""
        return sum(manifold.code_size() for manifold in self.manifolds)

    def decode(self, code: Float[Array, " c"]) -> Point:
        """Each factor from its numbers."""
        ends = np.cumsum([manifold.code_size() for manifold in self.manifolds])
        codes = jnp.split(code, ends[:-1])
        return self.join(*(m.decode(c) for m, c in zip(self.manifolds, codes, strict=True)))

    def has_chart(self) -> bool:
        """If all factors do."""
        return all(manifold.has_chart() for manifold in self.manifolds)

    def log_chart_volume(self, x: Point) -> Scalar:
        """The sum of those of the factors."""
        return jnp.sum(jnp.stack(self._each("log_chart_volume", x)))

    def spectral_gap(self) -> float:
        """The smallest of the factors."""
        return min(manifold.spectral_gap() for manifold in self.manifolds)

    def injectivity_radius(self) -> float:
        """The smallest of the factors."""
        return min(manifold.injectivity_radius() for manifold in self.manifolds)

    def has_distortion(self) -> bool:
        """If all factors have."""
        return all(manifold.has_distortion() for manifold in self.manifolds)

    def log_and_distortion(self, x: Point, y: Point) -> tuple[Tangent, Scalar]:
        """The tangents side by side, and the sum of the logarithms."""
        tangents, logs = zip(*self._each("log_and_distortion", x, y), strict=True)
        return self.join(*tangents), jnp.sum(jnp.stack(logs))

    def noise_reuse(self) -> int:
        """As often as the factor whose geodesics cost most."""
        return max(manifold.noise_reuse() for manifold in self.manifolds)

    def is_compact(self) -> bool:
        """If all factors are."""
        return all(manifold.is_compact() for manifold in self.manifolds)

    def log_volume(self) -> Scalar:
        """Sum over the factors, if they are all compact."""
        for manifold in self.manifolds:
            if not manifold.is_compact():
                raise ValueError(f"{self} is not compact ({manifold} is not): it has no volume.")
        return jnp.sum(jnp.stack([manifold.log_volume() for manifold in self.manifolds]))

    def __str__(self) -> str:
        return f"Product({', '.join(str(manifold) for manifold in self.manifolds)})"
