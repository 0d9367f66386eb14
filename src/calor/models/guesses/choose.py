"""How many Gaussians a mixture has, and how they are shrunk: by likelihood on points put aside.

The choices are few: the number of parts from a short list, as long as it helps, then one kind of
shrinkage after the other.  Labels have weights of their own, or a whole mixture, whichever is more
likely for the points of the label that were put aside.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .em import Parts, Points, Shrinkage, fit_labels, fit_parts

Split = tuple[Int[np.ndarray, " n"], Int[np.ndarray, " m"]]
"""The rows of points to learn from, and of those put aside."""

# Numbers of parts that are tried, in order, until so many do not help; and points for each.
COUNTS, _PATIENCE, _POINTS_EACH = (1, 2, 4, 8, 16, 32, 64, 128), 2, 8
# Strengths and round shares that are tried, and factors of all covariances.
_STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 1e6)
_ROUND = (0.0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
_FACTORS = (0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0)
_USUAL = 1.0
# Points that a label needs to have a mixture of its own, in units of the dimension.
_OWN = 2.0


@dataclasses.dataclass(frozen=True)
class Choice:
    """A kind of mixture."""

    count: int
    """Of parts; zero if every label has one."""
    shrinkage: Shrinkage
    factor: float = 1.0


class Chosen(NamedTuple):
    """A mixture of all points, and what mixtures that have not seen them say of those put aside."""

    choice: Choice
    parts: Parts
    judged: tuple[Float[np.ndarray, " m"], ...]
    """The log-densities of the points that each split puts aside."""


def choose(
    points: Points,
    labels: int,
    splits: Sequence[Split],
    rows: Int[np.ndarray, " r"],
    seed: int,
    counts: Sequence[int] = COUNTS,
) -> Chosen:
    """The mixture whose parts are common to all labels, with weights for each label.

    Args:
        points: the data, and those put aside if they are others.
        labels: how many labels there are.
        splits: what is put aside in turn.
        rows: those of the mixture of all.
        seed: of the starts.
        counts: numbers of parts that are tried.
    """
    search = _Search(points, labels, splits, seed)
    best = search.best([Choice(0, Shrinkage(1e6, share)) for share in _ROUND])
    shrinkage, missed, least = best.shrinkage, 0, min(len(rows) for rows, _ in splits)
    for count in counts:
        if count == 1 and labels == 1:
            continue  # tried above
        if count * _POINTS_EACH > least or missed == _PATIENCE:
            break
        tried = Choice(count, dataclasses.replace(shrinkage, strength=_USUAL))
        missed = 0 if search.value(tried) > search.value(best) else missed + 1
        best = search.best([best, tried])
    for name, values in (("strength", _STRENGTHS), ("round", _ROUND)):
        best = search.climbed(best, name, values)
    return search.found(best, rows)


class _Search:
    """Choices that were tried, with their values."""

    def __init__(self, points: Points, labels: int, splits: Sequence[Split], seed: int):
        self._points, self._labels, self._splits, self._seed = points, labels, splits, seed
        self._tried: dict[Choice, tuple[float, float, list[np.ndarray]]] = {}
        self._fits: dict[Choice, list[Parts]] = {}
        self._starts: dict[Choice, list[Parts]] = {}
        """What fits go on from: those of a choice that is nearly the same."""

    def value(self, choice: Choice) -> float:
        """The mean log-density of points put aside, with the best factor."""
        return self._judged(choice)[0]

    def best(self, choices: Sequence[Choice]) -> Choice:
        """The first of the largest value."""
        return max(choices, key=self.value)

    def climbed(self, best: Choice, name: str, values: Sequence[float]) -> Choice:
        """A choice whose shrinkage was changed in one way, both ways as long as it helps."""
        now = dataclasses.asdict(best.shrinkage)[name]
        ordered = sorted({*values, now})
        start = ordered.index(now)
        for way in (ordered[start + 1 :], ordered[:start][::-1]):
            for value in way:
                shrinkage = dataclasses.replace(best.shrinkage, **{name: value})
                tried = dataclasses.replace(best, shrinkage=shrinkage)
                self._starts[tried] = self._fits[best]
                if self.value(tried) <= self.value(best):
                    break
                best = tried
        return best

    def found(self, choice: Choice, rows: Int[np.ndarray, " r"]) -> Chosen:
        """The mixture of so many points."""
        _, factor, judged = self._judged(choice)
        parts = self._fitted(choice, rows).wider(factor)
        return Chosen(dataclasses.replace(choice, factor=factor), parts, tuple(judged))

    def _judged(self, choice):
        if choice not in self._tried:
            starts = self._starts.get(choice, [None] * len(self._splits))
            pairs = zip(self._splits, starts, strict=True)
            fits = [self._fitted(choice, rows, start) for (rows, _), start in pairs]
            held = [self._points.some(aside) for _, aside in self._splits]
            pairs = zip(fits, held, strict=True)
            values = [parts.log_densities(points, _FACTORS) for parts, points in pairs]
            weights = np.concatenate([points.weights for points in held])
            means = np.average(np.concatenate(values, axis=1), axis=1, weights=weights)
            self._fits[choice] = fits
            factor = int(np.argmax(means))
            judged = [part[factor] for part in values]
            self._tried[choice] = float(means[factor]), _FACTORS[factor], judged
        return self._tried[choice]

    def _fitted(self, choice, rows, start=None):
        points = self._points.some(rows)
        if choice.count == 0:
            return fit_labels(points, self._labels, choice.shrinkage)
        random = np.random.default_rng(self._seed)
        return fit_parts(points, self._labels, choice.count, choice.shrinkage, random, start)


def choose_by_label(
    points: Points,
    labels: int,
    splits: Sequence[Split],
    rows: Int[np.ndarray, " r"],
    seed: int,
    counts: Sequence[int] = COUNTS,
) -> Chosen:
    """The same, but that labels have mixtures of their own where that is more likely."""
    shared = choose(points, labels, splits, rows, seed, counts)
    if labels == 1:
        return shared
    judged = [values.copy() for values in shared.judged]
    own: dict[int, Parts] = {}
    for label in range(labels):
        inside = [tuple(part[points.labels[part] == label] for part in split) for split in splits]
        inside = [(rows, aside) for rows, aside in inside if len(aside)]
        if not inside or min(len(rows) for rows, _ in inside) < _OWN * points.places.shape[1]:
            continue
        alone = points._replace(labels=np.zeros_like(points.labels))
        found = choose(alone, 1, inside, rows[points.labels[rows] == label], seed, counts)
        aside = [points.labels[part] == label for _, part in splits]
        before = np.concatenate([values[of] for values, of in zip(judged, aside, strict=True)])
        after = np.concatenate(found.judged)
        weights = np.concatenate([points.weights[part] for _, part in inside])
        if np.sum(weights * after) <= np.sum(weights * before):
            continue
        own[label] = found.parts
        sizes = np.cumsum([int(of.sum()) for of in aside])[:-1]
        for values, of, new in zip(judged, aside, np.split(after, sizes), strict=True):
            values[of] = new
    return Chosen(shared.choice, _joined(shared.parts, own, labels), tuple(judged))


def _joined(shared: Parts, own: dict[int, Parts], labels: int) -> Parts:
    """Parts for all labels: those of its own for some, the shared ones for the rest."""
    if not own:
        return shared
    groups = [shared] if len(own) < labels else []
    groups += list(own.values())
    sizes = np.cumsum([0, *(len(parts.means) for parts in groups)])
    log_weights = np.full((labels, sizes[-1]), np.log(1e-30))
    for label in range(labels):
        place = list(own).index(label) + (len(own) < labels) if label in own else 0
        row = 0 if label in own else label
        log_weights[label, sizes[place] : sizes[place + 1]] = groups[place].log_weights[row]
    return Parts(
        log_weights,
        np.concatenate([parts.means for parts in groups]),
        np.concatenate([parts.covariances for parts in groups]),
    )
