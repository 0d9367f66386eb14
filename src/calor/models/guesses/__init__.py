"""First guesses: what data look like at first sight, a law that a network then corrects.

On a manifold that one chart covers it is a Gaussian given the condition (`gaussian`), whose mean
and widths are regressed on it; elsewhere, if asked for, a mixture (`mixture`).
"""

import dataclasses

import jax
import numpy as np
from jaxtyping import Array, Float

from ...core.types import Key
from ...data.conditions import Condition, followed
from ...data.points import embedded
from ...data.prepare import Prepared
from ...manifolds import AbstractManifold
from .gaussian import Gaussian, fit_gaussian
from .mixture import Mixture, fit_mixture
from .regression import regress_factors, regress_on_labels, regress_on_numbers

# Data points for each Gaussian of a mixture, and the smallest time that its Gaussians stand for, in
# units of the smallest time of the model: single points are not to be remembered.
_POINTS_EACH, _NARROWEST = 16, 5.0
# The least square of a residual whose logarithm is taken, in units of the variance.
_LEAST_SQUARE = 1e-3


def find_gaussian(
    chosen: bool | None, manifold: AbstractManifold, prepared: Prepared
) -> tuple[Prepared, Gaussian | None]:
    """The Gaussian law of the places given the conditions, if the network corrects one.

    Without conditions its mean is zero, so there is none if the data were not centred either.
    Features are followed by the places that they predict and, if they are numbers, by logarithms of
    how wide the law is; those of the data by what all other rows, or all other groups, predict for
    them.  A validation part that was taken from the data predicts too, and does not count in the
    covariance.
    """
    if not (manifold.has_chart() if chosen is None else chosen):
        return prepared, None
    if prepared.encoder is not None:
        return _given_conditions(manifold, prepared, prepared.encoder)
    if prepared.centre is None:
        if chosen:
            raise ValueError(
                "Network(gaussian=True) without conditions needs centred=True, since the "
                "Gaussian is around the identity."
            )
        return prepared, None
    places, groups = _places(manifold, prepared.points), prepared.groups
    if groups is not None:
        places = places - regress_on_labels(np.ones((len(places), 1)), places, groups)[1]
    return prepared, fit_gaussian(places, None, groups)


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


def find_mixture(
    size: int, manifold: AbstractManifold, points: Float[Array, "n ..."], t_min: float, key: Key
) -> Mixture | None:
    """The mixture that a network corrects, if it does: at least sixteen points for each centre."""
    centres = min(size, len(points) // _POINTS_EACH)
    if centres == 0:
        return None
    places = jax.vmap(manifold.embedding)(points)
    return fit_mixture(places, manifold.dim, centres, _NARROWEST * t_min, key)
