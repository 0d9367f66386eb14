"""Triangle meshes as arrays of corners: which triangles and vertices are neighbours.

The side k of a triangle is the one opposite to its corner k; it runs from corner k + 1 to corner
k + 2, modulo three.  A side that no other triangle has belongs to the boundary.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ...heat.kernel import UnsolvedError


class MeshError(UnsolvedError):
    """A mesh that is not a surface, or a surface that has no mesh."""


class Edges(NamedTuple):
    """The edges of a mesh; where there is no second triangle, its numbers are -1."""

    ends: Int[np.ndarray, "e 2"]
    """Vertices, the smaller number first."""
    faces: Int[np.ndarray, "e 2"]
    """The triangles on both sides."""
    corners: Int[np.ndarray, "e 2"]
    """Which of their corners is opposite to the edge."""
    of_sides: Int[np.ndarray, "m 3"]
    """The edge of each side of each triangle."""

    def opposite(self, faces: Int[np.ndarray, "m 3"]) -> Int[np.ndarray, "e 2"]:
        """The vertices opposite to the edge, in the triangles on both sides."""
        found = faces[self.faces, self.corners]
        return np.where(self.faces < 0, -1, found)

    def inside(self) -> np.ndarray:
        """Whether there are triangles on both sides."""
        return self.faces[:, 1] >= 0


def edges_of(faces: Int[np.ndarray, "m 3"]) -> Edges:
    """The edges of a mesh; errors where it is no surface or its triangles turn two ways."""
    count = len(faces)
    starts, ends = np.roll(faces, -1, axis=1), np.roll(faces, -2, axis=1)
    low, high = np.minimum(starts, ends).ravel(), np.maximum(starts, ends).ravel()
    name = low.astype(np.int64) * (int(faces.max()) + 1) + high
    order = np.argsort(name, kind="stable")
    _, first, of_sides, times = np.unique(
        name, return_index=True, return_inverse=True, return_counts=True
    )
    if times.max() > 2:
        bad = first[np.argmax(times)]
        raise MeshError(
            f"the edge between the vertices {low[bad]} and {high[bad]} is in {times.max()} "
            "triangles; on a surface it is in two, or in one at the boundary."
        )
    begin = np.cumsum(times) - times
    one, two = order[begin], np.where(times == 2, order[begin + times - 1], -1)
    forward = (starts < ends).ravel()
    same = (times == 2) & (forward[one] == forward[two])
    if same.any():
        edge = one[np.argmax(same)]
        raise MeshError(
            f"the triangles {edge // 3} and {two[np.argmax(same)] // 3} at the edge between the "
            f"vertices {low[edge]} and {high[edge]} turn in different directions."
        )
    sides = np.stack([one, two], axis=1)
    return Edges(
        ends=np.stack([low[one], high[one]], axis=1),
        faces=np.where(sides < 0, -1, sides // 3),
        corners=np.where(sides < 0, 0, sides % 3),
        of_sides=of_sides.reshape(count, 3),
    )


def euler_number(faces: Int[np.ndarray, "m 3"]) -> int:
    """Vertices - edges + triangles: 2 - 2 genus of a closed connected surface."""
    return len(np.unique(faces)) - len(edges_of(faces).ends) + len(faces)


def pieces(faces: Int[np.ndarray, "m 3"]) -> Int[np.ndarray, " v"]:
    """The number of the connected piece that each vertex is in."""
    count = int(faces.max()) + 1
    links = (np.ones(faces.size), (faces.ravel(), np.roll(faces, 1, axis=1).ravel()))
    return connected_components(coo_matrix(links, (count, count)), directed=False)[1]


def without_unused(
    points: Float[np.ndarray, "v N"], faces: Int[np.ndarray, "m 3"]
) -> tuple[Float[np.ndarray, "w N"], Int[np.ndarray, "m 3"]]:
    """The same mesh without vertices that are in no triangle."""
    used, numbered = np.unique(faces, return_inverse=True)
    return points[used], numbered.reshape(faces.shape)
