"""Which rows of kernels make a density, and how much they weigh, by points that were put aside."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .model import mixture_value, mixture_weights

BROAD = 0.02  # weight of the broad part beside a single bandwidth
_SMALLEST_WEIGHT = 2e-3  # rows of a smaller one are left out


class Choice(NamedTuple):
    """What was chosen."""

    width: int
    """The number of the width in features."""
    kept: Int[np.ndarray, " k"]
    """Numbers of the rows, without the broad part."""
    weights: Float[np.ndarray, " k"]
    """Of these rows, and of the broad part."""

    def value(self, values: Float[np.ndarray, "h m k"]) -> Float[np.ndarray, " m"]:
        """The log-density where those of all rows are given, for all widths."""
        parts = values[self.width][:, np.append(self.kept, -1)]
        return np.logaddexp.reduce(parts + np.log(self.weights), axis=1)


Values = Sequence[Float[np.ndarray, "h m k"]]
"""log-densities of all rows and, last, of the broad part; for all widths; in each fold."""
Counts = Sequence[Float[np.ndarray, " m"]]
"""How much each point of a fold counts."""


def mixed(values: Values, counts: Counts) -> Choice:
    """All rows with the weights of the largest likelihood, but those that hardly count."""
    table, count = np.concatenate(values, axis=1), np.concatenate(counts)
    width = 0
    if len(table) > 1:
        means = [np.average(mixture_value(parts, count), weights=count) for parts in table]
        width = int(np.argmax(means))
    weights = mixture_weights(table[width], counts=count)[:-1]
    kept = np.flatnonzero(weights >= min(_SMALLEST_WEIGHT, weights.max()))
    weights = mixture_weights(table[width][:, np.append(kept, -1)], counts=count)
    return Choice(width, kept, weights)


def single(values: Values, counts: Counts) -> Choice:
    """The one row, and width, of the largest likelihood beside a small broad part."""
    table, weights = np.concatenate(values, axis=1), np.array([1 - BROAD, BROAD])
    near, far = np.log(weights)
    each = np.logaddexp(table[..., :-1] + near, table[..., -1:] + far)
    means = np.average(each, axis=1, weights=np.concatenate(counts))
    width, row = np.unravel_index(np.argmax(means), means.shape)
    return Choice(int(width), np.array([row]), weights)
