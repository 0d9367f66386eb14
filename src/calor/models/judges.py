"""How good a model is at held out points, as training sees it."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float

from ..core.types import Key
from ..data.folds import Folds
from .fields import AbstractField
from .flow_model import AbstractFlowModel, HeldOut
from .model import finite, mixture_value
from .objectives import AbstractObjective, squared_error

# The steps in which the flow of held out points is followed, and the draws of noise for each.
_QUICK_STEPS, _QUICK_DRAWS = 40, 8


class HeldOutLikelihood:
    """Minus the log-likelihood of held out points, as training sees it: fast, not exact.

    Some of the stops, some of the points, the flow by few steps of the midpoint rule.
    """

    def __init__(
        self,
        models: Sequence[AbstractFlowModel],
        rows: Sequence[HeldOut],
        folds: Folds,
        counts: Float[np.ndarray, " n"],
        key: Key,
    ):
        """The fields of the models are replaced by those to judge."""
        self._models = [dataclasses.replace(model, stops=model.stops[::2]) for model in models]
        self._rows, self._folds, self._key = rows, folds, key
        self._counts = counts / np.mean(counts)

    def __len__(self) -> int:
        """The number of points."""
        return len(self._counts)

    def __call__(self, fields: Sequence[AbstractField]) -> Float[np.ndarray, " n"]:
        """The value of the fields at each point, times how much it counts."""
        settings = {"key": self._key, "tolerance": 0.0, "steps": _QUICK_STEPS}
        columns = [
            finite(
                dataclasses.replace(model, field=field).parts_of(
                    row.points, row.features, **settings
                )
            )
            for model, field, row in zip(self._models, fields, self._rows, strict=True)
        ]
        return -self._counts * mixture_value(self._folds.judged(columns), self._counts)


class HeldOutLoss:
    """The objective itself at held out points, each with the same few times and draws of noise.

    In many dimensions the likelihood is an estimate that takes long; this takes no flow.
    """

    def __init__(self, objectives: Sequence[AbstractObjective], rows: Sequence[HeldOut], key: Key):
        """Each objective says what a field has to learn."""
        self._objectives, self._rows = objectives, rows
        self._keys = jr.split(key, _QUICK_DRAWS)

    def __len__(self) -> int:
        """The number of draws: a draw of noise for all points counts as one."""
        return len(self._keys)

    def __call__(self, fields: Sequence[AbstractField]) -> Float[np.ndarray, " n"]:
        """The mean loss of the fields for each draw."""
        given = zip(self._objectives, fields, self._rows, strict=True)
        found = [[_loss(*one, key) for key in self._keys] for one in given]
        return np.mean(np.asarray(found, np.float64), axis=0)


@eqx.filter_jit
def _loss(objective, field, row, key):
    starts = None if row.starts is None else jnp.asarray(row.starts, row.points.dtype)
    examples = objective.draw(row.points, row.features, key, starts)
    examples = eqx.tree_at(lambda e: e.weight, examples, examples.weight * row.weights)
    return squared_error(field, field.manifold, examples)
