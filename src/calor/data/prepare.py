"""Data at the door: checked once, with the number of the row that is wrong, then trusted."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.doors import warn
from ..core.types import Key
from ..manifolds import AbstractManifold
from ..manifolds.means import frechet_mean
from .conditions import Condition, learn_condition, plain
from .points import checked_points, doubled_points, moved


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
    """The fraction to put aside; or points; or a pair of points and conditions."""


def split(key: Key, count: int, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a training part and of a validation part, both not empty."""
    order = np.asarray(jr.permutation(key, count))
    held = min(max(1, round(fraction * count)), count - 1)
    return order[held:], order[:held]


def split_groups(
    key: Key, groups: Int[np.ndarray, " n"], fraction: float
) -> tuple[np.ndarray, np.ndarray]:
    """The same, with no group in both parts, of about the same sizes.

    Args:
        key: a random key.
        groups: the number of the group of each row, from zero.
        fraction: of the rows in the validation part, about.
    """
    sizes = np.bincount(groups)
    order, missing, held = np.asarray(jr.permutation(key, len(sizes))), fraction * len(groups), []
    for group in order:
        if abs(missing - sizes[group]) < abs(missing):  # it brings the part nearer to its size
            held.append(group)
            missing -= sizes[group]
    held = held[: len(sizes) - 1] or [order[np.argmin(sizes[order])]]
    rows = np.argsort(np.argsort(order)[groups], kind="stable")  # groups in random order
    inside = np.isin(groups[rows], held)
    return rows[~inside], rows[inside]


class Prepared(eqx.Module):
    """Checked data, split into a training and a validation part, as seen from their centre."""

    points: Float[Array, "n ..."]
    features: Float[Array, "n c"]
    held_out: Float[Array, "m ..."]
    held_features: Float[Array, "m c"]
    encoder: Condition | None = None
    centre: np.ndarray | None = None
    groups: Int[np.ndarray, " n"] | None = None
    """The number of the group of each point, if they were given."""
    held_groups: Int[np.ndarray, " m"] | None = None
    held_out_is_ours: bool = eqx.field(static=True, default=False)
    """Whether the validation part was taken from the data, not given by itself."""


def prepare(
    manifold: AbstractManifold, given: Given, *, key: Key, centred: bool = True
) -> Prepared:
    """Check the data once, encode the conditions, and put a validation part aside.

    Groups of points stay together: they are in the training part or in the validation part.

    Where isometries take any point to the origin, the Frechet mean of the training part is taken
    there, if `centred`: densities do not change, and a network sees points near the origin.
    """
    moves = centred and manifold.moves_to_origin()
    check: Any = doubled_points if moves else checked_points
    points = check(manifold, given.points, "data", at_least=2)
    encoder = None if given.condition is None else learn_condition(given.condition)
    if encoder is not None and len(plain(given.condition)) != len(points):
        count = len(plain(given.condition))
        raise ValueError(f"got {count} conditions for {len(points)} points.")
    whole = Prepared(
        points=points,
        features=_encoded(encoder, given.condition, len(points)),
        held_out=points[:0],
        held_features=jnp.zeros((0, 0)),
        encoder=encoder,
        groups=None if given.groups is None else _numbered(given.groups, len(points)),
    )
    if isinstance(given.validation, int | float | np.number):
        prepared = _put_aside(whole, float(given.validation), given.groups, key)
    else:
        is_pair = isinstance(given.validation, tuple) and len(given.validation) == 2
        held_out, condition = given.validation if is_pair else (given.validation, None)
        held_out = check(manifold, held_out, "validation")
        if encoder is not None and condition is None:
            raise ValueError("with conditions, validation must be a pair (points, conditions).")
        features = _encoded(encoder, condition, len(held_out))
        prepared = dataclasses.replace(whole, held_out=held_out, held_features=features)
    return _around_mean(manifold, prepared) if moves else prepared


def _encoded(encoder: Condition | None, condition: Any, count: int) -> Float[Array, "n c"]:
    return jnp.zeros((count, 0)) if encoder is None else encoder(condition, count)


def _put_aside(whole: Prepared, fraction: float, names: Any, key: Key) -> Prepared:
    """The data with a fraction of them taken as the validation part."""
    if not 0 < fraction < 1:
        raise ValueError(
            f"validation must be a fraction between 0 and 1, or points, got {fraction!r}."
        )
    groups = whole.groups
    if groups is None:
        first, second = split(key, len(whole.points), fraction)
    elif np.max(groups) == 0:
        raise ValueError(
            f"all points are of one group, {np.ravel(names)[0]}; at least two are needed "
            "to put one aside. Leave groups out, or give validation points of their own."
        )
    else:
        first, second = split_groups(key, groups, fraction)
    features, held = whole.features[first], whole.features[second]
    _check_labels(whole.encoder, features, held)
    return Prepared(
        points=whole.points[first],
        features=features,
        held_out=whole.points[second],
        held_features=held,
        encoder=whole.encoder,
        groups=None if groups is None else groups[first],
        held_groups=None if groups is None else groups[second],
        held_out_is_ours=True,
    )


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


def _check_labels(encoder, features, held):
    """Warn of labels that were put aside altogether."""
    if encoder is None or not encoder.labels:
        return
    missing = np.flatnonzero((np.sum(features, axis=0) == 0) & (np.sum(held, axis=0) > 0))
    if len(missing):
        warn(
            f"the label {encoder.labels[missing[0]]!r} occurs only among the points that "
            "are put aside, so nothing is learned of it; give validation points of your own, or "
            "another key."
        )


def _around_mean(manifold: AbstractManifold, prepared: Prepared) -> Prepared:
    """Prepared data, still in double precision, moved to where their mean is the origin."""
    with jax.enable_x64(True):
        centre = np.asarray(frechet_mean(manifold, prepared.points))
    points = moved(manifold, prepared.points, centre, "data")
    held_out = moved(manifold, prepared.held_out, centre, "validation")
    return dataclasses.replace(prepared, points=points, held_out=held_out, centre=centre)
