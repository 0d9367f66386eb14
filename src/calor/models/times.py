r"""The times of a model, and the lengths that its network resolves.

They follow from the data unless they are given.  Noise at the first time t_min is as fine as the
data are dense, noise at the last time t1 is as wide as they spread, or as the manifold is.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial import KDTree

from ..core.types import Key, Scalar
from ..data.points import embedded
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import AbstractManifold


class Scales(NamedTuple):
    """The smallest and the last time, and the lengths that a network resolves."""

    t_min: float
    t1: float
    finest: float
    coarsest: float
    t1_asked: float = 0.0
    """The last time that the spread of the data asks for, if it was not given."""


def find_scales(
    kernel: AbstractHeatKernel,
    points: Float[Array, "n ..."],
    *,
    t_min: float | None = None,
    t1: float | None = None,
    finest: Callable[[AbstractManifold, Float[Array, "n ..."]], float] | None = None,
    widths: tuple[float, float] | None = None,
) -> Scales:
    """Take the times that are given, and find the rest from the data and the kernel.

    Args:
        kernel: makes the noise.
        points: the data.
        t_min: the smallest time, if it is given.
        t1: the last time, if it is given.
        finest: the smallest time for points of a manifold, `time_of_neighbours` by default.
        widths: a small and a large variance of the data given their conditions, where they look
            Gaussian.
    """
    spread = _spread(kernel.manifold, points)
    asked = 0.0
    if widths is not None:
        low, high = _times_of_widths(kernel.manifold, *widths, t1)
        low = low if t_min is None else t_min
    else:
        low = (finest or time_of_neighbours)(kernel.manifold, points) if t_min is None else t_min
        high = t1
        if high is None:
            asked = _time_of_spread(kernel, spread, low)
            high = min(asked, kernel.latest())
            low = min(low, high / 100) if t_min is None else low
    if not 0 < low < high < math.inf:
        raise ValueError(f"times must satisfy 0 < t_min < t1, got t_min = {low:g}, t1 = {high:g}.")
    shortest = 2.5 * math.sqrt(2 * low)
    return Scales(float(low), float(high), shortest, max(spread, 2 * shortest), float(asked))


def _spread(manifold: AbstractManifold, points: Float[Array, "n ..."]) -> float:
    """The root mean square distance from the mean, of embedded points."""
    places = np.asarray(embedded(manifold, points), np.float64)
    return float(np.sqrt(np.mean(np.sum((places - places.mean(0)) ** 2, axis=1))))


def _times_of_widths(manifold, lowest, highest, t1) -> tuple[float, float]:
    """The first and the last time for data that look Gaussian with these variances.

    Noise at the last time has twice the largest variance, and a tenth of the smallest at the first;
    both are rounded to 1, 2 or 5 times a power of ten, unless they are bounded, so that fits to
    parts of the same data share what is compiled.
    """
    last = min(_round(highest), manifold.curved_from()) if t1 is None else t1
    return min(_round(lowest / 20), last / 100), last


def _time_of_spread(kernel: AbstractHeatKernel, spread: float, t_min: float) -> float:
    """The last time: noise is as wide as the data spread, or as the manifold is."""
    gap, manifold = kernel.spectral_gap(), kernel.manifold
    if gap > 0:
        return 6 / gap
    t1 = max(4 * spread**2 / manifold.dim, 20 * t_min)
    return max(t1, 3 * spread**2) if manifold.is_compact() else t1


def time_of_neighbours(manifold: AbstractManifold, points: Float[Array, "n ..."]) -> float:
    """The smallest time: noise is as fine as the data are dense."""
    places = np.asarray(embedded(manifold, points), np.float64)
    # Noise of some thousand units in the last place, so that its direction is well resolved.
    floor = (4000 * float(jnp.finfo(points.dtype).eps) * float(np.max(np.abs(places)))) ** 2
    sample = np.random.default_rng(0).permutation(places)[:20000]
    near = KDTree(places).query(sample, 2)[0][:, 1]  # zero where a point is repeated
    return max(floor / 2, float(np.quantile(near, 0.25)) ** 2 / (2 * manifold.dim), 1e-30)


def _round(value: float) -> float:
    """The nearest of 1, 2 and 5 times powers of ten, on a logarithmic scale."""
    if not value > 0:
        return 0.0
    power = math.floor(math.log10(value))
    steps = [float(f"{digits}e{power}") for digits in (1, 2, 5, 10)]
    return min(steps, key=lambda step: abs(math.log(step / value)))


class Times(eqx.Module):
    """Times between t_min and t1: t^power is uniform, or log t if `power` is zero.

    Log-uniform times see every scale of the data equally often; `benchmarks/fit.py` compares.
    """

    t_min: Scalar = eqx.field(converter=jnp.asarray)
    t1: Scalar = eqx.field(converter=jnp.asarray)
    power: float = eqx.field(static=True, default=0.0)

    def draw(self, key: Key, count: int) -> Float[Array, " n"]:
        """Stratified: one time in each of `count` equally likely intervals."""
        u = (jnp.arange(count) + jr.uniform(key, (count,))) / count
        if self.power == 0:
            return self.t_min * jnp.exp(u * jnp.log(self.t1 / self.t_min))
        low, high = self.t_min**self.power, self.t1**self.power
        return (low + u * (high - low)) ** (1 / self.power)

    def weight(self, t: Scalar) -> Scalar:
        """1 / density, up to a constant."""
        return t ** (1 - self.power)
