r"""How wide the kernels of a density are: from the distances of neighbours, and their directions.

Bandwidths that adapt are t = (c d_k)^2 / 2, with d_k the distance of a point to its k-th neighbour;
beside them are some that are the same at all points.
Covariances are those of log_x(x_j) over the k nearest neighbours x_j, times c^2, and shrunk toward
multiples of the identity, so that they are never singular.  Points that are repeated count as one
neighbour.
"""

import math
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.spatial import KDTree

from ..data.folds import Prepared
from ..manifolds import AbstractManifold
from .around import in_rows
from .wrapped import coordinates, largest_variance, whitening

# Neighbours and fractions of their distance that adaptive bandwidths are made from: alone, and
# beside covariances, which take over where the directions of neighbours matter.
_ALONE = tuple((k, c) for k in (2, 5, 15) for c in (0.25, 0.5, 1.0))
_BESIDE = (*((1, c) for c in (0.125, 0.25, 0.5, 1.0)), *_ALONE)
# Neighbours that covariances are made from, for each dimension, with the factors of standard
# deviations, and the share of the mean variance that goes in all directions.
_DIRECTIONS, _FACTORS, _SHRUNK = (2, 10, 20), (0.25, 0.5, 1.0), 0.1
# The largest dimension in which so few neighbours say anything of directions.
_LARGEST_DIMENSION = 10
# Bandwidths that are the same at all points: alone, and beside those that adapt.
_BANDWIDTHS, _SHARED = 24, 8
_SMALLEST = 1e-8  # bandwidth
_LONELY = 1e-3  # the distance of neighbours where there are none


class Widths(NamedTuple):
    """Of the kernels around points."""

    times: Float[np.ndarray, "k n"]
    """Bandwidths of heat kernels, or of Gaussians of variance 2t."""
    whitenings: Float[np.ndarray, "g n d d"]
    """Of the covariances of Gaussians."""


def adaptive_widths(
    manifold: AbstractManifold, prepared: Prepared, t_min: float | None, *, wrapped: bool
) -> Widths:
    """Several rows of bandwidths that adapt to the points, and of covariances.

    Args:
        manifold: where the points are.
        prepared: with the points.
        t_min: the smallest bandwidth.
        wrapped: whether they are those of wrapped Gaussians.
    """
    smallest, dim = t_min or _SMALLEST, manifold.dim
    directed = wrapped and 1 < dim <= _LARGEST_DIMENSION
    counts = [factor * dim for factor in _DIRECTIONS] if directed else []
    kinds = _BESIDE if directed else _ALONE
    near = _neighbours(manifold, prepared, max(*counts, *(k for k, _ in kinds)))
    times = np.stack([(c * near.distances[:, k - 1]) ** 2 / 2 for k, c in kinds])
    # Where points are doubled, or as dense everywhere, a neighbour says nothing.
    places = _lookalikes(manifold, prepared.points)[:, 0]
    shared = _shared_times(near.distances[:, 0], places, None, _SHARED)
    times = np.concatenate([times, np.repeat(shared[:, None], len(places), axis=1)])
    largest = largest_variance(manifold) if wrapped else math.inf
    times = np.clip(times, smallest, largest / 2)
    if not directed:
        return Widths(times, np.zeros((0, len(prepared.points), dim, dim)))
    vectors = near.vectors(manifold, prepared.points)
    found = []
    for k in counts:
        covariance = np.einsum("nka,nkb->nab", vectors[:, :k], vectors[:, :k]) / k
        mean = np.trace(covariance, axis1=1, axis2=2)[:, None, None] / dim
        shrunk = (1 - _SHRUNK) * covariance + _SHRUNK * mean * np.eye(dim)
        shrunk = np.where(mean > 0, shrunk, _LONELY**2 * np.eye(dim))
        found += [whitening(c**2 * shrunk, 2 * smallest, largest) for c in _FACTORS]
    return Widths(times, np.stack(found))


def single_widths(manifold: AbstractManifold, prepared: Prepared, t_min: float | None) -> Widths:
    """Rows of one bandwidth for all points, from the distance of neighbours to the spread."""
    places = _lookalikes(manifold, prepared.points)[:, 0]
    nearest = _neighbours(manifold, prepared, 1).distances[:, 0]
    times = _shared_times(nearest, places, t_min, _BANDWIDTHS)
    rows = np.repeat(times[:, None], len(places), axis=1)
    return Widths(rows, np.zeros((0, len(places), manifold.dim, manifold.dim)))


def _shared_times(
    nearest: Float[np.ndarray, " n"],
    places: Float[np.ndarray, "n d"],
    t_min: float | None,
    count: int,
) -> Float[np.ndarray, " k"]:
    """Bandwidths that are the same at all points, from the distance of neighbours to the spread.

    Points that are repeated count once.
    """
    places, first = np.unique(places, axis=0, return_index=True)
    nearest = nearest[first]
    if t_min is None:
        t_min = max(_SMALLEST, float(np.quantile(nearest, 0.1)) ** 2 / 8)
    return np.geomspace(t_min, max(square_spread(places) / 4, 2 * t_min), count)


def square_spread(places: Float[np.ndarray, "n d"]) -> float:
    """The mean square distance from the mean."""
    return float(np.mean(np.sum((places - places.mean(0)) ** 2, axis=1)))


class _Near(NamedTuple):
    """The nearest different points of each point, in order."""

    distances: Float[np.ndarray, "n k"]
    rows: Int[np.ndarray, "n k"]

    def vectors(self, manifold: AbstractManifold, points: Array) -> Float[np.ndarray, "n k d"]:
        """Their logarithms, in the basis at each point."""
        places = np.asarray(points)
        found = in_rows(_tangents, places, places[self.rows], shared=(manifold,))
        return found.astype(np.float64)


def _tangents(manifold, x, others):
    return jax.vmap(lambda y: coordinates(manifold, x, manifold.log_at(x, y)))(others)


def _neighbours(manifold: AbstractManifold, prepared: Prepared, number: int) -> _Near:
    """Neighbours among the points of the same label, as many as there are."""
    images = _lookalikes(manifold, prepared.points)
    count = len(images)
    distances, rows = np.empty((count, number)), np.empty((count, number), int)
    for inside in _labels(prepared):
        members = np.flatnonzero(inside)
        first = members[np.unique(images[members, 0], axis=0, return_index=True)[1]]
        known = min(number, len(first) - 1)
        if known < 1:
            distances[members], rows[members] = _LONELY, members[:, None]
            continue
        candidates = images[first]
        tree = KDTree(candidates.reshape(-1, candidates.shape[-1]))
        gaps, found = tree.query(images[members, 0], known + 1)
        order = np.minimum(np.arange(1, number + 1), known)
        distances[members] = np.asarray(gaps)[:, order]
        rows[members] = first[np.asarray(found)[:, order] // candidates.shape[1]]
    return _Near(distances, rows)


def _lookalikes(manifold: AbstractManifold, points: Array) -> Float[np.ndarray, "n g d"]:
    """The places of all arrays that stand for each point."""
    found = in_rows(_places, points, shared=(manifold,))
    return found.astype(np.float64)


def _places(manifold, x):
    return jax.vmap(manifold.embedding)(manifold.lookalikes(x))


def _labels(prepared: Prepared) -> list[Bool[np.ndarray, " n"]]:
    """Which points are of each label; one set of all points where there are no labels."""
    encoder = prepared.encoder
    if encoder is None or not encoder.labels:
        return [np.ones(len(prepared.points), bool)]
    return [column > 0 for column in np.asarray(prepared.features).T if column.any()]
