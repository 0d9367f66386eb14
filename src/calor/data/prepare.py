"""Data at the door: checked once, with the number of the row that is wrong, then trusted."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.doors import warn
from ..core.types import Key
from ..manifolds import AbstractManifold
from ..manifolds.means import frechet_mean
from .conditions import Condition, learn_condition, plain
from .folds import Folds, Prepared, split, split_groups, spread, taken
from .points import checked_points, doubled_points, moved

# The share of different points below which there is a warning.
_REPEATED = 0.5
# What is put aside by default for one model; at most and at least for each of several.
_USUAL_FRACTION, _LARGEST_FRACTION, _SMALLEST_FRACTION = 0.1, 0.2, 0.01


@dataclasses.dataclass(frozen=True)
class Given:
    """Data as they came."""

    points: Any
    """Points of a manifold, as an array, a data frame, or rotations of scipy."""
    condition: Any = None
    """Numbers or labels that come with each point."""
    groups: Any = None
    """Names of what points belong to."""
    validation: Any = 0.1
    """The fraction to put aside; or points; or a pair of points and conditions; None chooses."""
    weights: Any = None
    """How much each point counts."""
    concentration: Any = None
    """How well each point was measured: one over the variance in each direction."""


def prepare(
    manifold: AbstractManifold,
    given: Given,
    *,
    key: Key,
    centred: bool = True,
    parts: int = 1,
    most: int | None = None,
) -> Folds:
    """Check the data once, encode the conditions, and say what is put aside for validation.

    Groups of points stay together: they are in the training part or in the validation part.

    Where isometries take any point to the origin, the Frechet mean of the data is taken there, if
    `centred`: densities do not change, and a network sees points near the origin.

    Args:
        manifold: where the points are.
        given: points, and what came with them.
        key: a random key, for what is put aside.
        centred: whether the mean is taken to the origin.
        parts: how many validation parts there are.
        most: points to judge by, of all parts together; all that are put aside if it is None.
    """
    moves = centred and manifold.moves_to_origin()
    check: Any = doubled_points if moves else checked_points
    points = check(manifold, given.points, "data", at_least=2)
    count, told = len(points), None if given.condition is None else plain(given.condition)
    if told is not None and len(told) != count:
        raise ValueError(f"got {len(told)} conditions for {count} points.")
    groups = None if given.groups is None else _numbered(given.groups, count)
    weights = None if given.weights is None else _weighed(given.weights, count)
    starts = _starts(given.concentration, count)
    if weights is not None and not weights.all():  # what does not count is not there
        kept = np.flatnonzero(weights)
        if len(kept) < 2:
            raise ValueError("weights: at least two points must count, all others are zero.")
        points, weights = points[kept], weights[kept] / weights[kept].mean()
        told, groups, starts = (a if a is None else a[kept] for a in (told, groups, starts))
    encoder = None if told is None else learn_condition(told)
    whole = Prepared(
        points=points,
        features=_encoded(encoder, told, len(points)),
        held_out=points[:0],
        held_features=jnp.zeros((0, 0)),
        encoder=encoder,
        groups=groups,
        weights=weights,
        starts=starts,
    )
    _warn_if_repeated(points)
    rows, fraction = (), given.validation
    if whole.starts is not None and not isinstance(fraction, int | float | np.number | None):
        raise ValueError("with concentration, validation must be a fraction.")
    if fraction is None:
        fraction = _fraction(len(points), parts, most)
    if isinstance(fraction, int | float | np.number):
        rows = _rows_aside(whole, float(fraction), given.groups, parts, key)
    else:
        is_pair = isinstance(given.validation, tuple) and len(given.validation) == 2
        held_out, condition = given.validation if is_pair else (given.validation, None)
        held_out = check(manifold, held_out, "validation")
        if encoder is not None and condition is None:
            raise ValueError("with conditions, validation must be a pair (points, conditions).")
        features = _encoded(encoder, condition, len(held_out))
        few = spread(len(held_out), most)
        held = taken(held_out, few) if not moves else held_out[few]
        whole = dataclasses.replace(whole, held_out=held, held_features=taken(features, few))
    whole = _around_mean(manifold, whole) if moves else whole
    each = None if most is None else max(1, most // parts)
    judged, unseen = tuple(r[:each] for r in rows), tuple(r[len(r[:each]) :] for r in rows)
    return Folds(whole, judged, unseen, told)


def _warn_if_repeated(points: Float[Array, "n ..."]) -> None:
    """Warn of points most of which are there more than once: no density fits them best."""
    rows = np.asarray(points).reshape(len(points), -1)
    different = len(np.unique(rows, axis=0))
    if different == 1:
        warn(f"all {len(rows)} points are the same one; their law has no density.")
    elif different <= _REPEATED * len(rows):
        warn(
            f"only {different} of {len(rows)} points are different ones. The narrower a density "
            "around points that are repeated, the likelier it finds those put aside, so that "
            "log-likelihoods mean little; give numpy.unique(points, axis=0), perhaps with "
            "weights=."
        )


def _fraction(count: int, parts: int, most: int | None) -> float:
    """To put aside for each part: enough to judge by, and not much of all."""
    if most is None:
        return _USUAL_FRACTION
    return min(_LARGEST_FRACTION, max(most / (parts * count), _SMALLEST_FRACTION))


def _encoded(encoder: Condition | None, condition: Any, count: int) -> Float[Array, "n c"]:
    return jnp.zeros((count, 0)) if encoder is None else encoder(condition, count)


def _rows_aside(whole: Prepared, fraction: float, names: Any, parts: int, key: Key):
    """The rows of the validation parts."""
    if not 0 < fraction < 1:
        raise ValueError(
            f"validation must be a fraction between 0 and 1, or points, got {fraction!r}."
        )
    groups = whole.groups
    if groups is None:
        rows = split(key, len(whole.points), fraction, parts)
    elif np.max(groups) == 0:
        raise ValueError(
            f"all points are of one group, {np.ravel(names)[0]}; at least two are needed "
            "to put one aside. Leave groups out, or give validation points of their own."
        )
    else:
        rows = split_groups(key, groups, fraction, parts)
    _check_labels(whole, rows)
    return rows


def _weighed(weights: Any, count: int) -> Float[np.ndarray, " n"]:
    """How much points count, one in the mean."""
    values = _numbers(weights, count, "weights")
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any() or not values.sum() > 0:
        row = int(np.argmax(bad))
        raise ValueError(
            "weights must be finite numbers that are not negative, and not all zero; got "
            f"{values[row]:g} in row {row}."
        )
    return values / values.mean()


def _starts(concentration: Any, count: int) -> Float[np.ndarray, " n"] | None:
    """Times after which the variance of heat, 2t in each direction, is that of measuring."""
    if concentration is None:
        return None
    values = _numbers(concentration, count, "concentration")
    bad = ~(values > 0)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            "concentration must be positive, one over the variance of a measurement in each "
            f"direction; got {values[row]:g} in row {row}."
        )
    return 1 / (2 * values)


def _numbers(given: Any, count: int, name: str) -> Float[np.ndarray, " n"]:
    """One number for each point."""
    try:
        values = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be one number for each point: {error}") from error
    if values.shape != (count,):
        raise ValueError(
            f"{name} must be one number for each of the {count} points, got an array of shape "
            f"{values.shape}."
        )
    return values


def _numbered(groups: Any, count: int) -> Int[np.ndarray, " n"]:
    """Groups as numbers from zero."""
    try:
        values = plain(groups)
    except ValueError as error:
        raise ValueError(f"groups must be one name for each point: {error}") from error
    if values.ndim != 1 or len(values) != count or values.dtype.kind not in "iufbUS":
        raise ValueError(
            f"groups must name one group for each of the {count} points, by numbers or "
            f"strings, got an array of {values.dtype} of shape {values.shape}."
        )
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise ValueError(f"groups has NaN in row {int(np.argmax(np.isnan(values)))}.")
    return np.unique(values, return_inverse=True)[1]


def _check_labels(whole: Prepared, rows: tuple[Int[np.ndarray, " m"], ...]) -> None:
    """Warn of labels that were put aside altogether."""
    if whole.encoder is None or not whole.encoder.labels:
        return
    features = np.asarray(whole.features)
    for held in rows:
        inside = np.sum(features[held], axis=0)
        missing = np.flatnonzero((inside > 0) & (np.sum(features, axis=0) == inside))
        if len(missing):
            warn(
                f"the label {whole.encoder.labels[missing[0]]!r} occurs only among the points that "
                "are put aside, so nothing is learned of it; give validation points of your own, "
                "or another key."
            )
            return


def _around_mean(manifold: AbstractManifold, prepared: Prepared) -> Prepared:
    """Prepared data, still in double precision, moved to where their mean is the origin."""
    with jax.enable_x64(True):
        centre = np.asarray(frechet_mean(manifold, prepared.points))
    points = moved(manifold, prepared.points, centre, "data")
    held_out = moved(manifold, prepared.held_out, centre, "validation")
    return dataclasses.replace(prepared, points=points, held_out=held_out, centre=centre)
