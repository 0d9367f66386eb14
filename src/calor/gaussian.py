r"""Gaussian laws of places in a flat space, given conditions, and how heat spreads them.

Given a condition c, places are about Gaussian around the mean m that a regression predicts,

    z ~ N(m, Sigma),     a time t later   N(m, Sigma + 2 t I),

whose score (Sigma + 2t)^-1 (m - z) is known.  It is a first guess of the score of the data, which a
network corrects, and at the last time it is where generation starts.

A label has a covariance Sigma of its own.  Where conditions are numbers the directions v_k are
common to all, and a second regression predicts how wide the law is along each,

    Sigma = sum_k sigma_k^2 f_k(c) v_k v_k^T.

What regressions predict is told: the last numbers of the features that come with a point are m or,
if there are factors, m and log f.  Without conditions the mean is zero, which is what centring at
the Frechet mean of the data does.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ._types import Key, Scalar
from .heat import AbstractHeatKernel
from .manifolds import AbstractManifold
from .prior import AbstractPrior

# Draws that tell how much wider than in flat space noise is.
_DRAWS = 512


class Gaussian(eqx.Module):
    """One covariance, or one for each label, in the form V diag(variances) V^T."""

    vectors: Float[Array, "k d d"]
    variances: Float[Array, "k d"]
    scaled: bool = eqx.field(static=True, default=False)
    """Whether features end with the logarithms of factors of the variances."""

    def _part(self, features):
        """The mean and the covariance that features tell."""
        count, size = self.variances.shape
        if self.scaled:
            told, factors = features[:-size], jnp.exp(features[-size:])
            return told[-size:], self.vectors[0], self.variances[0] * factors
        mean = features[-size:] if len(features) else jnp.zeros(size, self.variances.dtype)
        if count == 1:
            return mean, self.vectors[0], self.variances[0]
        label = features[:count]  # one-hot
        chosen = jnp.argmax(label)
        return mean, self.vectors[chosen], self.variances[chosen]

    def widths(self, features: Float[Array, "n c"]) -> tuple[float, float]:
        """A small and a large variance; tenths of conditions with extreme ones are left out."""
        lowest, highest = jnp.min(self.variances), jnp.max(self.variances)
        if self.scaled:
            variances = self.variances * jnp.exp(features[:, -self.variances.shape[1] :])
            lowest = jnp.quantile(jnp.min(variances, axis=1), 0.1)
            highest = jnp.quantile(jnp.max(variances, axis=1), 0.9)
        return float(lowest), float(highest)

    def score(
        self, z: Float[Array, " d"], t: Scalar, features: Float[Array, " c"]
    ) -> Float[Array, " d"]:
        """The gradient of the logarithm of the density at time t."""
        mean, vectors, variances = self._part(features)
        return vectors @ (((mean - z) @ vectors) / (variances + 2 * t))

    def log_prob(
        self, z: Float[Array, " d"], noise: Scalar, features: Float[Array, " c"]
    ) -> Scalar:
        """The log-density after noise of so much variance was added to every coordinate."""
        mean, vectors, variances = self._part(features)
        total = variances + noise
        squares = ((z - mean) @ vectors) ** 2 / total
        return -0.5 * jnp.sum(squares + jnp.log(2 * jnp.pi * total))

    def sample(self, key: Key, noise: Scalar, features: Float[Array, " c"]) -> Float[Array, " d"]:
        """A draw."""
        mean, vectors, variances = self._part(features)
        return mean + vectors @ (
            jnp.sqrt(variances + noise) * jr.normal(key, mean.shape, mean.dtype)
        )


def fit_gaussian(residuals: Float[np.ndarray, "n d"], labels: np.ndarray | None) -> Gaussian:
    """The law of places minus their predicted means.

    The covariance is shrunk toward a multiple of the identity (OAS, Chen et al. 2010).  That of a
    label is shrunk toward the one of all, as if that had been seen in as many rows as there are
    dimensions.

    Args:
        residuals: one row for each place.
        labels: the number of the label of each row, if conditions are labels.
    """
    common = shrunk(residuals)
    matrices = [common]
    if labels is not None:
        size = residuals.shape[1]
        rows = [residuals[labels == label] for label in range(int(labels.max()) + 1)]
        matrices = [(part.T @ part + size * common) / (len(part) + size) for part in rows]
    variances, vectors = np.linalg.eigh(np.stack(matrices))
    dtype = jnp.result_type(float)
    return Gaussian(jnp.asarray(vectors, dtype), jnp.asarray(variances, dtype))


def shrunk(rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d d"]:
    """The covariance of centred rows, shrunk toward a multiple of the identity.

    The oracle approximating shrinkage of Chen et al. (2010).
    """
    count, size = rows.shape
    raw = rows.T @ rows / count
    scale, square = np.trace(raw), np.sum(raw * raw)
    if size == 1 or scale == 0:
        return np.maximum(raw, 1e-12)
    above = (1 - 2 / size) * square + scale**2
    below = (count + 1 - 2 / size) * (square - scale**2 / size)
    share = 1.0 if below <= 0 else min(1.0, above / below)
    return (1 - share) * raw + (share * scale / size + 1e-9 * scale) * np.eye(size)


class GaussianPrior(AbstractPrior):
    r"""The noised law at the last time, on a manifold that `embedding` maps to R^d.

    In the Riemannian volume its density is that of the places over the volume change of the chart.
    """

    manifold: AbstractManifold
    gaussian: Gaussian
    noise: Float[Array, ""]
    """The variance of the noise in every coordinate."""

    def sample(self, key, features):
        """A draw."""
        return self.manifold.decode(self.gaussian.sample(key, self.noise, features))

    def log_prob(self, x, features):
        """The log-density."""
        place = self.manifold.embedding(x)
        value = self.gaussian.log_prob(place, self.noise.astype(x.dtype), features)
        return value - self.manifold.log_chart_volume(x)  # pyright: ignore


def gaussian_prior(kernel: AbstractHeatKernel, law: Gaussian, t: float, key: Key) -> GaussianPrior:
    """The law of places that the kernel has noised for a time t.

    In flat space noise has the variance 2t.  Negative curvature widens it; by how much is measured.
    """
    return GaussianPrior(kernel.manifold, law, _noise(kernel, t, jr.split(key, _DRAWS)))


@eqx.filter_jit
def _noise(kernel, t, keys):
    """The mean square of a coordinate of what was noised from the origin."""
    origin = kernel.manifold.origin()
    draw = lambda key: kernel._sample(jnp.asarray(t, origin.dtype), origin, key)
    return jnp.mean(jax.vmap(kernel.manifold.embedding)(jax.vmap(draw)(keys)) ** 2)


def has_chart(manifold: AbstractManifold) -> bool:
    """Whether `embedding` maps the manifold one to one to R^d, with `decode` as its inverse."""
    return hasattr(manifold, "log_chart_volume")
