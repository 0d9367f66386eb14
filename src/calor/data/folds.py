"""What is put aside: data split into a training and a validation part, once or several times."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.compiled import quickly
from ..core.types import Key
from .conditions import Condition

# Blocks of a single validation part, what is chosen by some of which the others judge.
_BLOCKS = 3
# What may be put aside for a model that is judged by two parts.
_MOST_ASIDE = 0.4 + 1e-9


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
            return self, [spread(len(self.whole.held_out), most)] * models
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
            return np.ones(len(spread(len(self.whole.held_out), most)))
        rows, given = np.concatenate(self.rows), self.whole.weights
        return np.ones(len(rows)) if given is None else given[rows]

    def blocks(self, most: int | None = None) -> Int[np.ndarray, " h"]:
        """Which of several blocks each row is in that `judged` returns values for.

        What is chosen by some of these rows is judged by others: blocks are the parts, or, of a
        single part, thirds of it, with groups whole.
        """
        if len(self.rows) > 1:
            return np.repeat(np.arange(len(self.rows)), [len(rows) for rows in self.rows])
        rows = self.rows[0] if self.rows else spread(len(self.whole.held_out), most)
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


def spread(count: int, most: int | None) -> Int[np.ndarray, " m"]:
    """At most so many rows, from everywhere."""
    if most is None or most >= count:
        return np.arange(count)
    return np.linspace(0, count - 1, most).astype(int)


def _mixed(values: Sequence[Float[np.ndarray, "m ..."]]) -> Float[np.ndarray, "m ..."]:
    """The log-density of a mixture of equal shares."""
    return np.logaddexp.reduce(np.stack(values), axis=0) - np.log(len(values))
