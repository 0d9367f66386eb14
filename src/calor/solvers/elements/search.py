"""Finding a closed surface in R^3 from some of its points: how far it reaches, and a first mesh.

Points walk along the surface as far as they get in several directions: that is a box, unless they
run away.  On a grid in the box the function is positive or negative; every cell with both signs has
one vertex of the mesh, and every edge of the grid whose ends differ has a quadrangle around it.
Grids are refined until two of them agree on the topology.
"""

import numpy as np
from jaxtyping import Float, Int

from .level import Level
from .topology import MeshError, edges_of, euler_number, pieces, without_unused

# How many times wider than where it was found a set may be that is taken to be compact.
_FAR = 100.0
# The longest step of the walk, relative to how far it got; what is left of its direction at an end.
_STRIDE, _ARRIVED = 0.3, 1e-3
# Steps of the walk; grid lines along the longest side of the box, first and at most.
_STEPS, _COARSE, _FINE = 80, 24, 192
# Times the box is made larger; how far beyond what walkers reached it goes.
_LARGER, _MARGIN = 4, 0.06
# By how much areas may differ of grids that agree.
_AGREED = 0.03


class _SeveralPiecesError(MeshError):
    """On a grid there are several pieces."""


class NotOneSurfaceError(ValueError):
    """A set that is not compact, or has several components."""


def box_of(level: Level, points: Float[np.ndarray, "n N"]) -> Float[np.ndarray, "2 N"]:
    """The corners of a box around the surface; an error if it does not seem compact."""
    size = points.shape[1]
    ways = np.concatenate([np.eye(size), -np.eye(size), _diagonals(size)])
    middle = points.mean(axis=0)
    start = np.abs(points - middle).max()
    way = np.repeat(ways, len(points), axis=0)
    x = np.tile(points, (len(ways), 1))
    length = np.full(len(x), 0.1 * start)
    for _ in range(_STEPS):
        normals = level.normals(x)
        along = way - np.einsum("nki,nk->ni", normals, _coefficients(normals, way))
        left = np.linalg.norm(along, axis=1, keepdims=True)
        along /= np.maximum(left, 1e-12)
        with np.errstate(all="ignore"):
            y = level.project(x + length[:, None] * along)
            ahead = np.sum((y - x) * way, axis=1)
            fine = np.isfinite(y).all(axis=1) & (ahead > 0) & (left[:, 0] > _ARRIVED)
            fine &= level.offset(np.where(fine[:, None], y, x)) < 1e-6 * start
            # A step that lands far from where it was meant to, or where the surface lies quite
            # differently, has jumped to another part.
            turned = np.einsum("nki,nki->nk", normals, level.normals(np.where(fine[:, None], y, x)))
        fine &= (np.linalg.norm(y - x, axis=1) < 1.5 * length) & (turned > 0.3).all(axis=1)
        x = np.where(fine[:, None], y, x)
        longest = _STRIDE * np.maximum(start, np.abs(x - middle).max(axis=1))
        length = np.minimum(np.where(fine, 1.5 * length, 0.4 * length), longest)
        if np.abs(x - middle).max() > _FAR * start:
            raise NotOneSurfaceError(
                f"{level.manifold} does not seem compact: it reaches farther than {_FAR:g} times "
                f"as far as where it was found, to {x[np.argmax(np.abs(x - middle).max(axis=1))]}. "
                "Say where its kernel is needed: Submanifold(..., around=points), your data for "
                "instance."
            )
    return np.stack([x.min(axis=0), x.max(axis=0)])


def _diagonals(size):
    """Some more directions."""
    ways = np.random.default_rng(0).standard_normal((8, size))
    return ways / np.linalg.norm(ways, axis=1, keepdims=True)


def _coefficients(normals, way):
    """Of the part of a vector that is a combination of the normals."""
    gram = normals @ normals.swapaxes(1, 2)
    right = np.einsum("nki,ni->nk", normals, way)
    return np.linalg.solve(gram + 1e-12 * np.eye(gram.shape[1]), right[..., None])[..., 0]


def first_mesh(
    level: Level, points: Float[np.ndarray, "n 3"]
) -> tuple[Float[np.ndarray, "v 3"], Int[np.ndarray, "m 3"]]:
    """A mesh of the surface that the points are on, which may be a part of all zeros."""
    corners = box_of(level, points)
    before, problem = None, "grids did not agree on its topology"
    count, several = _COARSE, None
    while count <= _FINE:
        try:
            vertices, faces = _on_grid(level, points, corners, count)
        except _SeveralPiecesError as error:
            # What is joined by a thin neck may fall apart on a coarse grid.
            before, several = None, error
            if count >= _FINE / 2:
                break
        except MeshError as error:
            before, several, problem = None, None, str(error)
        else:
            area = float(np.linalg.norm(normals_of(vertices, faces), axis=1).sum() / 2)
            found, several = (euler_number(faces), area), None
            if before is not None and found[0] == before[0]:
                if abs(found[1] / before[1] - 1) < _AGREED:
                    return vertices, faces
            before = found
        count = round(1.45 * count)
    if several is not None:
        raise NotOneSurfaceError(f"{level.manifold}: {several}")
    raise MeshError(
        f"{level.manifold} could not be meshed on grids of up to {_FINE} cells along its longest "
        f"side: {problem}. It may be too thin, or cross itself, or have corners."
    )


