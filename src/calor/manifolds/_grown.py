"""Clouds that look like molecules."""

import jax.random as jr
import numpy as np
from jaxtyping import Float

from ..core.types import Key
from . import PointCloud

# Clouds grow point by point, a new one at such a distance from an old one, in angstrom, and no
# nearer to any other; elements as frequent as in organic molecules.
_BOND, _NEAREST, _ELEMENTS = (1.0, 1.55), (0.9, 1.05), (0.5, 0.35, 0.07, 0.08)


def grown_clouds(manifold: PointCloud, count: int, key: Key) -> Float[np.ndarray, "m n ..."]:
    """Clouds that look like molecules, of as many points and coordinates as the manifold has.

    The first three coordinates are places, others are one-hot elements in every second cloud and
    zero in the rest.
    """
    numbers = np.asarray(jr.randint(key, (4,), 0, 2**30))
    rng = np.random.default_rng(numbers.tolist())
    n, k = manifold.size, manifold.features
    space = min(3, k)
    clouds = np.zeros((count, *manifold.shape))
    for number, cloud in enumerate(clouds):
        size = int(rng.integers(manifold.smallest, n + 1))
        cloud[:size, :space] = _grown(rng, size, space)
        cloud[:size, : manifold.centred] -= cloud[:size, : manifold.centred].mean(axis=0)
        if number % 2 and k > space:
            share = np.resize(_ELEMENTS, k - space)
            kinds = rng.choice(k - space, size=size, p=share / share.sum())
            cloud[np.arange(size), space + kinds] = 1
        if manifold.is_varying:
            cloud[:size, -1] = 1
    return clouds


def _grown(rng, size, space):
    nearest = rng.uniform(*_NEAREST) if space > 1 else 0.5
    points = np.zeros((1, space))
    while len(points) < size:
        step = rng.normal(size=space)
        step *= rng.uniform(*_BOND) / np.linalg.norm(step)
        new = points[rng.integers(len(points))] + step
        if np.min(np.linalg.norm(points - new, axis=1)) > nearest:
            points = np.concatenate([points, new[None]])
    return points
