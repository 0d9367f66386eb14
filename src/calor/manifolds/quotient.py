"""Quotients of a manifold by a finite group of isometries.

A point of M/G is any representative in M; its orbit {g x} is the same point.  Distances are minima
over the orbit, tangent vectors are tangent vectors of M.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.types import Key, Point, Scalar, Tangent
from .base import TOLERANCE, AbstractManifold

# Images of one point that are closer than this are the same: far above rounding, and far below the
# distance between different images of a random point.
_SAME = 1e-3


class AbstractQuotient(AbstractManifold):
    """A manifold covered by another one, `cover`, with finite orbits."""

    cover: eqx.AbstractVar[AbstractManifold]
    """The manifold that is divided by the group."""

    @abstractmethod
    def orbit(self, x: Point) -> Float[Array, "g ..."]:
        """All images g x of a point, along the first axis."""

    # Points are points of the cover, and the projection is a local isometry.

    def check_point(self, x: Point, name: str = "x") -> Point:
        return self.cover.check_point(x, name)

    def exp_at(self, x: Point, v: Tangent) -> Point:
        return self.cover.exp_at(x, v)

    def inner_at(self, x: Point, u: Tangent, v: Tangent) -> Scalar:
        return self.cover.inner_at(x, u, v)

    def project_at(self, x: Point) -> Point:
        return self.cover.project_at(x)

    def tangent_at(self, x: Point, v: Tangent) -> Tangent:
        return self.cover.tangent_at(x, v)

    def offset_at(self, x: Point) -> Scalar:
        return self.cover.offset_at(x)

    def draw_point(self, key: Key) -> Point:
        return self.cover.draw_point(key)

    def draw_tangent(self, key: Key, x: Point) -> Tangent:
        return self.cover.draw_tangent(key, x)

    def frame(self, x: Point) -> Float[Array, "m ..."]:
        return self.cover.frame(x)

    def basis(self, x: Point) -> Float[Array, "m ..."]:
        return self.cover.basis(x)

    def coordinate_laplacian(self, x: Point) -> Tangent:
        return self.cover.coordinate_laplacian(x)

    def embedding(self, x: Point) -> Float[Array, " d"]:
        return self.cover.embedding(x)

    def code_size(self) -> int:
        return self.cover.code_size()

    def decode(self, code: Float[Array, " c"]) -> Point:
        return self.cover.decode(code)

    def walk(self, t: Scalar, x0: Point, key: Key, steps: int = 24) -> Point:
        return self.cover.walk(t, x0, key, steps)

    def sources(self, count: int, key: Key) -> Float[Array, "n ..."]:
        return self.cover.sources(count, key)

    def noise_reuse(self) -> int:
        return self.cover.noise_reuse()

    def is_compact(self) -> bool:
        return self.cover.is_compact()

    def spectral_gap(self) -> float:
        # At least this: functions on the quotient are functions on the cover.
        return self.cover.spectral_gap()

    def log_at(self, x: Point, y: Point) -> Tangent:
        return self.cover.log_at(x, self.nearest_image(x, y))

    def dist_at(self, x: Point, y: Point) -> Scalar:
        return self.cover.dist_at(x, self.nearest_image(x, y))

    def nearest_image(self, x: Point, y: Point) -> Point:
        """The representative of y that is closest to x."""
        images = self.orbit(y)
        distances = jax.vmap(lambda image: self.cover.dist_at(x, image))(images)
        return images[jnp.argmin(jax.lax.stop_gradient(distances))]

    def lookalikes(self, x: Point) -> Float[Array, "g ..."]:
        """Those of the cover for every point of the orbit."""
        images = jax.vmap(self.cover.lookalikes)(self.orbit(x))
        return images.reshape(-1, *self.shape)

    def covering(self) -> AbstractManifold:
        """The cover."""
        return self.cover

    def log_volume(self) -> Scalar:
        """The volume of the cover divided by the order of the group."""
        if not self.is_compact():
            raise ValueError(f"{self} is not compact: it has no volume.")
        order = jax.eval_shape(self.orbit, jax.ShapeDtypeStruct(self.shape, float)).shape[0]
        return self.cover.log_volume() - jnp.log(order)


class Quotient(AbstractQuotient):
    """M/G for a finite group G of isometries of M, which may be a quotient or a product itself.

    Example: the real projective plane is `Quotient(Sphere(2), [lambda x: x, lambda x: -x])`.
    """

    cover: AbstractManifold
    group: tuple[Callable[[Point], Point], ...] | Float[Array, "g n n"]
    dim: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        manifold: AbstractManifold,
        group: Sequence[Callable[[Point], Point]] | Float[Array, "g n n"],
    ):
        """Divide `manifold` by `group`.

        Args:
            manifold: the manifold M to divide.
            group: all elements of G, the identity among them: functions of one point, or an array
                of matrices (g, n, n) that act on points of shape (n,).
        """
        if not isinstance(manifold, AbstractManifold):
            raise TypeError(f"Quotient: manifold must be a manifold, got {manifold!r:.80}.")
        if callable(group) or not isinstance(group, Sequence | np.ndarray | jax.Array):
            raise TypeError(
                f"Quotient: group must be all its elements, as functions or matrices, got "
                f"{group!r:.80}."
            )
        if len(group) and not any(callable(g) for g in group):
            matrices = np.stack([np.asarray(g) for g in group])
            size = manifold.shape[0] if len(manifold.shape) == 1 else 0
            if matrices.shape[1:] != (size, size):
                raise ValueError(
                    f"Quotient: a group given as matrices acts on points of shape (n,) and must "
                    f"have shape (g, n, n), got {matrices.shape} for points of {manifold.shape}; "
                    "give functions of one point instead."
                )
            self.group = jnp.asarray(matrices, jnp.result_type(float))
        else:
            self.group = tuple(group)
        self.cover = manifold
        self.dim = manifold.dim
        self.shape = manifold.shape
        _check_group(self)

    def orbit(self, x: Point) -> Float[Array, "g ..."]:
        """All images g x of a point."""
        if isinstance(self.group, tuple):
            return jnp.stack([jnp.asarray(g(x)) for g in self.group])
        # Not a matrix product, whose precision some accelerators lower.
        return jnp.sum(self.group.astype(x.dtype) * x, axis=-1)

    def __str__(self) -> str:
        return f"Quotient({self.cover}, group of order {len(self.group)})"


def _check_group(quotient):
    """Raise unless the elements are isometries that form a group, as seen at two random points."""
    manifold, group = quotient.cover, quotient.group
    order = len(group)
    if not order or (isinstance(group, tuple) and not all(callable(g) for g in group)):
        raise ValueError("Quotient: group must be a non-empty sequence of functions of one point.")
    key_x, key_y = jr.split(jr.key(0))
    x, y = manifold.random_point(key_x), manifold.random_point(key_y)
    for number, g in enumerate(group if isinstance(group, tuple) else ()):
        shape = getattr(jax.eval_shape(g, x), "shape", None)
        if shape != manifold.shape:
            raise ValueError(
                f"Quotient: element {number} of the group does not map {manifold} to itself: it "
                f"took a point of shape {manifold.shape} to an array of shape {shape}."
            )
    distance, offsets, changes, to_x, to_images, to_products = (
        np.asarray(measured) for measured in _measure(quotient, x, y)
    )
    for number in range(order):
        if not offsets[number] <= TOLERANCE:  # NaN is refused as well
            raise ValueError(
                f"Quotient: element {number} of the group does not map {manifold} to itself: it "
                f"took a point to {offsets[number]:.3g} away from it (tolerance {TOLERANCE:g})."
            )
        if not changes[number] <= _SAME * (1 + distance):
            raise ValueError(
                f"Quotient: element {number} of the group is no isometry: it changed a distance "
                f"of {distance:.3g} by {changes[number]:.3g}."
            )
    if not np.any(to_x < _SAME):
        raise ValueError(
            f"Quotient: the group must contain the identity; it is none of the {order} elements."
        )
    twins = np.argwhere(np.triu(to_images < _SAME, 1))
    if len(twins):
        first, second = twins[0]
        raise ValueError(
            f"Quotient: elements {first} and {second} of the group are the same map of {manifold}; "
            "list every element once."
        )
    missing = np.argwhere(~np.any(to_products < _SAME, axis=2))
    if len(missing):
        second, first = missing[0]
        raise ValueError(
            f"Quotient: the {order} elements are not closed under composition (element {first} "
            f"after element {second} is none of them); list the whole group."
        )


@eqx.filter_jit
def _measure(quotient, x, y):
    """What tells a group of isometries from another set of maps, seen at the points x and y.

    Their distance, how far their images are from the manifold and how much farther from each
    other, and the distances of all images of x to x, to each other, and to the images [b, a] by a
    after b.
    """
    manifold = quotient.cover
    images, others = quotient.orbit(x), quotient.orbit(y)
    offset, dist = jax.vmap(manifold.offset_at), jax.vmap(manifold.dist_at, (None, 0))
    distance = manifold.dist_at(x, y)
    return (
        distance,
        jnp.maximum(offset(images), offset(others)),
        jnp.abs(jax.vmap(manifold.dist_at)(images, others) - distance),
        dist(x, images),
        jax.vmap(dist, (0, None))(images, images),
        jax.vmap(jax.vmap(dist, (0, None)), (0, None))(jax.vmap(quotient.orbit)(images), images),
    )
