"""Data at the door: checked once, with the number of the row that is wrong, then trusted."""

import dataclasses
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.types import Key
from ..manifolds import AbstractManifold
from ..manifolds.means import frechet_mean
from .conditions import Condition, learn_condition
from .points import checked_points, doubled_points, moved


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
    encoder: Condition | None
    centre: np.ndarray | None
    groups: Int[np.ndarray, " n"] | None = None
    """The number of the group of each point, if they were given."""
    held_groups: Int[np.ndarray, " m"] | None = None
    taken: bool = eqx.field(static=True, default=False)
    """Whether the validation part was taken from the data, not given by itself."""


def prepare(
    manifold: AbstractManifold,
    data: Any,
    condition: Any,
    validation: Any,
    key: Key,
    owner: str,
    centre: bool = True,
    groups: Any = None,
) -> Prepared:
    """Check the data once, encode the conditions, and put a validation part aside.

    Groups of points stay together: they are in the training part or in the validation part.

    Where isometries take any point to the origin, the Frechet mean of the training part is taken
    there: densities do not change, and a network sees points near the origin.
    """
    moves = centre and manifold.moves_to_origin()
    check: Any = doubled_points if moves else checked_points
    points = check(manifold, data, owner, "data", at_least=2)
    encoder = None
    features = jnp.zeros((len(points), 0))
    if condition is not None:
        encoder = learn_condition(condition, owner)
        if len(np.asarray(condition)) != len(points):
            raise ValueError(
                f"{owner}: got {len(np.asarray(condition))} conditions for {len(points)} points."
            )
        features = encoder(condition, len(points), owner)
    numbers = None if groups is None else _numbered(groups, len(points), owner)
    if isinstance(validation, int | float | np.number):
        if not 0 < validation < 1:
            raise ValueError(
                f"{owner}: validation must be a fraction between 0 and 1, or points, got "
                f"{validation!r}."
            )
        together = None, None
        if numbers is None:
            first, second = split(key, len(points), float(validation))
        else:
            first, second = split_groups(key, _several(numbers, groups, owner), float(validation))
            together = numbers[first], numbers[second]
        _check_labels(encoder, features[first], features[second], owner)
        parts = points[first], features[first], points[second], features[second]
        prepared = Prepared(*parts, encoder, None, *together, taken=True)
        return _around_mean(manifold, prepared, moves, owner)
    held_condition = None
    if isinstance(validation, tuple) and len(validation) == 2:
        validation, held_condition = validation
    held = check(manifold, validation, owner, "validation")
    held_features = jnp.zeros((len(held), 0))
    if encoder is not None:
        if held_condition is None:
            raise ValueError(
                f"{owner}: with conditions, validation must be a pair (points, conditions)."
            )
        held_features = encoder(held_condition, len(held), owner)
    parts = points, features, held, held_features
    return _around_mean(manifold, Prepared(*parts, encoder, None, numbers), moves, owner)


def _numbered(groups, count, owner):
    """Groups as numbers from zero."""
    try:
        values = np.asarray(groups)
        if values.dtype == object:
            values = np.asarray(values.tolist())
    except ValueError as error:
        raise ValueError(f"{owner}: groups must be one name for each point: {error}") from error
    if values.ndim != 1 or len(values) != count or values.dtype.kind not in "iufbUS":
        raise ValueError(
            f"{owner}: groups must name one group for each of the {count} points, by numbers or "
            f"strings, got an array of {values.dtype} of shape {values.shape}."
        )
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise ValueError(f"{owner}: groups has NaN in row {int(np.argmax(np.isnan(values)))}.")
    return np.unique(values, return_inverse=True)[1]


def _several(numbers, groups, owner):
    """The numbers of groups, if there is one to put aside and one to learn from."""
    if np.max(numbers) == 0:
        raise ValueError(
            f"{owner}: all points are of one group, {np.ravel(groups)[0]}; at least two are needed "
            "to put one aside. Leave groups out, or give validation points of their own."
        )
    return numbers


def _check_labels(encoder, features, held, owner):
    """Warn of labels that were put aside altogether."""
    if encoder is None or not encoder.labels:
        return
    missing = np.flatnonzero((np.sum(features, axis=0) == 0) & (np.sum(held, axis=0) > 0))
    if len(missing):
        warnings.warn(
            f"{owner}: the label {encoder.labels[missing[0]]!r} occurs only among the points that "
            "are put aside, so nothing is learned of it; give validation points of your own, or "
            "another key.",
            stacklevel=5,
        )


def _around_mean(manifold, prepared, moves, owner):
    """Prepared data, still in double precision, moved to where their mean is the origin."""
    if not moves:
        return prepared
    with jax.enable_x64(True):
        centre = np.asarray(frechet_mean(manifold, prepared.points))
    points, held = (
        moved(manifold, part, centre, owner, name)
        for part, name in ((prepared.points, "data"), (prepared.held_out, "validation"))
    )
    return dataclasses.replace(prepared, points=points, held_out=held, centre=centre)
