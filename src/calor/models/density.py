r"""Kernel density estimates with the heat kernel of the manifold: the opponent to beat.

    p(x) = sum_k w_k (1/n) sum_i p(t_ki, x | x_i) + w_0 uniform

Either one bandwidth t, chosen on validation data, and a small uniform part; or several that adapt,
t_ki = (c_k d_i)^2 / 2 with d_i the distance of x_i to its k-th neighbour, mixed by expectation
maximization on validation data.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float
from scipy.spatial import KDTree

from ..core.checks import positive_integer, random_key
from ..core.types import Key, Points
from ..data.points import checked_points
from ..data.prepare import prepare
from ..heat.kernel import AbstractHeatKernel
from ..manifolds.means import frechet_mean
from .model import in_batches, mixture_weights
from .prior import AbstractPrior, KernelPrior, Uniform

# Neighbours and fractions of their distance that adaptive bandwidths are made from.
_NEIGHBOURS, _FRACTIONS = (2, 5, 15), (0.25, 0.5, 1.0)
_BANDWIDTHS = 24
_BROAD = 0.02  # weight of the broad part beside a single bandwidth
_POINTS = 1024  # validation points that a bandwidth is chosen on
_SMALLEST = 1e-8  # bandwidth


class KernelDensity(eqx.Module):
    """A kernel density estimate; `calor.fit_density` makes it."""

    kernel: AbstractHeatKernel
    points: Float[Array, "n ..."]
    bandwidths: Float[Array, "k n"]
    broad: AbstractPrior
    weights: tuple[float, ...] = eqx.field(static=True)
    """Of the rows of bandwidths, and of the broad part."""

    def log_prob(self, x: Any) -> Float[Array, " n"]:
        """The log-density at points, in the Riemannian volume."""
        x = checked_points(self.kernel.manifold, x, "log_prob", "x")
        parts = _parts(self.kernel, self.points, self.bandwidths, self.broad, x)
        return logsumexp(parts + jnp.log(jnp.asarray(self.weights)), axis=1)

    def sample(self, n: int, *, key: Key) -> Float[Array, "n ..."]:
        """Draw points."""
        n = positive_integer(n, "n", "sample")
        key_row, key_point, key_draw = jr.split(random_key(key, "sample"), 3)
        rows = jr.choice(key_row, len(self.weights), (n,), p=jnp.asarray(self.weights))
        chosen = jr.randint(key_point, (n,), 0, len(self.points))
        padded = jnp.concatenate([self.bandwidths, self.bandwidths[:1]])
        return in_batches(
            _Draw(self.kernel, self.broad),
            padded[rows, chosen],
            self.points[chosen],
            rows == len(self.bandwidths),
            jr.split(key_draw, n),
        )


class _Draw(eqx.Module):
    kernel: AbstractHeatKernel
    broad: AbstractPrior

    def __call__(self, t, x0, is_broad, key):
        key_near, key_far = jr.split(key)
        near, far = self.kernel.draw(t, x0, key_near), self.broad.sample(key_far, jnp.zeros(0))
        return jnp.where(is_broad, far, near)


class _Mean(eqx.Module):
    """The log of the mean of kernels around all points, at one place."""

    kernel: AbstractHeatKernel

    def __call__(self, points, times, x):
        values = jax.vmap(lambda t, x0: self.kernel.log_prob_at(t, x, x0))(times, points)
        return logsumexp(values) - jnp.log(len(points))


def _parts(kernel, points, bandwidths, broad, x):
    """log-densities (m, k + 1) of every row of bandwidths, and of the broad part."""
    size = max(1, min(256, 2_000_000 // len(points)))  # pairs in memory at a time
    run = _Mean(kernel)
    rows = [in_batches(run, x, shared=(points, times), size=size) for times in bandwidths]
    rows.append(in_batches(broad.log_prob, x, jnp.zeros((len(x), 0), x.dtype)))
    return jnp.stack(rows, axis=1)


def fit_density(
    kernel: AbstractHeatKernel,
    data: Points,
    *,
    key: Key,
    validation: float | Any = 0.1,
    adaptive: bool = False,
    t_min: float | None = None,
) -> KernelDensity:
    """Fit a kernel density estimate.

    Args:
        kernel: the heat kernel that is put around every data point.
        data: points along the first axis.
        key: a random key, to put validation data aside.
        validation: the fraction to put aside, or points.
        adaptive: several bandwidths that adapt to the distance of neighbours, instead of one.
        t_min: the smallest bandwidth; by default it follows from the distance of neighbours.
    """
    if not isinstance(kernel, AbstractHeatKernel):
        raise TypeError(f"fit_density: kernel must be a heat kernel, got {kernel!r:.80}.")
    manifold = kernel.manifold
    key = random_key(key, "fit_density")
    prepared = prepare(manifold, data, None, validation, key, "fit_density", centre=False)
    points, held = prepared.points, prepared.held_out
    places = np.asarray(jax.vmap(manifold.embedding)(points), np.float64)
    broad = Uniform(manifold)
    if not manifold.is_compact():
        variance = float(np.mean(np.sum((places - places.mean(0)) ** 2, axis=1)) / manifold.dim)
        broad = KernelPrior(kernel, variance, frechet_mean(manifold, points)[None])
    if adaptive:
        bandwidths = jnp.maximum(_adaptive(places), t_min or _SMALLEST).astype(points.dtype)
        parts = np.asarray(_parts(kernel, points, bandwidths, broad, held), np.float64)
        weights = tuple(mixture_weights(parts).tolist())
        return KernelDensity(kernel, points, bandwidths, broad, weights)
    few = held[jr.permutation(key, len(held))[:_POINTS]]
    weights = (1 - _BROAD, _BROAD)

    def value(t):
        density = KernelDensity(
            kernel, points, jnp.full((1, len(points)), t, points.dtype), broad, weights
        )
        return float(jnp.mean(density.log_prob(few))), density

    found = [value(t) for t in _candidates(places, t_min)]
    return max(found, key=lambda pair: pair[0])[1]


def _candidates(places, t_min):
    """Bandwidths from the distance of neighbours to the spread of the data."""
    smallest = t_min
    if t_min is None:
        smallest = max(_SMALLEST, float(np.quantile(_neighbours(places, 1), 0.1)) ** 2 / 8)
    largest = float(np.mean(np.sum((places - places.mean(0)) ** 2, axis=1))) / 4
    return np.geomspace(smallest, max(largest, 2 * smallest), _BANDWIDTHS)


def _neighbours(places, number):
    """The distance of each point to its neighbour of a given number among different points."""
    unique = np.unique(places, axis=0)
    number = min(number, len(unique) - 1)
    if number < 1:
        return np.full(len(places), 1e-3)
    return KDTree(unique).query(places, number + 1)[0][:, -1]


def _adaptive(places):
    rows = [c * _neighbours(places, k) for k in _NEIGHBOURS for c in _FRACTIONS]
    return jnp.asarray(np.stack(rows) ** 2 / 2)
