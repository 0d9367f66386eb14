r"""Functions on curved elements at any points of the surface: which triangle, and where on it.

The triangles whose nodes are nearest are tried.  On one of them x = y(u) + s d(u) has a solution
with u inside, and s is the height of this very triangle there: another sheet of a thin body has
another height.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...core.numerics import solve_positive
from ...core.types import Point
from ...manifolds import Submanifold
from ...store.stored import stored
from . import reference
from .geometry import Corners, lift, locate
from .space import Space, lifted

# The order of the nodes by which triangles are found, and how many triangles are tried.
_MARKS, _TRIED = 3, 12
# The order of the nodes that are all over a triangle.
_FINE = 10
# How far u may miss, and by how much of the triangle's size heights may differ.
_MISSED, _SHEET = 1e-3, 0.05
# What a triangle that a point is not on is ranked down by.
_WRONG = 1e3


class Place(NamedTuple):
    """A point as the elements see it."""

    face: Int[Array, ""]
    u: Float[Array, " 2"]
    basis: Float[Array, " j"]
    """The values there of the functions of the nodes of the triangle."""


@stored("Elements", derived=("marks", "change", "fine"), build=lambda **parts: elements(**parts))
class Elements(eqx.Module):
    """A curved mesh with nodes of an order."""

    manifold: Submanifold
    order: int = eqx.field(static=True)
    points: Float[Array, "v N"]
    normals: Float[Array, "v k N"]
    faces: Int[Array, "m 3"]
    nodes: Int[Array, "m j"]
    heights: Float[Array, "m j k"]
    marks: Float[Array, "m i N"]
    """Some points of each triangle."""
    change: Float[Array, "j j"]
    """From Dubiner's basis to that of the nodes."""
    fine: Float[Array, "f j"]
    """The functions of the nodes at points all over a triangle."""

    def corners(self, face: Int[Array, ""]) -> Corners:
        """Of a triangle."""
        return Corners(self.points[self.faces[face]], self.normals[self.faces[face]])

    def basis(self, u: Float[Array, " 2"]) -> Float[Array, " j"]:
        """The functions of the nodes of a triangle."""
        return reference.dubiner(self.order, u) @ self.change

    def find(self, x: Point) -> Place:
        """The triangle of a point of the surface."""
        gaps = jnp.min(jnp.sum((self.marks - x) ** 2, axis=2), axis=1)
        near = jax.lax.top_k(-gaps, min(_TRIED, len(self.faces)))[1]

        def look(face):
            corners = self.corners(face)
            u, heights, missed = locate(corners, x)
            basis = self.basis(u)
            inside = jnp.minimum(jnp.min(u), 1 - jnp.sum(u))
            size = jnp.max(jnp.abs(corners.places[1:] - corners.places[0]))
            off = jnp.max(jnp.abs(heights - basis @ self.heights[face]))
            # Far outside polynomials say nothing of the height.
            right = (missed < _MISSED) & (off < _SHEET * size) & (inside > -0.2)
            least = jnp.where(jnp.isfinite(inside), jnp.clip(inside, -_WRONG, 0.0), -_WRONG)
            return jnp.where(right, inside, least - _WRONG), jnp.nan_to_num(u, nan=1 / 3)

        inside, u = jax.vmap(look)(near)
        best = jnp.argmax(inside)
        # Between two triangles rounding may put a point outside of both.
        u = jnp.maximum(u[best], 0.0)
        u = u / jnp.maximum(jnp.sum(u), 1.0)
        return Place(near[best], u, self.basis(u))

    def point(self, face: Int[Array, ""], u: Float[Array, " 2"]) -> Point:
        """The point of a triangle."""
        return lift(self.manifold.equations, self.corners(face), u).point

    def slopes(self, place: Place) -> Float[Array, "N j"]:
        """The gradients of the functions of the nodes of the triangle, in columns."""
        slopes = jax.jacfwd(self.basis)(place.u)
        spot = lift(self.manifold.equations, self.corners(place.face), place.u)
        metric = spot.tangents @ self.manifold.metric_at(spot.point) @ spot.tangents.T
        return spot.tangents.T @ solve_positive(metric, slopes.T)


def elements(
    manifold: Submanifold,
    order: int,
    points: Float[Array, "v N"],
    normals: Float[Array, "v k N"],
    faces: Int[Array, "m 3"],
    nodes: Int[Array, "m j"],
    heights: Float[Array, "m j k"],
) -> Elements:
    """Elements, with the points by which triangles are found."""
    corners, own = np.asarray(points)[np.asarray(faces)], np.asarray(normals)[np.asarray(faces)]
    marks = lifted(manifold, corners, own, reference.nodes(_MARKS))[0]
    tables = reference.to_nodal(order), reference.everywhere(order, _FINE)
    more = (jnp.asarray(table, points.dtype) for table in (marks, *tables))
    return Elements(manifold, order, points, normals, faces, nodes, heights, *more)


def elements_of(manifold: Submanifold, space: Space) -> Elements:
    """The elements of a space in which one has solved."""
    return elements(
        manifold,
        space.order,
        points=jnp.asarray(space.points),
        normals=jnp.asarray(space.normals),
        faces=jnp.asarray(space.faces, jnp.int32),
        nodes=jnp.asarray(space.nodes, jnp.int32),
        heights=jnp.asarray(space.heights),
    )
