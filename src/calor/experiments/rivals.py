"""What diffusion models of matrices are compared with."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..data.points import uncentred
from ..data.prepare import Given, prepare
from ..manifolds import SPD
from ..manifolds.means import frechet_mean
from ..models.guesses import find_gaussian
from . import metrics

Array = np.ndarray


class LogEuclidean:
    """Matrices as vectors: logarithms around their Frechet mean, the map of DiffeoCFM."""

    def __init__(self, matrices: Array):
        """Find the mean."""
        n = matrices.shape[1]
        with jax.enable_x64(True):
            mean = np.asarray(frechet_mean(SPD(n), jnp.asarray(matrices, jnp.float64)))
        self._root = metrics.matrix_function(mean, np.sqrt)
        self._inverse = np.linalg.inv(self._root)
        self.size: int = n * (n + 1) // 2

    def inside(self, matrices: Array) -> Array:
        """Vectors of matrices."""
        return metrics.logarithms(self._inverse @ matrices @ self._inverse)

    def symmetric(self, vectors: Array) -> Array:
        """The logarithms that vectors stand for."""
        return from_vectors(vectors, len(self._root))

    def outside(self, vectors: Array) -> Array:
        """Matrices of vectors."""
        symmetric = self.symmetric(vectors)
        # Far out, where a poor model may draw, a matrix would leave the range of numbers.
        made = metrics.matrix_function(symmetric, lambda w: np.exp(np.clip(w, -12, 12)))
        return _symmetric(self._root @ made @ self._root)


def from_vectors(vectors: Array, n: int, across: float = np.sqrt(2.0)) -> Array:
    """Symmetric matrices from vectors, by default from those that `metrics.logarithms` makes.

    Args:
        vectors: lower triangles.
        n: the size of the matrices.
        across: what the entries off the diagonal were multiplied by.
    """
    i, j = np.tril_indices(n)
    out = np.zeros((*vectors.shape[:-1], n, n))
    out[..., i, j] = out[..., j, i] = vectors / np.where(i == j, 1.0, across)
    return out


def _symmetric(x):
    return (x + np.swapaxes(x, -1, -2)) / 2


def _gaussian_draws(means: Array, residuals: Array, count: int, seed: int | list[int]) -> Array:
    """Draws of a Gaussian law around means, its covariance that of the residuals (OAS)."""
    from sklearn.covariance import oas

    covariance, _ = oas(residuals, assume_centered=True)
    noise = np.random.default_rng(seed).normal(size=(len(means), count, len(covariance)))
    return means[:, None] + noise @ metrics.matrix_function(covariance, np.sqrt)


def linear_regression(
    predictors: Array, matrices: Array, asked: Array, count: int, seed: int
) -> Array:
    """Draws of a linear regression of logarithms with Gaussian residuals, ridge by its own rows."""
    chart = LogEuclidean(matrices)
    places = chart.inside(matrices)
    middle, spread = predictors.mean(axis=0), predictors.std(axis=0)
    rows, new = ((x - middle) / spread for x in (predictors, asked))
    mean = places.mean(axis=0)
    gram = rows.T @ rows

    def others(ridge):
        """What the other rows predict for each."""
        hat = rows @ np.linalg.solve(gram + ridge * np.eye(len(gram)), rows.T)
        off = (places - mean) - hat @ (places - mean)
        return off / (1 - np.diagonal(hat) - 1 / len(rows))[:, None]

    ridge = min(np.geomspace(0.1, 1e3, 13), key=lambda r: np.sum(others(r) ** 2))
    slope = np.linalg.solve(gram + ridge * np.eye(len(gram)), rows.T @ (places - mean))
    return chart.outside(_gaussian_draws(mean + new @ slope, others(ridge), count, seed))


def extra_trees(
    predictors: Array, matrices: Array, asked: Array, count: int, seed: int
) -> tuple[Array, Array]:
    """Draws around the prediction of extremely randomized trees, and the prediction itself.

    The draws add residuals of rows that trees of inner folds did not see.
    """
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.model_selection import cross_val_predict

    chart = LogEuclidean(matrices)
    places = chart.inside(matrices)
    trees = ExtraTreesRegressor(300, min_samples_leaf=2, random_state=seed)
    residuals = places - cross_val_predict(trees, predictors, places, cv=5)
    predicted = trees.fit(predictors, places).predict(asked)
    chosen = np.random.default_rng(seed).integers(len(residuals), size=(len(asked), count))
    return chart.outside(predicted[:, None] + residuals[chosen]), chart.outside(predicted)


def first_guess(
    predictors: Array,
    matrices: Array,
    asked: Array,
    count: int,
    seed: int,
    groups: Array | None = None,
) -> Array:
    """Draws of the Gaussian law that calor's network corrects, without the network."""
    manifold = SPD(matrices.shape[1])
    prepared = prepare(manifold, Given(matrices, predictors, groups), key=jr.key(seed)).part(0)
    prepared, law = find_gaussian(None, manifold, prepared)
    assert prepared.encoder is not None
    assert law is not None
    assert prepared.centre is not None
    features = jnp.repeat(prepared.encoder(asked, len(asked)), count, axis=0)

    def draw(key, features):
        return manifold.decode(law.sample(key, jnp.zeros(()), features))

    made = jax.jit(jax.vmap(draw))(jr.split(jr.key(seed), len(features)), features)
    made = uncentred(manifold, made, prepared.centre)
    return np.asarray(made, float).reshape(len(asked), count, *manifold.shape)


def gaussian_by_class(matrices: Array, labels: Array, seed: int) -> Array:
    """One draw for each label of a Gaussian law of logarithms, each class with its own (OAS)."""
    chart = LogEuclidean(matrices)
    places = chart.inside(matrices)
    drawn = np.empty_like(places)
    for number, label in enumerate(np.unique(labels)):
        rows = labels == label
        mean = places[rows].mean(axis=0)
        made = _gaussian_draws(mean[None], places[rows] - mean, int(rows.sum()), [seed, number])
        drawn[rows] = made[0]
    return chart.outside(drawn)


class Triangle:
    """Matrices as vectors: their lower triangles, as LowTriDDPM sees them."""

    def __init__(self, matrices: Array):
        """Remember the size."""
        self._n = matrices.shape[1]
        self.size: int = self._n * (self._n + 1) // 2

    def inside(self, matrices: Array) -> Array:
        """Vectors of matrices."""
        i, j = np.tril_indices(self._n)
        return matrices[:, i, j]

    def outside(self, vectors: Array) -> Array:
        """Symmetric matrices, eigenvalues that are not positive lifted to a millionth."""
        out = from_vectors(vectors, self._n, across=1.0)
        floor = 1e-6 * np.abs(np.linalg.eigvalsh(out)).max(axis=-1)[:, None]
        return _symmetric(metrics.matrix_function(out, lambda w: np.maximum(w, floor)))


class Standardized:
    """The vectors of a chart, every coordinate with mean zero and variance one over some data."""

    def __init__(self, chart: LogEuclidean | Triangle, matrices: Array):
        """Find the mean and the spread of each coordinate."""
        self._chart = chart
        self.size: int = chart.size
        rows = chart.inside(matrices)
        self._mean, self._spread = rows.mean(axis=0), rows.std(axis=0) + 1e-12

    def inside(self, matrices: Array) -> Array:
        """Vectors of matrices."""
        return (self._chart.inside(matrices) - self._mean) / self._spread

    def outside(self, vectors: Array) -> Array:
        """Matrices of vectors."""
        return self._chart.outside(vectors * self._spread + self._mean)
