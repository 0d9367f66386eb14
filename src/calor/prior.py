r"""Where generation starts: the law of the noised data at the last time.

On a compact manifold it is close to uniform.  Otherwise it is the mean of the heat kernels around
the data, and the prior keeps a few centres: one, the Frechet mean of the data, as in the paper, or
many of the data points themselves, which makes it exact at any last time.  Where the manifold has a
chart, `calor.gaussian` has a prior that knows the shape of the data.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ._numerics import safe_sqrt
from ._types import Key, Point, Points, Scalar
from .heat import AbstractHeatKernel
from .manifolds import AbstractManifold


class AbstractPrior(eqx.Module):
    """A law on a manifold that can be drawn from and has a density."""

    @abstractmethod
    def sample(self, key: Key, features: Float[Array, " c"]) -> Point:
        """A draw, given what a condition became."""

    @abstractmethod
    def log_prob(self, x: Point, features: Float[Array, " c"]) -> Scalar:
        """log density in the Riemannian volume."""

    def partner(self, x: Point, key: Key, features: Float[Array, " c"]) -> Point:
        """A draw that a geodesic can join with x: any, unless the manifold has several parts."""
        return self.sample(key, features)


class Uniform(AbstractPrior):
    """The uniform law of a compact manifold."""

    manifold: AbstractManifold
    found_volume: Float[Array, ""] | None = None
    """The logarithm of the volume, if it is known better than the manifold knows it."""

    def sample(self, key, features):
        """A uniform point."""
        return self.manifold._random_point(key)

    def log_prob(self, x, features):
        """Minus the logarithm of the volume."""
        volume = self.found_volume
        if volume is None:
            volume = self.manifold.log_volume()  # pyright: ignore
        return -volume.astype(x.dtype)


class KernelPrior(AbstractPrior):
    """The heat kernel at time t, around centres that are equally likely."""

    kernel: AbstractHeatKernel
    t: float = eqx.field(static=True)
    centres: Float[Array, "m ..."]

    def sample(self, key, features):
        """A draw around a random centre."""
        key_centre, key_noise = jr.split(key)
        centre = self.centres[jr.randint(key_centre, (), 0, len(self.centres))]
        return self.kernel._sample(jnp.asarray(self.t, centre.dtype), centre, key_noise)

    def log_prob(self, x, features):
        """The logarithm of the mean of the kernels."""
        t = jnp.asarray(self.t, x.dtype)
        values = jax.vmap(lambda centre: self.kernel._log_prob(t, x, centre))(self.centres)
        return logsumexp(values) - jnp.log(len(self.centres))


def is_compact(manifold: AbstractManifold) -> bool:
    """Whether the manifold has a finite volume."""
    if not hasattr(manifold, "log_volume"):
        return False
    try:
        manifold.log_volume()  # pyright: ignore
    except ValueError:  # a product or quotient of what has none
        return False
    return True


def frechet_mean(manifold: AbstractManifold, points: Points) -> Point:
    """The point with the smallest mean squared distance to the points, by gradient descent.

    Args:
        manifold: where the points are.
        points: an array of points along its first axis.
    """
    return _descend(manifold, jnp.asarray(points))


@eqx.filter_jit
def _descend(manifold, points):
    middle = jnp.mean(jax.vmap(manifold.embedding)(points), axis=0)
    gaps = jax.vmap(lambda x: jnp.sum((manifold.embedding(x) - middle) ** 2))(points)
    rounding = jnp.finfo(points.dtype).eps

    def pull(x):
        toward = jax.vmap(lambda y: manifold._log(x, y))(points)
        lengths = jax.vmap(lambda v: safe_sqrt(manifold._inner(x, v, v)))(toward)
        mean = jnp.mean(toward, axis=0)
        return mean, jnp.mean(lengths), safe_sqrt(manifold._inner(x, mean, mean))

    def go_on(state):
        count, _, (_, length, size), before = state
        # Near rounding until nothing is gained any more; how near that is depends on the manifold.
        gains = (size < 0.8 * before) | (size > 1e4 * rounding * (1 + length))
        return (count < 1000) & (size > rounding) & gains

    def step(state):
        count, x, (mean, length, size), _ = state

        def moved(share):
            new = manifold._project(manifold._exp(x, share * mean))
            return new, pull(new)

        # A whole step is right in flat space.  The second derivative of half the squared distance
        # r^2 is at most r coth r < 1 + r on manifolds of curvature -1 and more: a share of
        # 1/(1 + r) is always safe, and takes ten times as many steps.
        whole = moved(jnp.ones_like(length))
        better = whole[1][2] < 0.8 * size
        x, found = jax.lax.cond(better, lambda: whole, lambda: moved(1 / (1 + length)))
        return count + 1, x, found, size

    start = points[jnp.argmin(gaps)]
    begin = 0, start, pull(start), jnp.full((), jnp.inf, points.dtype)
    return jax.lax.while_loop(go_on, step, begin)[1]


def distance_from_uniform(
    kernel: AbstractHeatKernel, t: float, data: Float[Array, "n ..."], key: Key
) -> float:
    """The mean over uniform points of |vol p_t - 1|, p_t the law of the noised data."""
    manifold = kernel.manifold
    key_points, key_data = jr.split(key)
    points = jax.vmap(manifold._random_point)(jr.split(key_points, 128)).astype(data.dtype)
    time = jnp.asarray(t, data.dtype)
    chosen = data[jr.randint(key_data, (min(256, len(data)),), 0, len(data))]

    def density(x):
        values = jax.vmap(lambda x0: kernel._log_prob(time, x, x0))(chosen)
        return logsumexp(values) - jnp.log(len(values)) + manifold.log_volume()  # pyright: ignore

    return float(jnp.mean(jnp.abs(jnp.expm1(jax.jit(jax.vmap(density))(points)))))
