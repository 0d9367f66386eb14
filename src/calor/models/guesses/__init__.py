"""First guesses: what data look like at first sight, a law that a network then corrects.

On SPD(n), which one chart covers, it is a mixture of Gaussians with full covariances (`parts`), by
EM (`em`), of as many parts as held out data ask for (`choose`); or one Gaussian given the condition
(`gaussian`), whose mean and widths are regressed on numbers.  Elsewhere it is, if asked for, a
mixture of round Gaussians (`mixture`).
"""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array, Float

from ...core.types import Key
from ...data.conditions import Condition, followed
from ...data.folds import Prepared
from ...data.points import embedded
from ...manifolds import AbstractManifold
from .base import AbstractChartLaw
from .choose import Split, choose_by_label
from .em import Points
from .gaussian import Gaussian, fit_gaussian, folds_of
from .mixture import Mixture, fit_mixture
from .parts import GaussianParts, noise_at, parts_law
from .regression import regress_factors, regress_on_labels, regress_on_numbers

# Data points for each Gaussian of a mixture, and the smallest time that its Gaussians stand for, in
# units of the smallest time of the model: single points are not to be remembered.
_POINTS_EACH, _NARROWEST = 16, 5.0
# Numbers of Gaussians with full covariances that are tried, and parts of the data that are left out
# in turn to choose.
_COUNTS, _FOLDS = (1, 2, 4, 8, 16, 32, 64), 4
# The least square of a residual whose logarithm is taken, in units of the variance.
_LEAST_SQUARE = 1e-3


def find_gaussian(
    chosen: bool | None, manifold: AbstractManifold, prepared: Prepared
) -> tuple[Prepared, AbstractChartLaw | None]:
    """The law of the places given the conditions, if the network corrects one."""
    return find_gaussians(chosen, manifold, [prepared])[0]


def find_gaussians(
    chosen: bool | None, manifold: AbstractManifold, several: Sequence[Prepared]
) -> list[tuple[Prepared, AbstractChartLaw | None]]:
    """The laws of the places given the conditions, if networks correct them, in each of the data.

    Without conditions, or given labels, it is a mixture of Gaussians if that is more likely where
    rows, or whole groups, are left out; else it is one Gaussian, or one for each label.  Without
    conditions that has the mean zero, so there is no law if the data were not centred either.

    With one Gaussian features are followed by the places that they predict and, if they are
    numbers, by logarithms of how wide the law is; those of the data by what all other rows, or all
    other groups, predict for them.  A validation part that was taken from the data predicts too,
    and does not count in the covariance.

    Laws are of the same kind for all of the data, and of the same shape: mixtures if any of them
    calls for one, filled up with parts that do not count.
    """
    prepared = several[0]
    usual = manifold.has_chart() and manifold.moves_to_origin()
    if not (usual if chosen is None else chosen):
        return [(each, None) for each in several]
    encoder = prepared.encoder
    if encoder is not None and not encoder.labels:
        return [_given_conditions(manifold, each, encoder) for each in several]
    if encoder is None and prepared.centre is None:
        if chosen:
            raise ValueError(
                "Network(gaussian=True) without conditions needs centred=True, since the "
                "Gaussian is around the identity."
            )
        return [(each, None) for each in several]
    mixtures = [_find_parts(manifold, each) for each in several]
    labels = 1 if encoder is None else len(encoder.labels)
    if prepared.weights is not None or any(mixture.count() > labels for mixture in mixtures):
        most = max(mixture.count() for mixture in mixtures)
        filled = [mixture.filled(most) for mixture in mixtures]
        return list(zip(several, filled, strict=True))
    if encoder is not None:
        return [_given_conditions(manifold, each, encoder) for each in several]
    return [(each, _find_one(manifold, each)) for each in several]


