r"""Gaussian laws of places in a flat space, given conditions, and how heat spreads them.

Given a condition c, places are about Gaussian around the mean m that a regression predicts,

    z ~ N(m, Sigma),     a time t later   N(m, Sigma + 2 t I),

whose score (Sigma + 2t)^-1 (m - z) is known.  It is a first guess of the score of the data, which a
network corrects, and at the last time it is where generation starts.

A label has a covariance Sigma of its own.  Where conditions are numbers the directions v_k are
common to all, and a second regression predicts how wide the law is along each,

    Sigma = sum_k sigma_k^2 f_k(c) v_k v_k^T.

What regressions predict is told: features are what a condition was encoded as, then m, then log f
if there are factors (`Told`).  Without conditions the mean is zero, which is what centring at the
Frechet mean of the data does.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from ...core.compiled import quickly
from ...core.types import Key, Point, Scalar
from ...heat.kernel import AbstractHeatKernel
from ...manifolds import AbstractManifold
from ...store.stored import stored
from ..prior import AbstractPrior
from .base import AbstractChartLaw, spread

# Draws that tell how much wider than in flat space noise is.
_DRAWS = 512
# Which shares of the covariance of all in that of a label, and of a round one in both, are tried,
# and the parts of the data that are left out in turn to choose.
_SHARING = (0.0, 0.25, 0.5, 0.75, 1.0)
_SHRINKING = (0.0, 1e-4, 1e-3, 0.003, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
_FOLDS = 10


class Told(NamedTuple):
    """The parts of features: what a condition was encoded as, and what it tells of d places."""

    encoded: Float[Array, "*n c"]
    mean: Float[Array, "*n d"]
    log_factors: Float[Array, "*n d"]
    """Of the variances; zero where none are predicted."""

    @staticmethod
    def of(features: Float[Array, "*n f"], size: int, scaled: bool) -> "Told":
        """The parts of features that end with `size` numbers, or twice as many if `scaled`.

        Features are empty where there are no conditions.
        """
        zero = jnp.zeros((*features.shape[:-1], size), features.dtype)
        if features.shape[-1] == 0:
            return Told(features, zero, zero)
        end = features.shape[-1] - size * scaled
        start = end - size
        factors = features[..., end:] if scaled else zero
        return Told(features[..., :start], features[..., start:end], factors)


@stored("Gaussian")
class Gaussian(AbstractChartLaw):
    """One covariance, or one for each label, in the form V diag(variances) V^T."""

    vectors: Float[Array, "k d d"]
    variances: Float[Array, "k d"]
    scaled: bool = eqx.field(static=True, default=False)
    """Whether features end with the logarithms of factors of the variances."""
    volume: bool = eqx.field(static=True, default=False)
    """Whether the score of points has a volume term; files of 0.1.0 have laws without."""
    growth: float = eqx.field(static=True, default=0.0)
    """The rate at which curvature drives noise apart."""

    def has_volume(self) -> bool:
        return self.volume

    def _part(self, features):
        """The mean and the covariance that features tell, as vectors and variances."""
        count, size = self.variances.shape
        told = Told.of(features, size, self.scaled)
        part = jnp.argmax(told.encoded) if count > 1 else 0  # of a label, one-hot
        variances = self.variances[part] * jnp.exp(told.log_factors)
        return told.mean, self.vectors[part], variances

    def count(self) -> int:
        return len(self.variances)

    def widths(self, features: Float[Array, "n c"]) -> tuple[float, float] | None:
        """A small and a large variance; tenths of conditions with extreme ones are left out."""
        lowest, highest = jnp.min(self.variances), jnp.max(self.variances)
        if self.scaled:
            told = Told.of(features, self.variances.shape[1], self.scaled)
            variances = self.variances * jnp.exp(told.log_factors)
            lowest = jnp.quantile(jnp.min(variances, axis=1), 0.1)
            highest = jnp.quantile(jnp.max(variances, axis=1), 0.9)
        return float(lowest), float(highest)

    def smallest(self, places: Float[Array, "n d"]) -> float:
        """The usual deviation: a guess tells of directions in which the data are narrow."""
        return float(jnp.sqrt(jnp.mean(jnp.var(places, axis=0))))

    def prior(self, kernel: AbstractHeatKernel, t1: float, key: Key) -> AbstractPrior | None:
        """The law of places that the kernel has noised for a time t.

        In flat space noise has the variance 2t.  Negative curvature widens it; by how much is
        measured where the law does not know.
        """
        if self.growth:
            noise = jnp.asarray(2 * t1, self.variances.dtype)
            return GaussianPrior(kernel.manifold, self, noise)
        return GaussianPrior(
            kernel.manifold, self, _noise(kernel, jnp.asarray(t1, float), jr.split(key, _DRAWS))
        )

    def score(
        self, z: Float[Array, " d"], t: Scalar, features: Float[Array, " c"]
    ) -> Float[Array, " d"]:
        mean, vectors, variances = self._part(features)
        mean = jnp.exp(self.growth * t) * mean
        return vectors @ (((mean - z) @ vectors) / spread(variances, t, self.growth))

    def log_prob(
        self, z: Float[Array, " d"], noise: Scalar, features: Float[Array, " c"]
    ) -> Scalar:
        """The log-density after noise of so much variance was added to every coordinate."""
        mean, vectors, variances = self._part(features)
        total = spread(variances, noise / 2, self.growth)
        mean = jnp.exp(self.growth * noise / 2) * mean
        squares = ((z - mean) @ vectors) ** 2 / total
        return -0.5 * jnp.sum(squares + jnp.log(2 * jnp.pi * total))

    def sample(self, key: Key, noise: Scalar, features: Float[Array, " c"]) -> Float[Array, " d"]:
        """A draw."""
        mean, vectors, variances = self._part(features)
        deviations = jnp.sqrt(spread(variances, noise / 2, self.growth))
        mean = jnp.exp(self.growth * noise / 2) * mean
        return mean + vectors @ (deviations * jr.normal(key, mean.shape, mean.dtype))


def fit_gaussian(
    residuals: Float[np.ndarray, "n d"],
    labels: Float[np.ndarray, "n k"] | None,
    groups: Int[np.ndarray, " n"] | None = None,
) -> Gaussian:
    r"""The law of places minus their predicted means.

    With S the covariance of all rows and S_l that of a label, both raw,

        Sigma_l = (1 - a) ((1 - b) S_l + b S) + a tr(S)/d I,

    where a and b have the largest likelihood on rows that are left out, tenths of the rows or of
    the groups.  Rules that take rows for independent Gaussians, such as OAS, shrink too little
    where tails are heavy or groups differ.

    Args:
        residuals: one row for each place.
        labels: the label of each row, one-hot, if conditions are labels.
        groups: the number of the group of each row, if they are not independent.
    """
    own = np.zeros(len(residuals), int) if labels is None else np.argmax(labels, axis=1)
    count = 1 if labels is None else labels.shape[1]
    folds = folds_of(np.arange(len(residuals)) if groups is None else groups)
    sharing = (1.0,) if labels is None else _SHARING
    totals = np.zeros((len(sharing), len(_SHRINKING)))
    for fold in np.unique(folds):
        kept = folds != fold
        if not kept.any():  # one row: nothing is known but its length
            totals[-1, -1] = 1.0
            break
        raw = _moments(residuals[kept], own[kept], count)
        for row, share in enumerate(sharing):
            totals[row] += _log_likelihoods(residuals[~kept], own[~kept], *raw, share)
    row, column = np.unravel_index(np.argmax(totals), totals.shape)
    common, each = _moments(residuals, own, count)
    spectrum, vectors = _spectra(common, each, sharing[row])
    variances = _shrunk(spectrum, common, _SHRINKING[column])
    dtype = jnp.result_type(float)
    return Gaussian(jnp.asarray(vectors, dtype), jnp.asarray(variances, dtype))


def folds_of(groups: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """A number for each row, the same for rows of a group if there are several."""
    each, numbers = np.unique(groups, return_inverse=True)
    if len(each) == 1:
        each = numbers = np.arange(len(groups))
    return (np.random.default_rng(0).permutation(len(each)) % _FOLDS)[numbers]


def _moments(rows, labels, count):
    """The raw covariance of all rows, and that of each label; of no rows it is the one of all."""
    common = rows.T @ rows / len(rows)
    parts = [rows[labels == label] for label in range(count)]
    return common, np.stack([p.T @ p / len(p) if len(p) else common for p in parts])


def _spectra(common, each, share):
    """Eigenvalues and eigenvectors of the covariance of each label, mixed with the common one."""
    if share == 1.0:  # they are all the same
        spectrum, vectors = np.linalg.eigh(common)
        return np.tile(spectrum, (len(each), 1)), np.tile(vectors, (len(each), 1, 1))
    return np.linalg.eigh((1 - share) * each + share * common)


def _shrunk(spectrum, common, shrinking):
    """Eigenvalues moved toward their mean, all positive."""
    middle = np.trace(common) / len(common)
    return (1 - shrinking) * np.maximum(spectrum, 0) + (shrinking + 1e-9) * middle + 1e-12


def _log_likelihoods(rows, labels, common, each, share):
    """Of rows (n, d), for every value of the shrinking, up to a constant."""
    spectrum, vectors = _spectra(common, each, share)
    found = np.zeros(len(_SHRINKING))
    for label in np.unique(labels):
        squares = (rows[labels == label] @ vectors[label]) ** 2
        variances = _shrunk(spectrum[label], common, np.asarray(_SHRINKING)[:, None])
        found -= np.sum(squares.sum(axis=0) / variances, axis=1)
        found -= len(squares) * np.sum(np.log(variances), axis=1)
    return found / 2


@stored("GaussianPrior")
class GaussianPrior(AbstractPrior):
    r"""The noised law at the last time, on a manifold that `embedding` maps to R^d.

    In the Riemannian volume its density is that of the places over the volume change of the chart.
    """

    manifold: AbstractManifold
    gaussian: Gaussian
    noise: Float[Array, ""]
    """The variance of the noise in every coordinate."""

    def sample(self, key: Key, features: Float[Array, " c"]) -> Point:
        """A draw."""
        return self.manifold.decode(self.gaussian.sample(key, self.noise, features))

    def log_prob(self, x: Point, features: Float[Array, " c"]) -> Scalar:
        """The log-density."""
        place = self.manifold.embedding(x)
        value = self.gaussian.log_prob(place, self.noise.astype(x.dtype), features)
        return value - self.manifold.log_chart_volume(x)


@quickly
def _noise(kernel: AbstractHeatKernel, t: Scalar, keys: Key) -> Scalar:
    """The mean square of a coordinate of what was noised from the origin."""
    origin = kernel.manifold.origin()  # pyright: ignore[reportAttributeAccessIssue]
    draw = lambda key: kernel.draw(jnp.asarray(t, origin.dtype), origin, key)
    return jnp.mean(jax.vmap(kernel.manifold.embedding)(jax.vmap(draw)(keys)) ** 2)
