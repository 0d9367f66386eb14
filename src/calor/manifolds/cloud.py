"""Clouds of points modulo permutations, R^(k x n) / S_n.

A point of this manifold is an array (n, k) whose rows may be listed in any order.  S_n is too large
to list: distances are minima over matchings, found by the Hungarian algorithm, and the heat kernel
is a permanent (`calor.matchings`).

Clouds may have fewer points than n, and may have their centre of mass at zero.
"""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float
from optax.assignment import hungarian_algorithm

from ..core.checks import positive_integer
from ..core.numerics import safe_norm
from ..core.types import Key, Point, Scalar, Tangent
from .base import AbstractManifold
from .names import kind

# Clouds grow point by point, a new one at such a distance from an old one, in angstrom, and no
# nearer to any other; elements as frequent as in organic molecules.
_BOND, _NEAREST, _ELEMENTS = (1.0, 1.55), (0.9, 1.05), (0.5, 0.35, 0.07, 0.08)
# The squared distance of a point that is present to one that is not.
_APART = 1e30


def _parse(name: str) -> AbstractManifold:
    parts = re.fullmatch(r"cloud:(?:(\d{1,3})-)?(\d{1,3})x(\d{1,3})(?:c(\d{1,3}))?", name)
    if parts is None:
        raise ValueError(
            f"a cloud needs its number of points and of coordinates, as in cloud:9x3, or "
            f"cloud:3-29x8c3 for 3 to 29 points, three coordinates centred; got {name!r}"
        )
    smallest, n, k, centred = (None if part is None else int(part) for part in parts.groups())
    return PointCloud(n or 0, k or 0, smallest=smallest, centred=centred or 0)


def _spell(cloud: "PointCloud") -> str:
    fewest = f"{cloud.smallest}-" if cloud.is_varying else ""
    centred = f"c{cloud.centred}" if cloud.centred else ""
    return f"cloud:{fewest}{cloud.size}x{cloud.features}{centred}"