def _find_one(manifold, prepared: Prepared) -> Gaussian:
    """One Gaussian around the origin."""
    places, groups = _places(manifold, prepared.points), prepared.groups
    if groups is not None:
        places = places - regress_on_labels(np.ones((len(places), 1)), places, groups)[1]
    return _with_volume(fit_gaussian(places, None, groups), manifold)


def _find_parts(manifold, prepared: Prepared) -> GaussianParts:
    """The mixture that is likeliest where rows are left out."""
    encoder, count = prepared.encoder, len(prepared.points)
    labels, size = np.zeros(count, int), 1
    if encoder is not None:
        size = len(encoder.labels)
        labels = np.argmax(np.asarray(prepared.features), axis=1)
    weights = prepared.weights
    data = Points(
        _places(manifold, prepared.points), labels, np.ones(count) if weights is None else weights
    )
    parts = choose_by_label(data, size, _splits(prepared), np.arange(count), 0, _COUNTS).parts
    return parts_law(parts, noise_at(manifold, parts.means), manifold.noise_growth())


def _splits(prepared: Prepared) -> list[Split]:
    """Rows to learn from and rows that are left out, whole groups if there are any."""
    rows = np.arange(len(prepared.points))
    folds = folds_of(rows if prepared.groups is None else prepared.groups) % _FOLDS
    aside = [rows[folds == fold] for fold in range(_FOLDS)]
    return [(np.setdiff1d(rows, part), part) for part in aside if 0 < len(part) < len(rows)]


def _with_volume(law: Gaussian, manifold) -> Gaussian:
    """The law with the score of points, and noise as curvature spreads it."""
    return dataclasses.replace(law, volume=True, growth=manifold.noise_growth())


def _given_conditions(manifold, prepared: Prepared, encoder: Condition):
    count = len(prepared.points)
    rows = np.asarray(prepared.features, np.float64)
    places, groups = _places(manifold, prepared.points), prepared.groups
    if prepared.held_out_is_ours:
        places = np.concatenate([places, embedded(manifold, prepared.held_out)])
        rows = np.concatenate([rows, prepared.held_features])
        if groups is not None and prepared.held_groups is not None:
            groups = np.concatenate([groups, prepared.held_groups])
    if encoder.labels:
        regression, told = regress_on_labels(rows, places, groups)
        law = fit_gaussian((places - told)[:count], rows[:count], prepared.groups)
        law = _with_volume(law, manifold)
    else:
        mean, told = regress_on_numbers(rows, places, groups)
        residuals = places - told
        law = fit_gaussian(residuals[:count], None, prepared.groups)
        along = (residuals @ np.asarray(law.vectors[0])) ** 2
        along += _LEAST_SQUARE * np.asarray(law.variances[0])
        factors, logs = regress_factors(rows, along, mean, groups)
        law = Gaussian(law.vectors, law.variances, scaled=True)
        regression, told = mean.beside(factors), np.concatenate([told, logs], axis=1)
    held = told[count:]
    if not prepared.held_out_is_ours:
        held = jax.jit(jax.vmap(regression))(prepared.held_features)
    found = dataclasses.replace(
        prepared,
        features=followed(prepared.features, told[:count]),
        held_features=followed(prepared.held_features, held),
        encoder=dataclasses.replace(encoder, regression=regression),
    )
    return found, law


def _places(manifold, points) -> Float[np.ndarray, "n d"]:
    return np.asarray(embedded(manifold, points), np.float64)


def centres_for(size: int, count: int) -> int:
    """How many centres a mixture has: at least sixteen points for each."""
    return min(size, count // _POINTS_EACH)


def find_mixture(
    centres: int, manifold: AbstractManifold, points: Float[Array, "n ..."], t_min: float, key: Key
) -> Mixture | None:
    """The mixture of so many centres that a network corrects, if there are any."""
    if centres == 0:
        return None
    places = embedded(manifold, points)
    return fit_mixture(places, manifold.dim, centres, _NARROWEST * t_min, key)
