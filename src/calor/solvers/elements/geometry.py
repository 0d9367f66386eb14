r"""Curved triangles that lie on a surface exactly.

A point u of the flat triangle between three vertices is moved along normals d_1, ..., d_k, those of
the vertices interpolated, until all equations hold:

    x(u) = y(u) + sum_j s_j(u) d_j(u),        f(x(u)) = 0,

y and d_j linear in u.  Neighbours share the normals on their common side, so they fit together.
The tangents follow by differentiating the equations: nothing is asked of f but its gradient.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.numerics import solve_positive

# Steps of Newton's method, from the flat triangle and from a start that is near.
_STEPS, _LOCATE = 8, 8


class Corners(NamedTuple):
    """Of one triangle."""

    places: Float[Array, "3 N"]
    normals: Float[Array, "3 k N"]

    def flat(self, u: Float[Array, " 2"]) -> tuple[Float[Array, " N"], Float[Array, "k N"]]:
        """The point above which u is, and the normals there."""
        weights = jnp.stack([1 - u[0] - u[1], u[0], u[1]])
        return weights @ self.places, jnp.tensordot(weights, self.normals, axes=1)


class Spot(NamedTuple):
    """A point of a curved triangle."""

    point: Float[Array, " N"]
    tangents: Float[Array, "2 N"]
    heights: Float[Array, " k"]
    """The s_j, how far it is from the flat triangle."""


Equations = Callable[[Float[Array, " N"]], Float[Array, " k"]]


def lift(equations: Equations, corners: Corners, u: Float[Array, " 2"]) -> Spot:
    """The point of the surface above u."""
    y, normals = corners.flat(u)

    def along(x):
        jacobian, values = jax.jacrev(lambda z: (equations(z),) * 2, has_aux=True)(x)
        return values, jacobian

    def step(heights, _):
        values, jacobian = along(y + heights @ normals)
        return heights - _solve(jacobian @ normals.T, values), None

    heights, _ = jax.lax.scan(step, jnp.zeros(len(normals), y.dtype), length=_STEPS)
    x = y + heights @ normals
    _, jacobian = along(x)
    flat = corners.places[1:] - corners.places[0]
    turned = corners.normals[1:] - corners.normals[0]
    moves = flat + jnp.einsum("k,akn->an", heights, turned)
    back = _solve(jacobian @ normals.T, jacobian @ moves.T)
    return Spot(x, moves - back.T @ normals, heights)


def locate(
    corners: Corners, x: Float[Array, " N"]
) -> tuple[Float[Array, " 2"], Float[Array, " k"], Float[Array, ""]]:
    """The u and the heights of a point near a curved triangle, and how far Newton's method missed.

    It may be above the plane of the triangle beside it, where u is outside.
    """
    flat = corners.places[1:] - corners.places[0]
    turned = corners.normals[1:] - corners.normals[0]
    size = jnp.sqrt(jnp.sum(flat * flat) / 2)

    def miss(u, heights):
        y, normals = corners.flat(u)
        return y + heights @ normals - x, normals

    def step(state, _):
        u, heights = state
        gap, normals = miss(u, heights)
        moves = flat + jnp.einsum("k,akn->an", heights, turned)
        matrix = jnp.concatenate([moves, size * normals])  # rows of about the same length
        change = _solve(matrix.T, gap)
        change = change * jnp.minimum(1.0, 1 / (jnp.max(jnp.abs(change)) + 1e-30))
        return (u - change[:2], heights - size * change[2:]), None

    start = (jnp.full(2, 1 / 3, x.dtype), jnp.zeros(len(corners.normals[0]), x.dtype))
    (u, heights), _ = jax.lax.scan(step, start, length=_LOCATE)
    gap, _ = miss(u, heights)
    return u, heights, jnp.sqrt(jnp.sum(gap * gap)) / size


def _solve(matrix, right):
    """The solution of a small system, one or several right hand sides, by its square."""
    if len(matrix) == 1:
        return right / matrix[0, 0]
    return solve_positive(matrix.T @ matrix, matrix.T @ right)
