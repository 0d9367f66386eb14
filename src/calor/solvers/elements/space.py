r"""Elements of high order on a curved mesh, and the eigenvalue problem of the Laplacian on them.

Functions are polynomials of u on every triangle and continuous.  With J the area factor and G the
metric that the tangents x_u have in the metric of the ambient space,

    <f, h> = int f h J du,        <grad f, grad h> = int (f_u . G^{-1} h_u) J du.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix

from . import reference
from .geometry import Corners, lift
from .level import Level
from .topology import MeshError, edges_of

# How far triangles may end from the surface, relative to its size; triangles treated together.
_MISSED, _TOGETHER = 1e-9, 256


class Space(NamedTuple):
    """Elements of an order."""

    order: int
    points: Float[np.ndarray, "v N"]
    normals: Float[np.ndarray, "v k N"]
    faces: Int[np.ndarray, "m 3"]
    nodes: Int[np.ndarray, "m j"]
    """The number of each node of each triangle."""
    stiffness: Any
    """A sparse matrix of SciPy, and the next."""
    mass: Any
    places: Float[np.ndarray, "m q N"]
    """The points of quadrature."""
    tangents: Float[np.ndarray, "m q 2 N"]
    metric: Float[np.ndarray, "m q 2 2"]
    weights: Float[np.ndarray, "m q"]
    """Their areas."""
    heights: Float[np.ndarray, "m j k"]
    """Of the nodes above their flat triangles."""
    factors: Float[np.ndarray, "m j"]
    """The area factor J at the nodes."""

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.mass.indptr) - 1

    @property
    def area(self) -> float:
        """Of the surface."""
        return float(self.weights.sum())


def node_numbers(faces: Int[np.ndarray, "m 3"], order: int) -> tuple[np.ndarray, int]:
    """The number of each node of each triangle, and how many there are."""
    edges = edges_of(faces)
    count, between = int(faces.max()) + 1, order - 1
    numbers = [faces]
    for side in range(3):
        first, second = faces[:, (side + 1) % 3], faces[:, (side + 2) % 3]
        along = np.where(
            (first < second)[:, None], np.arange(between), between - 1 - np.arange(between)
        )
        numbers.append(count + edges.of_sides[:, side : side + 1] * between + along)
    count += len(edges.ends) * between
    inside = (order - 1) * (order - 2) // 2
    numbers.append(count + np.arange(len(faces))[:, None] * inside + np.arange(inside))
    return np.concatenate(numbers, axis=1), count + len(faces) * inside


@functools.lru_cache(maxsize=8)
def _lifted(manifold: Any):
    """The points, tangents and what is left of the equations at u of triangles."""

    def one(places, normals, u):
        spot = lift(manifold.equations, Corners(places, normals), u)
        metric = spot.tangents @ manifold.metric_at(spot.point) @ spot.tangents.T
        left = jnp.linalg.norm(manifold.equations(spot.point))
        return spot.point, spot.tangents, metric, spot.heights, left

    each = jax.vmap(jax.vmap(one, in_axes=(None, None, 0)), in_axes=(0, 0, None))
    return jax.jit(lambda places, normals, u: each(places, normals, u))


def build(
    level: Level,
    points: Float[np.ndarray, "v N"],
    faces: Int[np.ndarray, "m 3"],
    order: int,
    gauss: int,
) -> Space:
    """Elements on a mesh whose vertices are on the surface; call it in double precision.

    Args:
        level: the surface.
        points: of it, the vertices.
        faces: the triangles.
        order: of the polynomials.
        gauss: points of quadrature in each direction.
    """
    normals = level.normals(points)
    corners, own = points[faces], normals[faces]
    u, weights = reference.quadrature(gauss)
    places, tangents, metric, _, left = lifted(level.manifold, corners, own, u)
    _, _, at_nodes, heights, _ = lifted(level.manifold, corners, own, reference.nodes(order))
    _check(level, places, tangents, left)
    determinant = np.linalg.det(metric)
    factor = np.sqrt(determinant)
    area = weights * factor
    values, slopes = reference.tabulated(order, gauss)
    flux = [metric[..., 1, 1], -metric[..., 0, 1], metric[..., 0, 0]]  # of the adjugate
    flux = [area * part / determinant for part in flux]
    pair = lambda a, b: (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)
    du, dv = slopes[..., 0], slopes[..., 1]
    stiff = flux[0] @ pair(du, du) + flux[2] @ pair(dv, dv)
    stiff += flux[1] @ (pair(du, dv) + pair(dv, du))
    nodes, count = node_numbers(faces, order)
    size = nodes.shape[1]
    rows, columns = np.repeat(nodes, size, axis=1).ravel(), np.tile(nodes, (1, size)).ravel()
    matrix = lambda entries: csr_matrix((entries.ravel(), (rows, columns)), (count, count))
    return Space(
        order=order,
        points=points,
        normals=normals,
        faces=faces,
        nodes=nodes,
        stiffness=matrix(stiff),
        mass=matrix(area @ pair(values, values)),
        places=places,
        tangents=tangents,
        metric=metric,
        weights=area,
        heights=heights,
        factors=np.sqrt(np.linalg.det(at_nodes)),
    )


def lifted(
    manifold: Any,
    corners: Float[np.ndarray, "m 3 N"],
    normals: Float[np.ndarray, "m 3 k N"],
    u: Float[np.ndarray, "q 2"],
) -> list[np.ndarray]:
    """Points, tangents, metric, heights and what is left of the equations at u of triangles."""
    run, places, found = _lifted(manifold), jnp.asarray(u, corners.dtype), []
    for start in range(0, len(corners), _TOGETHER):
        part, own = (a[start : start + _TOGETHER] for a in (corners, normals))
        missing = _TOGETHER - len(part)  # pieces of one shape are compiled once
        fill = lambda a, n=missing: np.concatenate([a, np.broadcast_to(a[:1], (n, *a.shape[1:]))])
        values = run(jnp.asarray(fill(part)), jnp.asarray(fill(own)), places)
        found.append([np.asarray(value)[: len(part)] for value in values])
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def _check(level, places, tangents, left):
    """Raise an error unless all triangles lie on the surface with the right side up."""
    scale = np.abs(places - places.mean(axis=(0, 1))).max()
    if not left.max() < _MISSED * scale:
        raise MeshError(f"curved triangles end {left.max():.2g} away from {level.manifold}")
    flat = places.reshape(-1, places.shape[-1])
    own = level.wedge(*(tangents[..., a, :].reshape(len(flat), -1) for a in (0, 1)))
    turned = np.sum(own * level.planes(flat), axis=1) <= 0
    if turned.any():
        raise MeshError(f"a triangle of {level.manifold} is folded near {flat[turned][0]}")
