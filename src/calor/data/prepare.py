"""Data at the door: checked once, with the number of the row that is wrong, then trusted."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.compiled import quickly
from ..core.doors import warn
from ..core.types import Key
from ..manifolds import AbstractManifold
from ..manifolds.means import frechet_mean
from .conditions import Condition, learn_condition, plain
from .points import checked_points, doubled_points, moved

# Blocks of a single validation part, what is chosen by some of which the others judge.
_BLOCKS = 3
# The share of different points below which there is a warning.
_REPEATED = 0.5
# What is put aside by default for one model; at most and at least for each of several.
_USUAL_FRACTION, _LARGEST_FRACTION, _SMALLEST_FRACTION = 0.1, 0.2, 0.01
# What may be put aside for a model that is judged by two parts.
_MOST_ASIDE = 0.4 + 1e-9


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


def split(
    key: Key, count: int, fraction: float, parts: int = 1
) -> tuple[Int[np.ndarray, " m"], ...]:
    """Random rows for so many validation parts, with no row in two; some rows are in none."""
    order = np.asarray(shuffled(key, count))
    held = max(1, min(round(fraction * count), count // parts, count - 1))
    return tuple(
        order[part * held : (part + 1) * held] for part in range(min(parts, count // held))
    )


def split_groups(
    key: Key, groups: Int[np.ndarray, " n"], fraction: float, parts: int = 1
) -> tuple[Int[np.ndarray, " m"], ...]:
    """The same with whole groups in each part, of about the same sizes.

    Args:
        key: a random key.
        groups: the number of the group of each row, from zero.
        fraction: of the rows in a validation part, about.
        parts: how many; fewer where there are not so many groups.
    """
    sizes = np.bincount(groups)
    left, found = list(np.asarray(shuffled(key, len(sizes)))), []
    for _ in range(min(parts, len(sizes))):
        missing, held = fraction * len(groups), []
        for group in left:
            if abs(missing - sizes[group]) < abs(missing):  # it brings the part nearer to its size
                held.append(group)
                missing -= sizes[group]
        held = held[: len(sizes) - 1] or [min(left, key=lambda group: sizes[group])]
        left = [group for group in left if group not in held]
        # In random order, as whoever takes the first of them expects.
        rows = np.flatnonzero(np.isin(groups, held))
        found.append(rows[np.argsort(np.asarray(jr.uniform(key, (len(groups),)))[rows])])
        if not left:
            break
    return tuple(found)


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
    weights: Float[np.ndarray, " n"] | None = None
    """How much each point counts, one in the mean, if they do not count the same."""
    held_weights: Float[np.ndarray, " m"] | None = None
    starts: Float[np.ndarray, " n"] | None = None
    """The time after which heat has spread as much as measuring has, if that is known."""
    held_starts: Float[np.ndarray, " m"] | None = None

    def put_aside(self, rows: Int[np.ndarray, " m"], others: Int[np.ndarray, " o"]) -> "Prepared":
        """The same data with some rows as the validation part, and without some others."""
        kept = np.setdiff1d(np.arange(len(self.points)), np.concatenate([rows, others]))

        def of(values: Any, chosen: np.ndarray) -> Any:
            return None if values is None else values[chosen]

        return Prepared(
            points=taken(self.points, kept),
            features=taken(self.features, kept),
            held_out=taken(self.points, rows),
            held_features=taken(self.features, rows),
            encoder=self.encoder,
            centre=self.centre,
            groups=of(self.groups, kept),
            held_groups=of(self.groups, rows),
            held_out_is_ours=True,
            weights=of(self.weights, kept),
            held_weights=of(self.weights, rows),
            starts=of(self.starts, kept),
            held_starts=of(self.starts, rows),
        )


def taken(array: Array, rows: Int[np.ndarray, " m"]) -> Array:
    """Rows of an array, by NumPy, which compiles nothing."""
    return jnp.asarray(np.asarray(array)[rows])


shuffled: Callable[..., Array] = quickly(jr.permutation)


@dataclasses.dataclass(frozen=True)
class Folds:
    """Data of which several parts are put aside in turn, or that came with a validation part.

    Models that are fitted without some of these parts say of every row that was put aside what
    models say that have not seen it.
    """

    whole: Prepared
    """All of the data, and the validation part if it was given by itself."""
    rows: tuple[Int[np.ndarray, " m"], ...] = ()
    """What is put aside in turn, no row twice; nothing if a validation part was given."""
    unseen: tuple[Int[np.ndarray, " o"], ...] = ()
    """What is put aside with each but not judged, since there is enough."""
    condition: Any = None
    """What came with the points of the whole, as it came."""
    is_crossed: bool = False
    """Whether a model is fitted without all parts but one, so that every row is judged by the
    average of all models but one, and not without one part."""

    def crossed(self) -> "Folds":
        """The same parts, each put aside for all models but one, if that leaves enough."""
        sizes = [len(rows) + len(more) for rows, more in zip(self.rows, self.unseen, strict=True)]
        most = sum(sizes) - min(sizes, default=0)
        enough = most <= _MOST_ASIDE * len(self.whole.points)
        return dataclasses.replace(self, is_crossed=len(self.rows) > 2 and enough)

    def aside(self, number: int) -> tuple[int, ...]:
        """The numbers of the parts that the model of such a number is fitted without."""
        if not self.is_crossed:
            return (number,)
        return tuple(other for other in range(len(self.rows)) if other != number)

    def part(self, number: int) -> Prepared:
        """The data for the model of such a number."""
        if not self.rows:
            return self.whole
        aside = self.aside(number)
        rows, unseen = ([of[i] for i in aside] for of in (self.rows, self.unseen))
        part = self.whole.put_aside(np.concatenate(rows), np.concatenate(unseen))
        # What judges models tells them nothing.
        return dataclasses.replace(part, held_out_is_ours=len(self.rows) == 1)

    def few(self, most: int, models: int) -> tuple["Folds", list[Int[np.ndarray, " m"]]]:
        """The same with at most so many rows to judge.

        Returns them, and for each of so many models where its rows are among those of its part.
        """
        if not self.rows:
            return self, [_spread(len(self.whole.held_out), most)] * models
        each = max(1, most // len(self.rows))
        found = []
        for number in range(models):
            lengths = [len(self.rows[i]) for i in self.aside(number)]
            starts = np.cumsum([0, *lengths[:-1]])
            first = [s + np.arange(min(each, n)) for s, n in zip(starts, lengths, strict=True)]
            found.append(np.concatenate(first))
        return dataclasses.replace(self, rows=tuple(rows[:each] for rows in self.rows)), found

    def weights(self, most: int | None = None) -> Float[np.ndarray, " h"]:
        """How much the rows count that `judged` returns values for."""
        if not self.rows:
            return np.ones(len(_spread(len(self.whole.held_out), most)))
        rows, given = np.concatenate(self.rows), self.whole.weights
        return np.ones(len(rows)) if given is None else given[rows]

    def blocks(self, most: int | None = None) -> Int[np.ndarray, " h"]:
        """Which of several blocks each row is in that `judged` returns values for.

        What is chosen by some of these rows is judged by others: blocks are the parts, or, of a
        single part, thirds of it, with groups whole.
        """
        if len(self.rows) > 1:
            return np.repeat(np.arange(len(self.rows)), [len(rows) for rows in self.rows])
        rows = self.rows[0] if self.rows else _spread(len(self.whole.held_out), most)
        members = np.arange(len(rows))
        if self.rows and self.whole.groups is not None:
            members = np.unique(self.whole.groups[rows], return_inverse=True)[1]
        return members % _BLOCKS

    def judged(self, values: Sequence[Float[np.ndarray, "m ..."]]) -> Float[np.ndarray, "h ..."]:
        """The log-density of every row put aside, from those that each model has not seen.

        Where several models judge a row it is that of their mixture.
        """
        if not self.rows:
            return _mixed(values)
        pieces: list[list[np.ndarray]] = [[] for _ in self.rows]
        for number, found in enumerate(values):
            aside = self.aside(number)
            ends = np.cumsum([len(self.rows[i]) for i in aside])[:-1]
            for i, piece in zip(aside, np.split(found, ends), strict=True):
                pieces[i].append(piece)
        return np.concatenate([_mixed(piece) for piece in pieces])


def _spread(count: int, most: int | None) -> Int[np.ndarray, " m"]:
    """At most so many rows, from everywhere."""
    if most is None or most >= count:
        return np.arange(count)
    return np.linspace(0, count - 1, most).astype(int)


def _mixed(values: Sequence[Float[np.ndarray, "m ..."]]) -> Float[np.ndarray, "m ..."]:
    """The log-density of a mixture of equal shares."""
    return np.logaddexp.reduce(np.stack(values), axis=0) - np.log(len(values))


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
        few = _spread(len(held_out), most)
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