def normals_of(
    points: Float[np.ndarray, "v 3"], faces: Int[np.ndarray, "m 3"]
) -> Float[np.ndarray, "m 3"]:
    """Normals of flat triangles, twice as long as their areas."""
    a, b, c = points[faces[:, 0]], points[faces[:, 1]], points[faces[:, 2]]
    return np.cross(b - a, c - a)


def _on_grid(level, points, corners, count):
    """The mesh on a grid with so many cells along the longest side."""
    width = (corners[1] - corners[0]).max()
    low, high = corners[0] - _MARGIN * width, corners[1] + _MARGIN * width
    for _ in range(_LARGER):
        cell = width / count
        # Away from planes of symmetry, where values vanish at corners of the grid.
        low = low - cell * np.array([0.137, 0.211, 0.173])
        lines = [low[i] + cell * np.arange(int((high[i] - low[i]) / cell) + 3) for i in range(3)]
        grid = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1)
        values = level.values(grid.reshape(-1, 3))[:, 0].reshape(grid.shape[:3])
        if not np.isfinite(values).all():
            bad = grid[~np.isfinite(values)][0]
            raise MeshError(f"its equation is NaN or infinite at {bad}")
        vertices, faces = _net(grid, values)
        if not len(faces):
            raise MeshError("it lies between the lines of the grid")
        vertices, faces = _of_points(vertices, faces, points)
        if not edges_of(faces).inside().all():  # it leaves the grid
            low, high = low - 0.2 * (high - low), high + 0.2 * (high - low)
            continue
        vertices = level.project(vertices, 8, longest=cell)
        left = level.offset(vertices)
        if not left.max() < 1e-8 * width:
            raise MeshError(f"Newton's method ends {left.max():.2g} away from it")
        return vertices, faces
    raise NotOneSurfaceError(
        f"{level.manifold} goes on beyond every box: it does not seem compact. Say where its "
        "kernel is needed: Submanifold(..., around=points), your data for instance."
    )


def _net(grid, values):
    """Vertices in cells with both signs, triangles around edges whose ends differ."""
    inside = values > 0
    shape = np.array(inside.shape) - 1  # cells
    sums, counts = np.zeros((shape.prod(), 3)), np.zeros(shape.prod())
    quads = []
    for axis in range(3):
        b, c = (axis + 1) % 3, (axis + 2) % 3
        here = tuple(slice(0, -1) if i == axis else slice(None) for i in range(3))
        there = tuple(slice(1, None) if i == axis else slice(None) for i in range(3))
        index = np.argwhere(inside[here] != inside[there])
        if not len(index):
            continue
        at = tuple(index.T)
        first, second = values[here][at], values[there][at]
        share = (first / (first - second))[:, None]
        place = grid[here][at] * (1 - share) + grid[there][at] * share
        around = []
        for step_b, step_c in ((-1, -1), (0, -1), (0, 0), (-1, 0)):
            cell = index.copy()
            cell[:, b] += step_b
            cell[:, c] += step_c
            around.append(cell)
        around = np.stack(around, axis=1)
        whole = ((around >= 0) & (around < shape)).all(axis=(1, 2))
        around, place, first = around[whole], place[whole], first[whole]
        cells = np.asarray(np.ravel_multi_index(tuple(np.moveaxis(around, 2, 0)), tuple(shape)))
        for k in range(4):
            np.add.at(sums, cells[:, k], place)
            np.add.at(counts, cells[:, k], 1.0)
        quads.append(np.where((first < 0)[:, None], cells, cells[:, ::-1]))
    if not quads:
        return np.zeros((0, 3)), np.zeros((0, 3), int)
    sums /= np.maximum(counts, 1)[:, None]
    quads = np.concatenate(quads)
    p = sums[quads]
    short = np.linalg.norm(p[:, 0] - p[:, 2], axis=1) <= np.linalg.norm(p[:, 1] - p[:, 3], axis=1)
    cut = np.where(short[:, None], quads, np.roll(quads, -1, axis=1))
    faces = np.concatenate([cut[:, [0, 1, 2]], cut[:, [0, 2, 3]]])
    return without_unused(sums, faces)


def _of_points(vertices, faces, points):
    """The one piece of the mesh that the points are on."""
    gaps = ((points[:, None] - vertices[None]) ** 2).sum(axis=2)
    piece = pieces(faces)
    near = gaps.argmin(axis=1)
    found = np.unique(piece[near])
    if len(found) > 1:
        examples = [points[np.argmax(piece[near] == one)].tolist() for one in found[:2]]
        raise _SeveralPiecesError(
            f"the zeros have several components, one with {examples[0]}, another one with "
            f"{examples[1]}; say which is meant: Submanifold(..., component=point)."
        )
    return without_unused(vertices, faces[piece[faces[:, 0]] == found[0]])
