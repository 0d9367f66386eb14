r"""A mixture of Gaussians with full covariances in a chart, and how heat spreads it.

In the chart the law of the data is q = sum_k w_k N(m_k, C_k), with weights for each label; in the
Riemannian volume its density is q over the volume of the chart, and so is its score,

    grad log p = grad log q - grad log volume.

Heat adds noise of covariance 2 t G_k, where G_k is the inverse metric at the mean of a part, and
negative curvature drives it apart: on a symmetric space the mean square of the coordinates z obeys

    d/dt E |z|^2 = 2 d - (2/3) E Ric(z, z) + ...,

so that with C_k = A diag(v) A^T, G_k = A A^T and kappa = -(2/3) R / d, R the scalar curvature,

    m_k(t) = e^(kappa t) m_k,
    C_k(t) = A diag(e^(kappa t) v + (2 / kappa) (e^(kappa t) - 1)) A^T.

At the origin this is the law of the heat kernel to first order in the curvature: it has the
precision 1/2t + (volume term)/2 of D^(-1/2) G_t.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ...core.types import Key, Point, Scalar
from ...heat.kernel import AbstractHeatKernel
from ...manifolds import AbstractManifold
from ...store.stored import stored
from ..prior import AbstractPrior
from .base import AbstractChartLaw, spread
from .em import Parts

# The logarithm of a weight that does not count, finite so that derivatives are.
_NOTHING = -1e4
# Parts of a smaller share of the weight do not count in the smallest and largest variance.
_TAIL = 0.1


@stored("GaussianParts")
class GaussianParts(AbstractChartLaw):
    """Parts with weights for each label, means, and covariances A diag(v) A^T."""

    log_weights: Float[Array, "l k"]
    means: Float[Array, "k d"]
    axes: Float[Array, "k d d"]
    """The matrices A."""
    inverses: Float[Array, "k d d"]
    """Their inverses."""
    log_volumes: Float[Array, " k"]
    """The logarithms of their determinants."""
    variances: Float[Array, "k d"]
    growth: float = eqx.field(static=True, default=0.0)
    """The rate kappa at which curvature drives noise apart."""

    def count(self) -> int:
        """Without those that fill up."""
        return int(np.sum(np.max(np.asarray(self.log_weights), axis=0) > _NOTHING))

    def filled(self, count: int) -> "GaussianParts":
        """The same law with so many parts, some of which do not count."""
        rows = np.minimum(np.arange(count), len(self.means) - 1)
        log_weights = jnp.where(
            np.arange(count) < len(self.means), self.log_weights[:, rows], _NOTHING
        )
        return GaussianParts(
            log_weights,
            self.means[rows],
            self.axes[rows],
            self.inverses[rows],
            self.log_volumes[rows],
            self.variances[rows],
            self.growth,
        )

    def has_volume(self) -> bool:
        """It is the law of the places; that of points has a volume term."""
        return True

    def widths(self, features: Float[Array, "n c"]) -> tuple[float, float] | None:
        """A small and a large variance; parts of a small share with extreme ones are left out."""
        shares = np.exp(np.asarray(self.log_weights, np.float64)).mean(axis=0)
        lowest, highest = np.min(self.variances, axis=1), np.max(self.variances, axis=1)
        return _quantile(lowest, shares, _TAIL), _quantile(highest, shares, 1 - _TAIL)

    def smallest(self, places: Float[Array, "n d"]) -> float:
        """The usual deviation: a guess tells of directions in which the data are narrow."""
        return float(jnp.sqrt(jnp.mean(jnp.var(places, axis=0))))

    def prior(self, kernel: AbstractHeatKernel, t1: float, key: Key) -> AbstractPrior | None:
        """The law itself, at the last time."""
        return PartsPrior(kernel.manifold, self, float(t1))

    def score(
        self, z: Float[Array, " d"], t: Scalar, features: Float[Array, " c"]
    ) -> Float[Array, " d"]:
        totals, inside, values = self._log_parts(z, t, features)
        pull = jax.nn.softmax(values)[:, None] * inside / totals
        return -jnp.einsum("kij,ki->j", self.inverses, pull)

    def log_prob(
        self, z: Float[Array, " d"], noise: Scalar, features: Float[Array, " c"]
    ) -> Scalar:
        return logsumexp(self._log_parts(z, noise / 2, features)[2])

    def sample(self, key: Key, noise: Scalar, features: Float[Array, " c"]) -> Float[Array, " d"]:
        key_part, key_noise = jr.split(key)
        part = jr.categorical(key_part, self._weights_for(features))
        normal = jr.normal(key_noise, self.means.shape[1:], self.means.dtype)
        deviations = jnp.sqrt(self._totals(noise / 2)[part])
        return self._means(noise / 2)[part] + self.axes[part] @ (deviations * normal)

    def _weights_for(self, features):
        """Of the label that is one-hot in the features."""
        labels = len(self.log_weights)
        return self.log_weights[jnp.argmax(features[:labels]) if labels > 1 else 0]

    def _means(self, t):
        """The means at time t: curvature drives them out, as G_k falls away from the origin."""
        return jnp.exp(self.growth * t) * self.means

    def _totals(self, t):
        """The variances (k, d) at time t."""
        return spread(self.variances, t, self.growth)

    def _log_parts(self, z, t, features):
        """Variances and coordinates (k, d) in the axes of each part, and log-densities (k)."""
        totals = self._totals(t)
        inside = jnp.einsum("kij,kj->ki", self.inverses, z - self._means(t))
        terms = inside**2 / totals + jnp.log(2 * jnp.pi * totals)
        values = self._weights_for(features) - jnp.sum(terms, axis=1) / 2 - self.log_volumes
        return totals, inside, values


def _quantile(values, shares, level):
    """A quantile of values that count differently."""
    order = np.argsort(values)
    reached = np.cumsum(shares[order]) / np.sum(shares)
    return float(values[order][np.searchsorted(reached, level)])


def parts_law(
    parts: Parts, noise: Float[np.ndarray, "k d d"] | None = None, growth: float = 0.0
) -> GaussianParts:
    """A mixture as a law in the chart.

    Args:
        parts: of the mixture.
        noise: the covariance of noise at each mean, over 2t; in flat space the identity.
        growth: the rate at which curvature drives noise apart.
    """
    size = parts.means.shape[1]
    factors = np.linalg.cholesky(np.eye(size) if noise is None else noise)
    white = np.linalg.inv(factors)
    inside = white @ parts.covariances @ np.swapaxes(white, -1, -2)
    variances, vectors = np.linalg.eigh(inside)
    volumes = np.log(np.diagonal(factors, axis1=-2, axis2=-1)).sum(axis=-1)
    cast = lambda array: jnp.asarray(array, jnp.result_type(float))
    return GaussianParts(
        cast(parts.log_weights),
        cast(parts.means),
        cast(factors @ vectors),
        cast(np.swapaxes(vectors, 1, 2) @ white),
        cast(np.broadcast_to(volumes, len(parts.means))),
        cast(variances),
        growth,
    )


def noise_at(
    manifold: AbstractManifold, means: Float[np.ndarray, "k d"]
) -> Float[np.ndarray, "k d d"]:
    """The inverse metric of the chart at some places: the covariance of noise there, over 2t."""
    return np.asarray(_noise_at(manifold, jnp.asarray(means, jnp.result_type(float))), np.float64)


@eqx.filter_jit
def _noise_at(manifold, means):
    def one(mean):
        x = manifold.decode(mean)
        moved = jax.vmap(lambda e: jax.jvp(manifold.embedding, (x,), (e,))[1])(manifold.frame(x))
        return moved.T @ moved

    return jax.vmap(one)(means)


@stored("PartsPrior")
class PartsPrior(AbstractPrior):
    """The law of the parts at a time, in the Riemannian volume."""

    manifold: AbstractManifold
    parts: GaussianParts
    t: float = eqx.field(static=True)

    def sample(self, key: Key, features: Float[Array, " c"]) -> Point:
        """A draw."""
        place = self.parts.sample(key, jnp.asarray(2 * self.t, self.parts.means.dtype), features)
        return self.manifold.decode(place)

    def log_prob(self, x: Point, features: Float[Array, " c"]) -> Scalar:
        """The log-density."""
        place, noise = self.manifold.embedding(x), jnp.asarray(2 * self.t, x.dtype)
        return self.parts.log_prob(place, noise, features) - self.manifold.log_chart_volume(x)
