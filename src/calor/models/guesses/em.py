r"""Mixtures of Gaussians with full covariances in R^d, by expectation and maximization.

    p(z | l) = sum_k w_lk N(z; m_k, C_k),

the parts common to all labels l, their weights not.  Few points say little of a covariance, so that
each is shrunk: with N_k the weight of part k and S_k its scatter,

    C_k = c (S_k + s P) / (N_k + s),      P = (1 - a) W + a tr(W)/d I,

where W = sum_k S_k / sum_k N_k is what the parts have in common.  The strength s, the round share a
and the factor c, which widens all parts for points of groups that are not among the data, are
chosen by likelihood on points that are left out (`choose`).

Everything is NumPy in double precision, with arrays (parts, points, d) in one product each.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

# The most rounds of expectation and maximization, those after a good start, and the gain of the
# mean log-likelihood below which they end.
_ROUNDS, _MORE, _GAIN = 40, 8, 3e-4
# Points that share their weights among the parts as all labels do, for each label.
_SHARED = 2.0
# The smallest weight of a part for a label, so that logarithms are finite.
_SMALLEST = 1e-30


class Points(NamedTuple):
    """Places with their labels, and how much each counts."""

    places: Float[np.ndarray, "n d"]
    labels: Int[np.ndarray, " n"]
    """Numbers from zero; zero where there are no labels."""
    weights: Float[np.ndarray, " n"]

    def some(self, rows: np.ndarray) -> "Points":
        """Some of the points."""
        return Points(self.places[rows], self.labels[rows], self.weights[rows])


@dataclasses.dataclass(frozen=True)
class Shrinkage:
    """How covariances of parts are drawn together."""

    strength: float
    """The points that what is common counts as, in units of the dimension."""
    round: float
    """The share of a multiple of the identity in what is common."""


class Parts(NamedTuple):
    """The parts of a mixture."""

    log_weights: Float[np.ndarray, "l k"]
    """Of the parts, for each label."""
    means: Float[np.ndarray, "k d"]
    covariances: Float[np.ndarray, "k d d"]

    def log_densities(
        self, points: Points, factors: tuple[float, ...] = (1.0,)
    ) -> Float[np.ndarray, "f n"]:
        """The log-density of each point, if all covariances are multiplied by each factor."""
        squares, volumes = self._squares(points.places)
        weights, size = self.log_weights[points.labels].T, points.places.shape[1]
        constant = size * np.log(2 * np.pi)
        return np.stack(
            [
                _log_sum(weights - (squares / c + size * np.log(c) + constant) / 2 - volumes)
                for c in factors
            ]
        )

    def wider(self, factor: float) -> "Parts":
        """The same with all covariances multiplied by a factor."""
        return self._replace(covariances=factor * self.covariances)

    def _squares(self, places):
        """Squared distances (k, n) in units of each part, and the logarithms (k, 1) of volumes."""
        factors = np.linalg.cholesky(self.covariances)
        white = np.linalg.inv(factors)
        inside = (
            places @ white.transpose(0, 2, 1) - np.einsum("kij,kj->ki", white, self.means)[:, None]
        )
        volumes = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
        return np.einsum("knd,knd->kn", inside, inside), volumes[:, None]


def fit_parts(
    points: Points,
    labels: int,
    count: int,
    shrinkage: Shrinkage,
    random: np.random.Generator,
    start: Parts | None = None,
) -> Parts:
    """A mixture of large likelihood.

    Args:
        points: the data.
        labels: how many labels there are.
        count: of parts; fewer if there are fewer different points.
        shrinkage: how covariances are drawn together.
        random: for the start, centres that are far from each other (k-means++).
        start: a mixture to go on from, a few rounds, if there is one.
    """
    places, weights = points.places, points.weights
    middle = np.average(places, axis=0, weights=weights)
    inside = points._replace(places=places - middle)  # scatters below are differences
    if start is None:
        centres = _spread_out(inside, count, random)
        gaps = np.stack([((inside.places - centre) ** 2).sum(axis=1) for centre in centres])
        shares = np.eye(len(centres))[:, np.argmin(gaps, axis=0)]
        parts, rounds = Parts(np.zeros((labels, 0)), centres, np.zeros(0)), _ROUNDS
    else:
        parts, rounds = start._replace(means=start.means - middle), _MORE
        shares = _expected(parts, inside)[0]
    before = -np.inf
    for _ in range(rounds):
        parts = _maximized(inside, labels, shares, shrinkage, parts.means)
        shares, values = _expected(parts, inside)
        mean = np.average(values, weights=weights)
        if mean - before < _GAIN:
            break
        before = mean
    return parts._replace(means=parts.means + middle)


def _expected(parts, points):
    """The share (k, n) of every part in each point, and the log-densities up to a constant."""
    squares, volumes = parts._squares(points.places)
    joint = parts.log_weights[points.labels].T - squares / 2 - volumes
    values = _log_sum(joint)
    return np.exp(joint - values), values


def fit_labels(points: Points, labels: int, shrinkage: Shrinkage) -> Parts:
    """One Gaussian for each label; one of no points is as wide as the others, around all."""
    middle = np.average(points.places, axis=0, weights=points.weights)
    inside = points._replace(places=points.places - middle)
    shares = np.eye(labels)[:, points.labels]
    parts = _maximized(inside, labels, shares, shrinkage, np.zeros((labels, len(middle))))
    own = np.log(np.maximum(np.eye(labels), _SMALLEST))
    return Parts(own, parts.means + middle, parts.covariances)


def _spread_out(points, count, random):
    """Centres among the points, each with a chance that grows with its distance from the others."""
    places, weights = points.places, points.weights
    scaled = places / (places.std(axis=0) + 1e-12)
    gaps, chosen = np.full(len(places), np.inf), []
    chance = weights / weights.sum()
    for _ in range(min(count, len(places))):
        chosen.append(random.choice(len(places), p=chance))
        gaps = np.minimum(gaps, ((scaled - scaled[chosen[-1]]) ** 2).sum(axis=1))
        chance = weights * gaps
        if not chance.sum() > 0:
            break  # all other points are among the centres
        chance = chance / chance.sum()
    return places[chosen]


def _maximized(points, labels, shares, shrinkage, means):
    """The parts of the largest likelihood, given the share (k, n) of every part in each point."""
    places, size = points.places, points.places.shape[1]
    shares = shares * points.weights
    mass = shares.sum(axis=1)
    # A part that lost all its points stays where it is.
    means = (shares @ places + 1e-6 * means) / (mass + 1e-6)[:, None]
    scatters = np.empty((len(means), size, size))
    for part, (share, mean) in enumerate(zip(shares, means, strict=True)):
        near = share > 1e-6
        gaps = places[near] - mean
        scatters[part] = (share[near] * gaps.T) @ gaps
    within = scatters.sum(axis=0) / mass.sum()
    middle = np.trace(within) / size
    common = (1 - shrinkage.round) * within + (
        shrinkage.round * middle + 1e-9 * middle + 1e-12
    ) * np.eye(size)
    strength = shrinkage.strength * size
    covariances = (scatters + strength * common) / (mass + strength)[:, None, None]
    counts = np.stack([shares[:, points.labels == label].sum(axis=1) for label in range(labels)])
    everywhere = mass / mass.sum()
    chances = counts + _SHARED * everywhere
    chances = chances / chances.sum(axis=1, keepdims=True)
    return Parts(np.log(np.maximum(chances, _SMALLEST)), means, covariances)


def _log_sum(values):
    """The logarithm of the sum over parts, for every point."""
    highest = values.max(axis=0)
    return highest + np.log(np.exp(values - highest).sum(axis=0))
