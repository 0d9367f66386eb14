"""First guesses: what data look like at first sight, a law that a network then corrects.

On a manifold that one chart covers it is a Gaussian given the condition (`calor.gaussian`), whose
mean and widths are regressed on it; elsewhere, if asked for, a mixture (`calor.mixture`).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from ...core.types import Key
from ...data.points import embedded
from ...data.prepare import Prepared
from ...manifolds import AbstractManifold
from ..network import Network
from ..times import Scales
from .gaussian import Gaussian, fit_gaussian
from .mixture import Mixture, fit_mixture
from .regression import Regression, regress_factors, regress_on_labels, regress_on_numbers

# Data points for each Gaussian of a mixture, and the smallest time that its Gaussians stand for, in
# units of the smallest time of the model: single points are not to be remembered.
_POINTS_EACH, _NARROWEST = 16, 5.0
# The least square of a residual whose logarithm is taken, in units of the variance.
_LEAST_SQUARE = 1e-3


def find_gaussian(
    chosen: bool | None, manifold: AbstractManifold, prepared: Prepared, owner: str
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
    if not manifold.has_chart():
        raise ValueError(
            f"{owner}: Network(gaussian=True) is for manifolds that one chart covers, such as "
            f"SPD(n), not for {manifold}."
        )
    if prepared.encoder is None and prepared.centre is None:
        if chosen:
            raise ValueError(
                f"{owner}: Network(gaussian=True) without conditions needs centred=True, since the "
                "Gaussian is around the identity."
            )
        return prepared, None
    places = np.asarray(embedded(manifold, prepared.points), np.float64)
    encoder, count = prepared.encoder, len(places)
    groups = prepared.groups
    if encoder is None:
        if groups is not None:
            places = places - regress_on_labels(np.ones((count, 1)), places, groups)[1]
        return prepared, fit_gaussian(places, None, groups)
    rows = np.asarray(prepared.features, np.float64)
    if prepared.taken:
        places = np.concatenate([places, embedded(manifold, prepared.held_out)])
        rows = np.concatenate([rows, prepared.held_features])
        if groups is not None and prepared.held_groups is not None:
            groups = np.concatenate([groups, prepared.held_groups])
    regress = regress_on_labels if encoder.labels else regress_on_numbers
    regression, told = regress(rows, places, groups)
    residuals = places - told
    labels = rows[:count] if encoder.labels else None
    law = fit_gaussian(residuals[:count], labels, prepared.groups)
    if isinstance(regression, Regression):
        along = (residuals @ np.asarray(law.vectors[0])) ** 2
        along += _LEAST_SQUARE * np.asarray(law.variances[0])
        factors, logs = regress_factors(rows, along, regression, groups)
        law = Gaussian(law.vectors, law.variances, scaled=True)
        regression, told = regression.beside(factors), np.concatenate([told, logs], axis=1)
    held = told[count:]
    if not prepared.taken:
        held = jax.jit(jax.vmap(regression))(prepared.held_features)
    found = dataclasses.replace(
        prepared,
        features=_followed(prepared.features, told[:count]),
        held_features=_followed(prepared.held_features, held),
        encoder=dataclasses.replace(encoder, regression=regression),
    )
    return found, law


def _followed(features, told):
    return jnp.concatenate([features, jnp.asarray(told, features.dtype)], axis=1)


def find_guess(
    network: Network, manifold: AbstractManifold, prepared: Prepared, scales: Scales, key: Key
) -> Mixture | None:
    """The mixture that a network corrects, if it does: at least sixteen points for each centre."""
    centres = min(network.centres, len(prepared.points) // _POINTS_EACH)
    if centres == 0:
        return None
    places = jax.vmap(manifold.embedding)(prepared.points)
    return fit_mixture(places, manifold.dim, centres, _NARROWEST * scales.t_min, key)
