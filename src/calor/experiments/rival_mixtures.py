r"""Mixtures as opponents: of von Mises and Fisher laws, or of Gaussians of matrix logarithms.

On compact manifolds

    p(x) = sum_k w_k sum_g prod_b vMF(g x_b; m_kb, c_kb),

x_b being the unit vectors of a point, one of the plane for each angle of a torus, and g the group
of a quotient.  On SPD(n) logarithms around the mean, less what conditions predict of them, have a
mixture of Gaussians with full covariances, or one Gaussian whose covariance is shrunk (OAS); their
density is divided by the volume that the exponential makes of a unit cube.  The number of parts has
the largest likelihood on the validation part; then all points are used.
"""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import ive

from .charts import Array, log_distortion, log_sum_exp
from .rivals import LogEuclidean
from .sets import Problem

PARTS = (5, 20, 60, 200)
"""Of von Mises and Fisher laws."""
GAUSSIANS = (1, 2, 4, 8, 16, 32)
_LEAST = 10
"""Points for each part."""
_ROUNDS, _GAIN = 100, 1e-3
"""Rounds at most, and the gain of the mean log-likelihood below which there are no more."""


@dataclasses.dataclass(frozen=True)
class Directional:
    """A mixture of products of von Mises-Fisher laws."""

    log_weights: Float[Array, " k"]
    means: Float[Array, "k b p"]
    concentrations: Float[Array, "k b"]

    def log_parts(self, units: Float[Array, "n g b p"]) -> Float[Array, "n g k"]:
        """The log-density of each part at each image of points."""
        k, size = self.concentrations, self.means.shape[2]
        order = size / 2 - 1
        log_norm = size / 2 * np.log(2 * np.pi) + np.log(ive(order, k)) - order * np.log(k)
        natural = (self.means * k[:, :, None]).reshape(len(k), -1)
        count, images = units.shape[:2]
        inner = units.reshape(count * images, -1) @ natural.T
        inner += self.log_weights - np.sum(k + log_norm, axis=1)
        return inner.reshape(count, images, -1)

    def log_prob(self, units: Float[Array, "n g b p"]) -> Float[Array, " n"]:
        """The log-density at points."""
        step = max(1, 4_000_000 // (units.shape[1] * len(self.means)))
        starts = range(0, len(units), step)
        return np.concatenate([log_sum_exp(self.log_parts(units[i : i + step])) for i in starts])


def fit_directional(units: Float[Array, "n g b p"], parts: int, seed: int) -> Directional:
    """By expectation and maximization, from random points."""
    count, _, blocks, size = units.shape
    chosen = np.random.default_rng(seed).choice(count, min(parts, count), replace=False)
    usual = 1 / _spread(units[:, 0], parts)
    found = Directional(
        np.full(len(chosen), -np.log(len(chosen))),
        units[chosen, 0],
        np.full((len(chosen), blocks), usual),
    )
    # One more observation of the usual width for each part, so that few points do not seem too
    # narrow.
    prior = _mean_length(np.array(usual), size)
    step, before = max(1, 4_000_000 // (units.shape[1] * len(chosen))), -np.inf
    for _ in range(_ROUNDS):
        mass, sums, total = np.zeros(len(chosen)), np.zeros((len(chosen), blocks * size)), 0.0
        for start in range(0, count, step):
            some = units[start : start + step]
            shares = found.log_parts(some)
            largest = shares.max(axis=(1, 2), keepdims=True)
            shares = np.exp((shares - largest).astype(np.float32))
            each = shares.sum(axis=(1, 2), keepdims=True)
            total += float(np.sum(largest) + np.sum(np.log(each)))
            flat = (shares / each).reshape(-1, len(chosen)).astype(float)
            mass += flat.sum(axis=0)
            sums += flat.T @ some.reshape(len(flat), -1)
        if total - before < _GAIN * count:
            break
        before = total
        resultants = sums.reshape(len(chosen), blocks, size)
        lengths = np.maximum(np.linalg.norm(resultants, axis=2), 1e-12)
        mean_lengths = (lengths + prior) / (mass[:, None] + 1)
        found = Directional(
            np.log((mass + 1) / (count + len(chosen))),
            resultants / lengths[:, :, None],
            _concentration(mean_lengths, size),
        )
    return found


def _spread(units: Float[Array, "n b p"], parts: int) -> float:
    """The variance of a coordinate in one of so many parts."""
    blocks, size = units.shape[1:]
    dim = blocks * (size - 1)
    return float(np.sum(np.var(units, axis=0))) / dim * parts ** (-2 / dim)


def _mean_length(k: Array, size: int) -> Array:
    """The length of the mean of a von Mises-Fisher law."""
    return ive(size / 2, k) / ive(size / 2 - 1, k)


def _concentration(lengths: Array, size: int) -> Array:
    """The concentration whose mean has a given length, by two Newton steps from Banerjee's."""
    lengths = np.clip(lengths, 1e-6, 1 - 1e-8)
    k = lengths * (size - lengths**2) / (1 - lengths**2)
    for _ in range(2):
        mean = _mean_length(k, size)
        slope = 1 - mean**2 - (size - 1) / k * mean
        k = np.maximum(np.where(slope > 1e-14, k - (mean - lengths) / slope, k), 1e-6)
    return k


class Units:
    """Mixtures of von Mises-Fisher laws for one set of data."""

    def __init__(self, train: Problem, held: Problem, seed: int):
        """Choose the number of parts and fit."""
        self._family = train.family
        inside, outside = self._units(train.points), self._units(held.points)
        values = {}
        for parts in [k for k in PARTS if k * _LEAST <= len(inside)] or [1]:
            values[parts] = np.mean(fit_directional(inside, parts, seed).log_prob(outside))
        self.parts: int = max(values, key=lambda parts: values[parts])
        self._law = fit_directional(np.concatenate([inside, outside]), self.parts, seed)

    def log_prob(self, x: Array, condition: Array | None) -> Float[Array, " m"]:
        """The log-density at points."""
        return self._law.log_prob(self._units(x))

    def _units(self, x: Array) -> Float[Array, "n g b p"]:
        """All images of points, as unit vectors."""
        return self._family.units(x)


class Logarithms:
    """Mixtures of Gaussians of matrix logarithms for one set of data."""

    def __init__(self, train: Problem, held: Problem, seed: int):
        """Choose the number of parts, and the regression if there are conditions, and fit."""
        chart = LogEuclidean(train.points)
        inside, outside = chart.inside(train.points), chart.inside(held.points)
        means = _REGRESSIONS if train.condition is not None else (_no_regression,)
        tried = {}
        for regress in means:
            predict, residuals = regress(train.condition, inside, seed)
            off = outside - predict(held.condition)
            for parts in (0, *(k for k in GAUSSIANS if k * _LEAST <= len(inside))):
                value = np.mean(_gaussians(residuals, parts, seed).score_samples(off))
                tried[regress, parts] = value
        regress, parts = max(tried, key=lambda choice: tried[choice])
        self.parts: int = parts
        points = np.concatenate([train.points, held.points])
        condition = train.condition
        if condition is not None and held.condition is not None:
            condition = np.concatenate([condition, held.condition])
        self._chart = LogEuclidean(points)
        self._predict, residuals = regress(condition, self._chart.inside(points), seed)
        self._law = _gaussians(residuals, self.parts, seed)

    def log_prob(self, x: Array, condition: Array | None) -> Float[Array, " m"]:
        """The log-density at points, in the Riemannian volume."""
        places = self._chart.inside(x)
        values = self._law.score_samples(places - self._predict(condition))
        symmetric = self._chart.symmetric(places)
        return values - log_distortion(np.linalg.eigvalsh(symmetric))


def fit_mixture(train: Problem, held: Problem, seed: int) -> Units | Logarithms:
    """What suits the manifold."""
    return (Logarithms if train.family.log_volume() is None else Units)(train, held, seed)


def _gaussians(rows: Array, parts: int, seed: int) -> Any:
    """So many Gaussians with full covariances; with zero parts one whose covariance is shrunk."""
    from sklearn.covariance import OAS
    from sklearn.mixture import GaussianMixture

    if parts:
        floor = 1e-3 * float(np.mean(np.var(rows, axis=0)))
        return GaussianMixture(parts, reg_covar=floor, random_state=seed, max_iter=200).fit(rows)
    law = GaussianMixture(1)
    covariance = OAS().fit(rows).covariance_
    law.means_, law.covariances_ = rows.mean(axis=0)[None], covariance[None]
    law.weights_, law.precisions_cholesky_ = (
        np.ones(1),
        np.linalg.inv(np.linalg.cholesky(covariance)).T[None],
    )
    return law


def _no_regression(condition, places, seed):
    """The mean of all, wherever."""
    return lambda asked: 0.0, places


def _ridge(condition, places, seed):
    """Linear regression, its penalty by leaving out one row at a time."""
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), RidgeCV(np.geomspace(0.1, 1e3, 13)))
    residuals = places - cross_val_predict(model, condition, places, cv=5)
    return model.fit(condition, places).predict, residuals


def _trees(condition, places, seed):
    """Extremely randomized trees; residuals of rows that they have not seen."""
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.model_selection import cross_val_predict

    trees = ExtraTreesRegressor(300, min_samples_leaf=2, random_state=seed)
    residuals = places - cross_val_predict(trees, condition, places, cv=5)
    return trees.fit(condition, places).predict, residuals


_REGRESSIONS = (_ridge, _trees)
