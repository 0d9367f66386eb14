r"""Where generation starts: the law of the noised data at the last time.

On a compact manifold it is close to uniform.  Otherwise it is the mean of the heat kernels around
the data, and the prior keeps a few centres: one, the Frechet mean of the data, as in the paper, or
many of the data points themselves, which makes it exact at any last time.  Where the manifold has a
chart, `guesses.gaussian` has a prior that knows the shape of the data.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ..core.compiled import quickly
from ..core.doors import warn
from ..core.types import Key, Point, Scalar
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import AbstractManifold
from ..manifolds.means import frechet_mean
from ..store.stored import stored
from .times import Scales


class PriorWarning(UserWarning):
    """The law of the noised data at the last time is not close to the prior."""


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


@stored("Uniform")
class Uniform(AbstractPrior):
    """The uniform law of a compact manifold."""

    manifold: AbstractManifold
    found_volume: Float[Array, ""] | None = None
    """The logarithm of the volume, if it is known better than the manifold knows it."""

    def sample(self, key: Key, features: Float[Array, " c"]) -> Point:
        """A uniform point."""
        return self.manifold.draw_point(key)

    def log_prob(self, x: Point, features: Float[Array, " c"]) -> Scalar:
        """Minus the logarithm of the volume."""
        volume = self.found_volume
        if volume is None:
            volume = self.manifold.log_volume()
        return -volume.astype(x.dtype)


@stored("KernelPrior")
class KernelPrior(AbstractPrior):
    """The heat kernel at time t, around centres that are equally likely."""

    kernel: AbstractHeatKernel
    t: Scalar = eqx.field(converter=jnp.asarray)
    centres: Float[Array, "m ..."]

    def sample(self, key: Key, features: Float[Array, " c"]) -> Point:
        """A draw around a random centre."""
        key_centre, key_noise = jr.split(key)
        centre = self.centres[jr.randint(key_centre, (), 0, len(self.centres))]
        return self.kernel.draw(self.t.astype(centre.dtype), centre, key_noise)

    def log_prob(self, x: Point, features: Float[Array, " c"]) -> Scalar:
        """The logarithm of the mean of the kernels."""
        t = self.t.astype(x.dtype)
        values = jax.vmap(lambda centre: self.kernel.log_prob_at(t, x, centre))(self.centres)
        return logsumexp(values) - jnp.log(len(self.centres))


@quickly
def distance_from_uniform(
    kernel: AbstractHeatKernel, t: Scalar | float, data: Float[Array, "n ..."], key: Key
) -> Scalar:
    """The mean over uniform points of |vol p_t - 1|, p_t the law of the noised data."""
    manifold = kernel.manifold
    key_points, key_data = jr.split(key)
    points = jax.vmap(manifold.draw_point)(jr.split(key_points, 128)).astype(data.dtype)
    time = jnp.asarray(t, data.dtype)
    chosen = data[jr.randint(key_data, (min(256, len(data)),), 0, len(data))]

    def density(x: Point) -> Scalar:
        values = jax.vmap(lambda x0: kernel.log_prob_at(time, x, x0))(chosen)
        return logsumexp(values) - jnp.log(len(values)) + manifold.log_volume()

    return jnp.mean(jnp.abs(jnp.expm1(jax.vmap(density)(points))))


def find_prior(
    kernel: AbstractHeatKernel,
    points: Float[Array, "n ..."],
    scales: Scales,
    centres: int,
    key: Key,
) -> AbstractPrior:
    """The law that generation starts from; warns if the noised data are far from it.

    Args:
        kernel: noises the data.
        points: the data.
        scales: with the last time.
        centres: on a manifold that is not compact; one is the Frechet mean of the data.
        key: a random key.
    """
    manifold, t1 = kernel.manifold, scales.t1
    if manifold.is_compact():
        # By default the slowest mode has fallen to e^-6, and nobody needs to look.
        is_late = kernel.spectral_gap() * t1 > 5.99
        distance = 0.0 if is_late else float(distance_from_uniform(kernel, t1, points, key))
        if not distance < 0.05:
            warn(
                f"at the last time t1 = {t1:g} the noised data are still {distance:.2g} "
                "away from the uniform law (mean of |vol p - 1|); raise t1.",
                PriorWarning,
            )
        return Uniform(manifold, kernel.found_volume())
    if centres > 1:
        chosen = jr.choice(key, len(points), (min(centres, len(points)),), replace=False)
        return KernelPrior(kernel, t1, points[chosen])
    if t1 < scales.t1_asked:
        warn(
            f"data spread this wide need a last time t1 = {scales.t1_asked:.2g} to look like one "
            f"kernel around their mean, but {kernel} is accurate up to t1 = {t1:.2g} only, which "
            "is used; start from more centres, as in centres=64.",
            PriorWarning,
        )
    return KernelPrior(kernel, t1, frechet_mean(manifold, points)[None])
