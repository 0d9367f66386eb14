"""Kernels of several widths around points: their sums at a place, and draws from them."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from ..core.types import Key, Point, Scalar
from ..heat.kernel import AbstractHeatKernel
from .wrapped import draw_wrapped, log_wrapped

# How many kernels, and how many places, are looked at in one go.
_BLOCK, _PLACES = 512, 128


def in_rows(
    function: Any, *arrays: Array | np.ndarray, shared: tuple[Any, ...] = (), size: int = 512
) -> Any:
    """As `in_batches`, with everything that is not the function itself done by NumPy.

    So many arrays of different lengths share what is compiled.
    """
    tables = [np.asarray(array) for array in arrays]
    count = len(tables[0])
    size = min(size, 1 << max(count - 1, 0).bit_length())
    results = []
    for start in range(0, count, size):
        rows = np.minimum(np.arange(start, start + size), count - 1)
        found = _each(function, shared, tuple(table[rows] for table in tables))
        results.append(jax.tree.map(np.asarray, found))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *results)


@eqx.filter_jit
def _each(function, shared, arrays):
    return jax.vmap(lambda *one: function(*shared, *one))(*arrays)


def _log_sums(around, widths, x, features):
    return around.log_sums(widths, x, features)


class Around(eqx.Module):
    """Rows of kernels around points: k of bandwidths, and g of covariances."""

    kernel: AbstractHeatKernel
    points: Float[Array, "n ..."]
    bandwidths: Float[Array, "k n"]
    whitenings: Float[Array, "g n d d"]
    rows: Float[Array, "n c"]
    """The features of the points."""
    counts: Float[Array, " n"]
    """How much each point counts."""
    wrapped: bool = eqx.field(static=True)
    """Whether the kernel of a bandwidth t is the wrapped Gaussian of variance 2t."""

    def parts(
        self,
        x: Float[Array | np.ndarray, "m ..."],
        features: Float[Array | np.ndarray, "m c"],
        widths: Float[Array, " h"],
    ) -> Float[np.ndarray, "h m k"]:
        """The log-density of every row at places, for each width in features."""
        total, found = np.full((), -np.inf), np.full((), -np.inf)
        for block in self.blocks():
            sums = in_rows(_log_sums, x, features, shared=(block, widths), size=_PLACES)
            shares, values = (part.astype(np.float64) for part in sums)
            total, found = np.logaddexp(total, shares), np.logaddexp(found, values)
        return np.moveaxis(found - total[..., None], 1, 0)

    def blocks(self) -> "list[Around]":
        """The same kernels a fixed number at a time, so that everything is compiled once.

        The last block is filled up with points that do not count.
        """
        count = len(self.points)
        size = min(_BLOCK, 1 << (count - 1).bit_length())
        numbers = np.arange(-(-count // size) * size).reshape(-1, size)
        known, inside = numbers < count, np.minimum(numbers, count - 1)
        whole = jax.tree.map(np.asarray, self)

        def block(rows, there):
            return dataclasses.replace(
                whole,
                points=whole.points[rows],
                bandwidths=whole.bandwidths[:, rows],
                whitenings=whole.whitenings[:, rows],
                rows=whole.rows[rows],
                counts=np.where(there, whole.counts[rows], 0).astype(whole.counts.dtype),
            )

        return [block(*some) for some in zip(inside, known, strict=True)]

    def log_sums(
        self, widths: Float[Array, " h"], x: Point, features: Float[Array, " c"]
    ) -> tuple[Float[Array, " h"], Float[Array, "h k"]]:
        """The logs of the sum of shares, and of shares times kernels, for every width."""

        def kernels(x0, times, whitenings):
            if self.wrapped:
                return log_wrapped(self.kernel.manifold, x, x0, times, whitenings)
            return jax.vmap(lambda t: self.kernel.log_prob_at(t, x, x0))(times)

        values = jax.vmap(kernels, (0, 1, 1))(self.points, self.bandwidths, self.whitenings)
        shares = jax.vmap(lambda width: self.log_shares(width, features))(widths)
        return logsumexp(shares, axis=1), logsumexp(shares[:, :, None] + values, axis=1)

    def log_shares(self, width: Scalar, features: Float[Array, " c"]) -> Float[Array, " n"]:
        """log a_i(c) of every point, up to a constant."""
        squares = jnp.sum((self.rows - features) ** 2, axis=1)
        return jnp.log(self.counts) - squares / (2 * width**2)

    def draw(
        self, width: Scalar, row: Int[Array, ""], features: Float[Array, " c"], key: Key
    ) -> Point:
        """A draw from one row; there is any number of rows that do not exist."""
        key_point, key_near = jr.split(key)
        chosen = jr.categorical(key_point, self.log_shares(width, features))
        x0, times = self.points[chosen], self.bandwidths[:, chosen]
        if not self.wrapped:
            return self.kernel.draw(times[jnp.minimum(row, len(times) - 1)], x0, key_near)
        manifold = self.kernel.manifold
        round_ones = jnp.eye(manifold.dim) / jnp.sqrt(2 * times)[:, None, None]
        known = jnp.concatenate([round_ones, self.whitenings[:, chosen]])
        return draw_wrapped(manifold, x0, known[jnp.minimum(row, len(known) - 1)], key_near)
