r"""The scales of a model: its first and last time, and the lengths that its network resolves.

They follow from the data unless they are given.  Noise at the first time t_min is as fine as the
data are dense, noise at the last time t1 is as wide as they spread, or as the manifold is.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial import KDTree

from ..core.types import Key, Scalar
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import AbstractManifold, AbstractSymmetricSpace, PointCloud

# The smallest noise of points in a cloud, in units of the distance of neighbours.
_FINEST = 0.02


class Scales(NamedTuple):
    """The smallest and the last time, and the lengths that a network resolves."""

    t_min: float
    t1: float
    finest: float
    coarsest: float
    wanted: float = 0.0
    """The last time that the spread of the data asks for, if it was not given."""


def find_scales(
    manifold: AbstractManifold,
    points: Float[Array, "n ..."],
    t_min: float | None,
    t1: float | None,
    owner: str,
    kernel: AbstractHeatKernel | None = None,
    widths: tuple[float, float] | None = None,
) -> Scales:
    """Take the times that are given, and find the rest from the data and the kernel.

    Where the data look Gaussian given their conditions, with the widths that are given, noise at
    the last time has twice the largest variance of that law, and a tenth of the smallest at the
    first; both times are rounded to 1, 2 or 5 times a power of ten, unless they are bounded, so
    that fits to parts of the same data share what is compiled.
    """
    wanted = 0.0
    if widths is not None:
        lowest, highest = widths
        is_symmetric = isinstance(manifold, AbstractSymmetricSpace)
        longest = manifold.curved_from() if is_symmetric else math.inf
        t1 = min(_round(highest), longest) if t1 is None else t1
        t_min = min(_round(lowest / 20), t1 / 100) if t_min is None else t_min
    places = np.asarray(jax.vmap(manifold.embedding)(points), np.float64)
    spread = float(np.sqrt(np.mean(np.sum((places - places.mean(0)) ** 2, axis=1))))
    given = t_min
    if t_min is None and isinstance(manifold, PointCloud):
        t_min = (_FINEST * point_scale(manifold, points)) ** 2 / 2
    if t_min is None:
        # Noise of some thousand units in the last place, so that its direction is well resolved.
        floor = (4000 * float(jnp.finfo(points.dtype).eps) * float(np.max(np.abs(places)))) ** 2
        sample = np.random.default_rng(0).permutation(places)[:20000]
        near = KDTree(places).query(sample, 2)[0][:, 1]  # zero where a point is repeated
        t_min = max(floor / 2, float(np.quantile(near, 0.25)) ** 2 / (2 * manifold.dim), 1e-30)
    if t1 is None:
        gap = manifold.spectral_gap() if kernel is None else kernel.spectral_gap()
        t1 = 6 / gap if gap > 0 else max(4 * spread**2 / manifold.dim, 20 * t_min)
        if gap == 0 and manifold.is_compact():
            t1 = max(t1, 3 * spread**2)
        wanted = t1
        if kernel is not None:
            t1 = min(t1, kernel.latest())
        t_min = min(t_min, t1 / 100) if given is None else t_min
    if not 0 < t_min < t1 < math.inf:
        raise ValueError(
            f"{owner}: times must satisfy 0 < t_min < t1, got t_min = {t_min:g}, t1 = {t1:g}."
        )
    finest = 2.5 * math.sqrt(2 * t_min)
    return Scales(float(t_min), float(t1), finest, max(spread, 2 * finest), float(wanted))


def point_scale(manifold: PointCloud, clouds: Float[Array, "m n ..."]) -> float:
    """The median distance of a point to the nearest one of its cloud."""

    @jax.jit
    @jax.vmap
    def nearest(x):
        squared = manifold.squared_distances(x, x) + 1e30 * jnp.eye(manifold.size)
        return jnp.min(squared, axis=1), manifold.present(x)

    squared, present = map(np.asarray, nearest(clouds[:2000]))
    return float(np.sqrt(np.median(squared[present > 0])))


def _round(value):
    """The nearest of 1, 2 and 5 times powers of ten, on a logarithmic scale."""
    if not value > 0:
        return 0.0
    power = math.floor(math.log10(value))
    steps = [float(f"{digits}e{power}") for digits in (1, 2, 5, 10)]
    return min(steps, key=lambda step: abs(math.log(step / value)))


class TimeLaw(eqx.Module):
    """Times between t_min and t1: t^power is uniform, or log t if `power` is zero.

    Log-uniform times see every scale of the data equally often; `benchmarks/fit.py` compares.
    """

    t_min: float = eqx.field(static=True)
    t1: float = eqx.field(static=True)
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
