r"""Kernel densities as opponents that stay as they are, whatever becomes of `calor.fit_density`.

    p(x | c) = sum_k w_k sum_i a_i(c) K(t_ki, x | x_i) + w_0 broad

* one bandwidth, of the largest likelihood on validation data, and a broad part of two percent;
* several bandwidths, the same at all points, with weights by expectation and maximization;
* bandwidths that adapt to neighbours: t_ki = (c_k d_i)^2 / 2 with d_i the distance of x_i to its
  second, fifth or fifteenth neighbour and c_k 1/4, 1/2 or 1, with such weights.

Broad is the uniform law, or where there is none a wide kernel around the mean.  With conditions the
shares a_i are those of a kernel regression, else all the same.  Bandwidths, weights and widths are
chosen on the validation part; then there are kernels around its points too.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.spatial import KDTree

from ..data.conditions import Condition, learn_condition
from ..models.model import mixture_value, mixture_weights
from .charts import Array, Family, in_blocks, log_sum_exp
from .sets import Problem

NEIGHBOURS, FRACTIONS = (2, 5, 15), (0.25, 0.5, 1.0)
_BROAD = 0.02
_CANDIDATES, _ROWS = 24, 10
_POINTS = 1024  # of the validation part that one bandwidth is chosen on
_SMALLEST = 1e-8
_WIDTHS = tuple(np.geomspace(0.03, 3, 12))
_APART = 0.01


@dataclasses.dataclass(frozen=True)
class Kernels:
    """A density: kernels around points, and a broad part."""

    family: Family
    points: Array
    times: Float[Array, "k n"]
    weights: Float[Array, " k"]
    """Of the rows of times, and of the broad part."""
    encoder: Condition | None
    features: Float[Array, "n c"]
    width: float

    def log_prob(self, x: Array, condition: Array | None) -> Float[Array, " m"]:
        """The log-density at points."""
        parts = self.log_parts(x, condition)
        return np.logaddexp.reduce(parts + np.log(self.weights), axis=1)

    def log_parts(self, x: Array, condition: Array | None) -> Float[Array, "m k"]:
        """log-densities of every row of times, and of the broad part."""
        features = _features(self.encoder, condition, len(x))
        log_norms = [self.family.log_norm(k) for k in 1 / (2 * self.times)]
        found = np.empty((len(x), len(self.times) + 1))
        for rows, halves, volume in in_blocks(self.family, x, self.points):
            shares = self._log_shares(features[rows])[:, :, None]
            for number, (t, log_norm) in enumerate(zip(self.times, log_norms, strict=True)):
                values = halves * (-1 / (2 * t))[:, None]
                values += volume + shares - log_norm[:, None]
                found[rows, number] = log_sum_exp(values)
        found[:, -1] = self.family.log_broad(x, self.points)
        return found

    def _log_shares(self, features):
        """log a_i(c) of every point."""
        if self.encoder is None:
            return np.full((1, len(self.points)), -np.log(len(self.points)))
        squares = np.sum((features[:, None] - self.features) ** 2, axis=2)
        values = -squares / (2 * self.width**2)
        return values - log_sum_exp(values.copy())[:, None]


Rule = Callable[[Kernels, Problem], Kernels]
"""Chooses bandwidths and weights for kernels around training points, by the validation part."""


def fit_kernels(rule: Rule, train: Problem, held: Problem) -> Kernels:
    """A kernel density whose bandwidths were chosen by a rule, around all points."""
    encoder = None if train.condition is None else learn_condition(train.condition)
    start = Kernels(
        train.family,
        train.points,
        np.zeros((0, len(train.points))),
        np.array([1 - _BROAD, _BROAD]),
        encoder,
        _features(encoder, train.condition, len(train.points)),
        _APART,
    )
    chosen = rule(start, held)
    added = _features(encoder, held.condition, len(held.points))
    whole = dataclasses.replace(
        chosen,
        points=np.concatenate([train.points, held.points]),
        features=np.concatenate([chosen.features, added]),
    )
    times = np.repeat(chosen.times[:, :1], len(whole.points), axis=1)
    return dataclasses.replace(whole, times=_by_neighbours(whole) if rule is adaptive else times)


def one_bandwidth(start: Kernels, held: Problem) -> Kernels:
    """The bandwidth, and with conditions the width, of the largest likelihood."""
    few = held.rows(np.random.default_rng(0).permutation(len(held.points))[:_POINTS])
    asked = few.points, few.condition
    times = _candidates(start)

    def with_time(density: Kernels, t: float) -> Kernels:
        return dataclasses.replace(density, times=np.full((1, len(density.points)), t))

    def best_time(density: Kernels) -> Kernels:
        rows = np.repeat(times[:, None], len(density.points), axis=1)
        parts = dataclasses.replace(density, times=rows).log_parts(*asked)
        values = np.logaddexp(np.log1p(-_BROAD) + parts[:, :-1], np.log(_BROAD) + parts[:, -1:])
        return with_time(density, times[np.argmax(values.mean(axis=0))])

    if start.encoder is None:
        return best_time(start)
    found = best_time(dataclasses.replace(start, width=_WIDTHS[len(_WIDTHS) // 2]))
    log_weights = np.log(found.weights)
    widths = [dataclasses.replace(found, width=width) for width in _WIDTHS]
    values = [np.logaddexp.reduce(each.log_parts(*asked) + log_weights, axis=1) for each in widths]
    return best_time(widths[int(np.argmax(np.mean(values, axis=1)))])


def several_bandwidths(start: Kernels, held: Problem) -> Kernels:
    """The same bandwidths at all points, with weights."""
    times = _candidates(start)[:: _CANDIDATES // _ROWS]
    rows = np.repeat(times[:, None], len(start.points), axis=1)
    return _weighed(dataclasses.replace(start, times=rows), held)


def adaptive(start: Kernels, held: Problem) -> Kernels:
    """Bandwidths by the distance of neighbours, with weights."""
    return _weighed(dataclasses.replace(start, times=_by_neighbours(start)), held)


def _weighed(density: Kernels, held: Problem) -> Kernels:
    """With the weights, and the width, of the largest likelihood."""
    widths = (_APART,) if density.encoder is None else _WIDTHS
    tried = [dataclasses.replace(density, width=width) for width in widths]
    parts = [each.log_parts(held.points, held.condition) for each in tried]
    best = max(range(len(tried)), key=lambda number: np.mean(mixture_value(parts[number])))
    return dataclasses.replace(tried[best], weights=mixture_weights(parts[best]))


def _candidates(start: Kernels) -> Float[Array, " b"]:
    """Times from the distance of neighbours to the spread of the data."""
    places = start.family.places(start.points)
    shortest = max(_SMALLEST, float(np.quantile(_distances(places, 1), 0.1)) ** 2 / 8)
    spread = float(np.sum(np.var(places[:, 0], axis=0)))
    return np.geomspace(shortest, max(spread / 4, 2 * shortest), _CANDIDATES)


def _by_neighbours(density: Kernels) -> Float[Array, "k n"]:
    """Times that adapt to the distance of neighbours."""
    places = density.family.places(density.points)
    rows = [c * _distances(places, k) for k in NEIGHBOURS for c in FRACTIONS]
    return np.maximum(np.stack(rows) ** 2 / 2, _SMALLEST)


def _distances(places: Float[Array, "n g d"], number: int) -> Float[Array, " n"]:
    """How far the neighbour of a given number is, among different points and all their images."""
    unique = np.unique(places.reshape(-1, places.shape[2]), axis=0)
    number = min(number, len(unique) - 1)
    if number < 1:
        return np.full(len(places), 1e-3)
    return np.asarray(KDTree(unique).query(places[:, 0], number + 1)[0])[:, -1]


def _features(encoder: Condition | None, condition: Array | None, count: int) -> Array:
    """Conditions as numbers of order one."""
    if encoder is None:
        return np.zeros((count, 0))
    return np.asarray(encoder(condition, count), float)