@kind("cloud", form="cloud:NxK", parse=_parse, spell=_spell)
class PointCloud(AbstractManifold):
    """Clouds of n unordered points of R^k, or of `smallest` to n.

    If the number varies, an array is (n, k + 1): its last column is one for the rows that are
    points, which come first, and zero for the others, which are zero.  Clouds of different numbers
    are infinitely far apart; `dim` is that of the largest ones.
    """

    size: int = eqx.field(static=True)
    """The largest number n of points."""
    features: int = eqx.field(static=True)
    """The number k of coordinates of each point."""
    smallest: int = eqx.field(static=True)
    """The smallest number of points."""
    centred: int = eqx.field(static=True)
    """The mean of so many leading coordinates over the points is zero."""
    dim: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, n: int, k: int, *, smallest: int | None = None, centred: int = 0):
        """Clouds of points.

        Args:
            n: the number of points, or the largest number.
            k: the number of coordinates of each.
            smallest: the smallest number of points, if it varies.
            centred: how many leading coordinates have mean zero over the points of a cloud: 3 for
                molecules whose centre is not to move.
        """
        self.size = positive_integer(n, "n", "PointCloud")
        self.features = positive_integer(k, "k", "PointCloud")
        self.centred = positive_integer(centred, "centred", "PointCloud", at_least=0)
        least = n if smallest is None else smallest
        self.smallest = positive_integer(least, "smallest", "PointCloud")
        if self.smallest > self.size:
            raise ValueError(
                f"PointCloud: smallest must not exceed n = {n}, got smallest = {smallest}."
            )
        if self.centred > self.features or (self.centred and self.smallest < 2):
            raise ValueError(
                f"PointCloud: centred must be at most k = {k}, and clouds need two points to be "
                f"centred; got centred = {centred}, and clouds of {self.smallest}."
            )
        self.dim = self.size * self.features - self.centred
        self.shape = (self.size, self.features + self.is_varying)

    @property
    def is_varying(self) -> bool:
        """Whether clouds differ in their number of points."""
        return self.smallest < self.size

    def places(self, x: Point) -> Float[Array, "n k"]:
        """The points alone."""
        return x[:, : self.features]

    def present(self, x: Point) -> Float[Array, " n"]:
        """One for the rows that are points, zero for the others."""
        if self.is_varying:
            return jax.lax.stop_gradient(jnp.round(x[:, -1]))
        return jnp.ones(self.size, x.dtype)

    def count(self, x: Point) -> Scalar:
        """How many points there are."""
        return jnp.sum(self.present(x))

    def dimension(self, x: Point) -> Scalar:
        """The dimension of the clouds with as many points as x."""
        return self.features * self.count(x) - self.centred

    def squared_distances(self, x: Point, y: Point) -> Float[Array, "n n"]:
        """Of every point of x (rows) to every point of y; absent ones are matched to themselves."""
        differences = self.places(x)[:, None] - self.places(y)[None]
        squared = jnp.sum(differences**2, axis=-1)
        if not self.is_varying:
            return squared
        both = self.present(x)[:, None] * self.present(y) > 0
        neither = jnp.eye(self.size, dtype=bool) & (self.present(x)[:, None] + self.present(y) == 0)
        return jnp.where(both, squared, jnp.where(neither, 0.0, _APART))

    def matched(self, x: Point, y: Point) -> Point:
        """y with its points in the order in which they are closest to those of x."""
        squared = jax.lax.stop_gradient(self.squared_distances(x, y))
        rows, columns = hungarian_algorithm(jnp.minimum(squared, 1e6))
        order = jnp.zeros(self.size, columns.dtype).at[rows].set(columns)
        return y[order]

    def with_presence(
        self, places: Float[Array, "n k"], present: Float[Array, " n"]
    ) -> Float[Array, "n ..."]:
        """An array of this manifold from points and which of them there are."""
        places = places * present[:, None]
        return jnp.column_stack([places, present]) if self.is_varying else places

    def exp_at(self, x: Point, v: Tangent) -> Point:
        return x + v

    def log_at(self, x: Point, y: Point) -> Tangent:
        return jnp.where(self.count(x) == self.count(y), self.matched(x, y) - x, jnp.nan)

    def dist_at(self, x: Point, y: Point) -> Scalar:
        distance = safe_norm(self.matched(x, y) - x)
        return jnp.where(self.count(x) == self.count(y), distance, jnp.inf)

    def inner_at(self, x: Point, u: Tangent, v: Tangent) -> Scalar:
        return jnp.sum(u * v)

    def project_at(self, x: Point) -> Point:
        if self.is_varying:  # points first
            x = x[jnp.argsort(x[:, -1] < 0.5, stable=True)]
        present = jnp.where(x[:, -1] < 0.5, 0.0, 1.0) if self.is_varying else self.present(x)
        return self.with_presence(self._centre(self.places(x), present), present.astype(x.dtype))

    def _centre(self, places, present):
        if not self.centred:
            return places
        weights = present / jnp.maximum(jnp.sum(present), 1)
        middle = jnp.where(jnp.arange(self.features) < self.centred, weights @ places, 0.0)
        return places - middle

    def tangent_at(self, x: Point, v: Tangent) -> Tangent:
        present = self.present(x)
        moved = self._centre(self.places(v) * present[:, None], present)
        return self.with_presence(moved, present) * _no_presence(self, x)

    def offset_at(self, x: Point) -> Scalar:
        offset = jnp.max(jnp.abs(self.project_at(x) - x))
        few = self.is_varying and jnp.sum(x[:, -1] > 0.5) < self.smallest
        return jnp.where(few, jnp.inf, offset)

    def draw_point(self, key: Key) -> Point:
        key_count, key_place = jr.split(key)
        count = jr.randint(key_count, (), self.smallest, self.size + 1)
        present = (jnp.arange(self.size) < count).astype(float)
        places = jr.normal(key_place, (self.size, self.features)) * present[:, None]
        return self.with_presence(self._centre(places, present), present)

    def draw_tangent(self, key: Key, x: Point) -> Tangent:
        return self.tangent_at(x, jr.normal(key, self.shape, x.dtype))

    def frame(self, x: Point) -> Float[Array, "m ..."]:
        """The standard basis, projected."""
        basis = jnp.eye(self.size * self.features, dtype=x.dtype)
        places = basis.reshape(-1, self.size, self.features)
        columns = self.shape[1] - self.features
        return jax.vmap(lambda v: self.tangent_at(x, v))(
            jnp.pad(places, ((0, 0), (0, 0), (0, columns)))
        )

    def coordinate_laplacian(self, x: Point) -> Tangent:
        """Zero: coordinates are harmonic."""
        return jnp.zeros_like(x)

    def parts(self) -> int:
        """The points: they move like the factors of a product."""
        return self.size

    def sources(self, count: int, key: Key) -> Float[Array, "n ..."]:
        """Clouds that look like molecules."""
        return jnp.asarray(self.grown(count, key))

    def grown(self, count: int, key: Key) -> Float[np.ndarray, "m ..."]:
        """Clouds that look like molecules, of as many points and coordinates as this manifold has.

        The first three coordinates are places, others are one-hot elements in every second cloud
        and zero in the rest.
        """
        numbers = np.asarray(jr.randint(key, (4,), 0, 2**30))
        rng = np.random.default_rng(numbers.tolist())
        n, k = self.size, self.features
        space = min(3, k)
        clouds = np.zeros((count, *self.shape))
        for number, cloud in enumerate(clouds):
            size = int(rng.integers(self.smallest, n + 1))
            cloud[:size, :space] = _grown(rng, size, space)
            cloud[:size, : self.centred] -= cloud[:size, : self.centred].mean(axis=0)
            if number % 2 and k > space:
                share = np.resize(_ELEMENTS, k - space)
                kinds = rng.choice(k - space, size=size, p=share / share.sum())
                cloud[np.arange(size), space + kinds] = 1
            if self.is_varying:
                cloud[:size, -1] = 1
        return clouds

    def __str__(self) -> str:
        number = f"{self.smallest} to {self.size}" if self.is_varying else str(self.size)
        centred = f", {self.centred} centred" if self.centred else ""
        return f"PointCloud({number}, {self.features}{centred})"


def _no_presence(manifold, x):
    """Zero in the column that says which rows are points: it does not move."""
    return (jnp.arange(x.shape[1]) < manifold.features).astype(x.dtype)


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
