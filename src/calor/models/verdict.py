"""Honest words at the end of a fit: is the model any better than no model, and do its draws pass?

Points that were put aside are likelier by a useful model than by the law of those who know nothing
but the manifold, the uniform one, or nothing but mean and covariance.  And boosted trees that are
shown data and draws should not be able to tell them apart: the area under their curve is then one
half.
"""

import importlib.util

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.doors import warn
from ..core.types import Key, Point
from ..data.folds import Folds, shuffled, taken
from ..data.points import embedded
from ..manifolds import AbstractManifold
from . import chart_mixture
from .model import AbstractModel, in_batches

# Standard errors by which a model has to be ahead of a simple law.
_CLEARLY = 2.0
# Data points, and as many draws, that trees are shown, at most and at least; steps of a draw.
_ROWS, _FEWEST_ROWS, _STEPS = 1000, 50, 100


def simple_laws(
    manifold: AbstractManifold, folds: Folds, *, key: Key
) -> dict[str, Float[np.ndarray, " h"]]:
    """The log-densities of what was put aside by laws that hardly know the data.

    Args:
        manifold: where the points are.
        folds: the data.
        key: a random key.

    Returns:
        Of the uniform law or of one Gaussian in the chart, by its name; nothing where there is
        neither.
    """
    if manifold.is_compact():
        return {"uniform": np.full(len(folds.weights()), -float(manifold.log_volume()))}
    found = chart_mixture.fit_folds(manifold, folds, key=key, counts=())
    return {} if found is None else {"one Gaussian": found[1]}


def warn_if_useless(
    ahead: Float[np.ndarray, " h"], counts: Float[np.ndarray, " h"], law: str
) -> None:
    """Warn of a model that is not clearly better than a simple law.

    Args:
        ahead: how much likelier it finds each point that was put aside.
        counts: how much points count.
        law: the name of the simple one.
    """
    mean, error = mean_and_error(ahead, counts)
    if not mean > _CLEARLY * error:
        warn(
            f"points that were put aside are {mean:+.3f} ± {error:.3f} nats likelier by the model "
            f"than by the law that knows nothing ({law}): it is not clearly better. Perhaps there "
            "are too few points, or their columns, units or manifold are others than was said."
        )


def draws_against_data(
    model: AbstractModel,
    data: Folds,
    *,
    key: Key,
) -> tuple[float, float] | None:
    """How well boosted trees tell draws from data.

    Args:
        model: of the data.
        data: the points, and what came with them; draws are made under the same conditions.
        key: a random key.

    Returns:
        The area under the curve, one half if nothing tells them apart, and its standard error;
        None if scikit-learn is not installed or there are hardly any points.
    """
    points, weights = data.whole.points, data.whole.weights
    if importlib.util.find_spec("sklearn") is None or len(points) < _FEWEST_ROWS:
        return None
    key_rows, key_draws, key_images = jr.split(key, 3)
    rows = np.sort(np.asarray(shuffled(key_rows, len(points)))[:_ROWS])
    told = None if data.condition is None else data.condition[rows]
    draws = model.sample(len(rows), condition=told, key=key_draws, steps=_STEPS)
    features = np.asarray(model.features(told, len(rows)))
    ours, theirs = (
        np.concatenate([_places(model.manifold, x, key), features], axis=1)
        for x, key in zip((draws, taken(points, rows)), jr.split(key_images), strict=True)
    )
    return classifier_auc(ours, theirs, counts=None if weights is None else weights[rows])


def _places(
    manifold: AbstractManifold, points: Float[Array, "n ..."], key: Key
) -> Float[np.ndarray, "n d"]:
    """Where points are, each as any of the arrays that stand for it."""

    def one(x: Point, key: Key) -> Point:
        images = manifold.lookalikes(x)
        return images[jr.randint(key, (), 0, len(images))]

    images = in_batches(one, jnp.asarray(points), jr.split(key, len(points)))
    return np.asarray(embedded(manifold, images))


def classifier_auc(
    first: Float[np.ndarray, "n d"],
    second: Float[np.ndarray, "m d"],
    *,
    folds: int = 5,
    counts: Float[np.ndarray, " m"] | None = None,
) -> tuple[float, float]:
    """How well boosted trees tell two samples apart, and the standard error over folds.

    The area under the curve is that of the rows of each fold, for trees that saw the other folds:
    one half if nothing tells the samples apart, one if everything does.  It needs scikit-learn.

    Args:
        first: a sample.
        second: another one.
        folds: how many.
        counts: how much each row of the second sample counts, if they do not count the same.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold

    rows = np.concatenate([first, second])
    labels = np.repeat([0, 1], [len(first), len(second)])
    count = np.ones(len(rows))
    if counts is not None:
        count[len(first) :] = counts / np.mean(counts)
    found = []
    for seen, rest in StratifiedKFold(folds, shuffle=True, random_state=0).split(rows, labels):
        trees = HistGradientBoostingClassifier(random_state=0).fit(
            rows[seen], labels[seen], count[seen]
        )
        told = trees.predict_proba(rows[rest])[:, 1]
        found.append(roc_auc_score(labels[rest], told, sample_weight=count[rest]))
    return float(np.mean(found)), float(np.std(found, ddof=1) / np.sqrt(folds))


def mean_and_error(
    values: Float[np.ndarray, " n"], counts: Float[np.ndarray, " n"]
) -> tuple[float, float]:
    """A weighted mean and its standard error."""
    mean = float(np.average(values, weights=counts))
    error = np.sqrt(np.sum(counts**2 * (values - mean) ** 2)) / np.sum(counts)
    return mean, float(error)
