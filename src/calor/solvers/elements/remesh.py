"""Triangles as large as elements of high order may be: a mesh is coarsened and made regular.

Lengths, angles and areas are those of the points (x / size, tangent plane / turn), in which an edge
of length one is as long as it should be: triangles are long where the surface bends in one
direction only.  Edges that are too long are split, those that are too short collapse, others are
flipped to make corners meet in sixes, and vertices move to the middle of their neighbours.  All
that do not touch each other are treated at once.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix

from .level import Level
from .topology import MeshError, edges_of, euler_number, without_unused

# Edges longer than the first are split, shorter ones than the second collapse.
_LONG, _SHORT = 1.4, 0.7
# Rounds of all, and of the last smoothing.
_ROUNDS, _LAST = 30, 6
# The quality that triangles keep when an edge next to them collapses.
_POOR = 0.15
# The smallest cosine between a triangle and the surface at its corners.
_UPRIGHT = 0.25


class Shape(NamedTuple):
    """The size of triangles: lengths in units of what they should be."""

    level: Level
    size: float
    """Of edges."""
    turn: float
    """Of the tangent plane along an edge, about."""

    def places(self, points: Float[np.ndarray, "v N"]) -> Float[np.ndarray, "v c"]:
        """Points as lengths see them."""
        scale = self.level.stretch(points)[:, None] / self.size
        return np.concatenate([points, self.level.planes(points)], axis=1) * np.concatenate(
            [
                np.broadcast_to(scale, points.shape),
                np.full((len(points), len(self.level.pairs[0])), 1 / self.turn),
            ],
            axis=1,
        )

    def upright(
        self, points: Float[np.ndarray, "v N"], faces: Int[np.ndarray, "m 3"]
    ) -> np.ndarray:
        """Whether triangles lie as the surface does at their corners."""
        planes = self.level.planes(points)
        a, b, c = (points[faces[:, k]] for k in range(3))
        own = self.level.wedge(b - a, c - a)
        own /= np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-300)
        return (np.einsum("mb,mkb->mk", own, planes[faces]) > _UPRIGHT).all(axis=1)


def lengths(places: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Of edges."""
    return np.linalg.norm(places[ends[:, 0]] - places[ends[:, 1]], axis=1)


