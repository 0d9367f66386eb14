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

from .._types import Point
from .base import AbstractManifold


class AbstractQuotient(AbstractManifold):
    """A manifold covered by another one, `cover`, with finite orbits."""

    cover: eqx.AbstractVar[AbstractManifold]
    """The manifold that is divided by the group."""

    @abstractmethod
    def orbit(self, x: Point) -> Float[Array, "g ..."]:
        """All images g x of a point, along the first axis."""

    def check_point(self, x: Point, name: str = "x") -> Point:
        """`x` as an array; an error says what is wrong if it is no point of the cover."""
        return self.cover.check_point(x, name)

    def embedding(self, x):
        """The one of the cover."""
        return self.cover.embedding(x)

    def lookalikes(self, x):
        """The orbit: the cover tells its points apart."""
        return self.orbit(x)

    def code_size(self):
        """The one of the cover."""
        return self.cover.code_size()

    def decode(self, code):
        """A point of the cover."""
        return self.cover.decode(code)

    def spectral_gap(self):
        """At least the one of the cover: functions on the quotient are functions on the cover."""
        return self.cover.spectral_gap()

    def nearest_image(self, x: Point, y: Point) -> Point:
        """The representative of y that is closest to x."""
        images = self.orbit(y)
        distances = jax.vmap(lambda image: self.cover._dist(x, image))(images)
        return images[jnp.argmin(jax.lax.stop_gradient(distances))]

    def log_volume(self):
        """The volume of the cover divided by the order of the group."""
        if not hasattr(self.cover, "log_volume"):
            raise ValueError(f"{self} is not compact: it has no volume.")
        order = jax.eval_shape(self.orbit, jax.ShapeDtypeStruct(self.shape, float)).shape[0]
        return self.cover.log_volume() - jnp.log(order)  # pyright: ignore

    def _exp(self, x, v):
        return self.cover._exp(x, v)

    def _log(self, x, y):
        return self.cover._log(x, self.nearest_image(x, y))

    def _dist(self, x, y):
        return self.cover._dist(x, self.nearest_image(x, y))

    def _inner(self, x, u, v):
        return self.cover._inner(x, u, v)

    def _project(self, x):
        return self.cover._project(x)

    def _tangent(self, x, v):
        return self.cover._tangent(x, v)

    def _offset(self, x):
        return self.cover._offset(x)

    def _random_point(self, key):
        return self.cover._random_point(key)

    def _random_tangent(self, key, x):
        return self.cover._random_tangent(key, x)

    def frame(self, x):
        """The frame of the cover."""
        return self.cover.frame(x)

    def basis(self, x):
        """The basis of the cover."""
        return self.cover.basis(x)

    def coordinate_laplacian(self, x):
        """The one of the cover: the projection is a local isometry."""
        return self.cover.coordinate_laplacian(x)


class Quotient(AbstractQuotient):
    """M/G for a finite group G of isometries of M.

    Example: the real projective plane is `Quotient(Sphere(2), [lambda x: x, lambda x: -x])`.
    """

    cover: AbstractManifold
    group: tuple[Callable[[Point], Point], ...]
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
            group = [jax.tree_util.Partial(jnp.matmul, jnp.asarray(g)) for g in matrices]
        self.cover = manifold
        self.group = tuple(group)
        self.dim = manifold.dim
        self.shape = manifold.shape
        _check_group(manifold, self.group)

    def orbit(self, x):
        """All images g x of a point."""
        return jnp.stack([jnp.asarray(g(x)) for g in self.group])

    def __str__(self) -> str:
        return f"Quotient({self.cover}, group of order {len(self.group)})"


def _check_group(manifold, group):
    """Raise unless the functions are isometries that form a group, as seen at two random points."""
    if not group or not all(callable(g) for g in group):
        raise ValueError("Quotient: group must be a non-empty sequence of functions of one point.")
    key_x, key_y = jr.split(jr.key(0))
    x, y = manifold.random_point(key_x), manifold.random_point(key_y)
    distance = manifold.dist(x, y)
    images = []
    for number, g in enumerate(group):
        gx, gy = jnp.asarray(g(x)), jnp.asarray(g(y))
        if gx.shape != manifold.shape or float(manifold.contains(gx)) > 1e-3:
            raise ValueError(
                f"Quotient: element {number} of the group does not map {manifold} to itself."
            )
        change = float(jnp.abs(manifold.dist(gx, gy) - distance))
        if change > 1e-3 * (1 + float(distance)):
            raise ValueError(
                f"Quotient: element {number} of the group is no isometry: it changed a distance "
                f"by {change:.3g}."
            )
        images.append(gx)

    images = jnp.stack(images)
    products = jnp.stack([jax.vmap(g)(images) for g in group]).reshape(-1, *manifold.shape)
    points = jnp.concatenate([x[None], images, products])
    distances = jax.vmap(jax.vmap(manifold._dist, (None, 0)), (0, None))(points, images)
    matches = np.sum(np.asarray(distances) < 1e-3, axis=1)
    order = len(group)
    if matches[0] == 0:
        raise ValueError("Quotient: the group must contain the identity; it was not found.")
    if np.any(matches[1 : order + 1] > 1):
        number = int(np.argmax(matches[1 : order + 1] > 1))
        raise ValueError(
            f"Quotient: element {number} of the group is listed twice (or the group does not act "
            "freely)."
        )
    if np.any(matches[order + 1 :] == 0):
        first, second = divmod(int(np.argmin(matches[order + 1 :])), order)
        raise ValueError(
            f"Quotient: the {order} elements are not closed under composition (element {first} "
            f"after element {second} is none of them); list the whole group."
        )