def areas(places: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Twice the areas, in any dimension."""
    a, b = places[faces[:, 1]] - places[faces[:, 0]], places[faces[:, 2]] - places[faces[:, 0]]
    return np.sqrt(np.maximum((a * a).sum(1) * (b * b).sum(1) - (a * b).sum(1) ** 2, 0.0))


def quality(places: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """One for regular triangles, zero for flat ones."""
    corners = places[faces]
    squares = sum(((corners[:, i] - corners[:, i - 1]) ** 2).sum(1) for i in range(3))
    return 2 * np.sqrt(3) * areas(places, faces) / np.maximum(squares, 1e-300)


def _independent(count, members, rank):
    """Which of some groups of vertices are first by rank at all of their members."""
    best = np.full(count, -np.inf)
    for column in members.T:
        np.maximum.at(best, column, rank)
    return (best[members] == rank[:, None]).all(axis=1)


def split(
    shape: Shape, points: Float[np.ndarray, "v N"], faces: Int[np.ndarray, "m 3"]
) -> tuple[np.ndarray, np.ndarray, int]:
    """Split edges that are too long in the middle; returns how many were, too."""
    edges, places = edges_of(faces), shape.places(points)
    length = lengths(places, edges.ends)
    length *= 1 + 1e-9 * np.arange(len(length)) / len(length)  # no two are the same
    long = np.flatnonzero(length > _LONG)
    if not len(long):
        return points, faces, 0
    most = np.zeros(len(faces))
    for side in edges.faces.T:
        np.maximum.at(most, side[long], length[long])
    long = long[(most[edges.faces[long]] == length[long, None]).all(axis=1)]
    middles = points[edges.ends[long]].mean(axis=1)
    new = len(points) + np.arange(len(long))
    more, faces = [], faces.copy()
    rows = np.arange(len(long))
    triangles = [(edges.faces[long, s], edges.corners[long, s]) for s in (0, 1)]
    for face, corner in triangles:
        old = faces[face]
        top, one, two = (old[rows, (corner + k) % 3] for k in range(3))
        more.append(np.stack([top, new, two], axis=1))
        faces[face] = np.stack([top, one, new], axis=1)
    points = np.concatenate([points, shape.level.project(middles)])
    return points, np.concatenate([faces, *more]), len(long)


def collapse(
    shape: Shape,
    points: Float[np.ndarray, "v N"],
    faces: Int[np.ndarray, "m 3"],
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Draw the ends of edges that are too short together, where that keeps the surface."""
    edges, places = edges_of(faces), shape.places(points)
    count, ends, opposite = len(points), edges.ends, edges.opposite(faces)
    length = lengths(places, ends)
    valence = np.bincount(ends.ravel(), minlength=count)
    # Triangles that stand up have to go, if they are not very long.
    upright = shape.upright(points, faces)
    standing = (~upright[edges.faces]).any(axis=1) & (length < _LONG)
    short = (length < _SHORT) | standing
    short &= (valence[opposite] > 3).all(1) & (valence[ends].sum(1) < 14)
    # Exactly two vertices may be neighbours of both ends, or else the surface would be pinched.
    chosen = np.flatnonzero(short)
    if not len(chosen):
        return points, faces, 0
    chosen = chosen[_common(ends, chosen, count) == 2]
    rank = np.zeros(len(ends)) - np.inf
    rank[chosen] = -length[chosen] * (1 + 0.3 * rng.random(len(chosen)))
    # No two of them within two edges of each other.
    best = np.full(count, -np.inf)
    for column in ends[chosen].T:
        np.maximum.at(best, column, rank[chosen])
    for _ in range(2):
        spread = best.copy()
        np.maximum.at(spread, ends[:, 0], best[ends[:, 1]])
        np.maximum.at(spread, ends[:, 1], best[ends[:, 0]])
        best = spread
    chosen = chosen[(best[ends[chosen]] == rank[chosen, None]).all(axis=1)]
    if not len(chosen):
        return points, faces, 0
    middles = shape.level.project(points[ends[chosen]].mean(axis=1))
    owner = np.full(count, -1)
    for column in ends[chosen].T:
        owner[column] = np.arange(len(chosen))
    moved = points.copy()
    for column in ends[chosen].T:
        moved[column] = middles
    touched = owner[faces].max(axis=1)
    stays = (touched >= 0) & ((owner[faces] >= 0).sum(axis=1) < 2)
    around, group = faces[stays], touched[stays]
    # What is around may become as bad as it was, no worse.
    poorest = np.full(len(chosen), _POOR)
    np.minimum.at(poorest, touched[touched >= 0], 0.8 * quality(places, faces)[touched >= 0])
    new = shape.places(moved)
    sides = np.max([lengths(new, around[:, [i, i - 1]]) for i in range(3)], axis=0)
    fine = shape.upright(moved, around) | ~upright[stays]
    fine &= (quality(new, around) > poorest[group]) & (sides < 1.5)
    bad = np.zeros(len(chosen), bool)
    bad[group[~fine]] = True
    chosen, middles = chosen[~bad], middles[~bad]
    points = points.copy()
    points[ends[chosen, 0]] = middles
    into = np.arange(count)
    into[ends[chosen, 1]] = ends[chosen, 0]
    faces = into[faces]
    faces = faces[(faces != np.roll(faces, 1, axis=1)).all(axis=1)]
    return *without_unused(points, faces), len(chosen)


def _common(ends, chosen, count):
    """How many vertices are neighbours of both ends of some edges."""
    both = np.concatenate([ends, ends[:, ::-1]])
    near = csr_matrix((np.ones(len(both)), tuple(both.T)), (count, count))
    one, two = near[ends[chosen, 0]], near[ends[chosen, 1]]
    return np.asarray(one.multiply(two).sum(axis=1)).ravel()


def flip(
    shape: Shape,
    points: Float[np.ndarray, "v N"],
    faces: Int[np.ndarray, "m 3"],
    rng: np.random.Generator,
    rounds: int = 4,
) -> Int[np.ndarray, "m 3"]:
    """Flip edges whose ends have too many neighbours, or triangles that stand up."""
    count, places = len(points), shape.places(points)
    for _ in range(rounds):
        edges = edges_of(faces)
        ends, opposite = edges.ends, edges.opposite(faces)
        valence = np.bincount(ends.ravel(), minlength=count)
        now = (np.abs(valence[ends] - 6) ** 2).sum(1) + (np.abs(valence[opposite] - 6) ** 2).sum(1)
        then = (np.abs(valence[ends] - 7) ** 2).sum(1) + (np.abs(valence[opposite] - 5) ** 2).sum(1)
        upright = shape.upright(points, faces)
        gain = (now - then) + 100.0 * (~upright[edges.faces]).any(axis=1)
        chosen = np.flatnonzero((gain > 0) & (valence[ends] > 3).all(axis=1))
        name = lambda pair: np.sort(pair, axis=1) @ np.array([count, 1])
        chosen = chosen[~np.isin(name(opposite[chosen]), name(ends))]
        rank = gain[chosen] + 0.5 * rng.random(len(chosen))
        members = np.concatenate([ends[chosen], opposite[chosen]], axis=1)
        chosen = chosen[_independent(count, members, rank)]
        if not len(chosen):
            break
        face, corner = edges.faces[chosen].T, edges.corners[chosen].T
        rows = np.arange(len(chosen))
        top, one, two = (faces[face[0]][rows, (corner[0] + k) % 3] for k in range(3))
        bottom = opposite[chosen, 1]
        first = np.stack([top, one, bottom], axis=1)
        second = np.stack([top, bottom, two], axis=1)
        better = shape.upright(points, first) & shape.upright(points, second)
        poorest = lambda a, b: np.minimum(quality(places, a), quality(places, b))
        old = poorest(faces[face[0]], faces[face[1]])
        made = poorest(first, second)
        stood = ~upright[face].all(axis=0)
        better = (better & (made > 0.5 * np.minimum(old, 0.4))) | (stood & (made > old))
        faces = faces.copy()
        faces[face[0][better]], faces[face[1][better]] = first[better], second[better]
    return faces


def smooth(
    shape: Shape,
    points: Float[np.ndarray, "v N"],
    faces: Int[np.ndarray, "m 3"],
    step: float = 0.6,
) -> Float[np.ndarray, "v N"]:
    """Move vertices towards the middle of the triangles around them."""
    count, places = len(points), shape.places(points)
    weight, middle = areas(places, faces), points[faces].mean(axis=1)
    total = np.bincount(faces.ravel(), np.repeat(weight, 3), count)
    pull = [np.bincount(faces.ravel(), np.repeat(weight * column, 3), count) for column in middle.T]
    moved = points + step * (np.stack(pull, axis=1) / total[:, None] - points)
    moved = shape.level.project(moved)
    for _ in range(3):
        least = 0.5 * np.minimum(quality(places, faces), 0.4)
        bad = ~shape.upright(moved, faces) | (quality(shape.places(moved), faces) < least)
        if not bad.any():
            break
        moved[faces[bad].ravel()] = points[faces[bad].ravel()]
    return moved


def remesh(
    level: Level,
    points: Float[np.ndarray, "v N"],
    faces: Int[np.ndarray, "m 3"],
    size: float,
    turn: float,
) -> tuple[Float[np.ndarray, "w N"], Int[np.ndarray, "n 3"]]:
    """A mesh of the same surface with edges of a size, along which planes turn by so much."""
    before = euler_number(faces)
    for attempt in range(3):  # a single triangle upside down would spoil everything
        shape = Shape(level, size * 0.95**attempt, turn * 0.95**attempt)
        found = _remeshed(shape, points, faces, np.random.default_rng(attempt))
        if euler_number(found[1]) == before and shape.upright(*found).all():
            return found
    raise MeshError(f"no mesh of {level.manifold} was found whose triangles all lie flat on it")


def _remeshed(shape, points, faces, rng):
    if not shape.upright(points, faces)[:64].any():
        faces = faces[:, ::-1]
    for round_ in range(_ROUNDS):
        changed = 0
        for _ in range(4):
            points, faces, count = split(shape, points, faces)
            changed += count
            if count < 0.01 * len(faces):
                break
        for _ in range(8):
            points, faces, count = collapse(shape, points, faces, rng)
            changed += count
            if count < 0.01 * len(points):
                break
        faces = flip(shape, points, faces, rng)
        points = smooth(shape, points, faces)
        faces = flip(shape, points, faces, rng, 2)
        if changed < 0.015 * len(faces) and round_ > 3:
            break
    for _ in range(_LAST):
        points = smooth(shape, points, faces)
        faces = flip(shape, points, faces, rng, 2)
    return points, faces
