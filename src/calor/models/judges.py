"""How good a model is at held out points, as training sees it."""

import dataclasses

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.types import Key
from ..data.prepare import Prepared
from .fields import AbstractField
from .flow_model import AbstractFlowModel
from .model import mixture_value
from .objectives import AbstractObjective, squared_error

# The held out points that training sees, the steps in which their flow is followed, and the draws
# of noise for each.
_QUICK_POINTS, _QUICK_STEPS, _QUICK_DRAWS = 512, 40, 8


class HeldOutLikelihood:
    """Minus the log-likelihood of held out points, as training sees it: fast, not exact.

    Some of the stops, some of the points, the flow by few steps of the midpoint rule.
    """

    def __init__(self, model: AbstractFlowModel, prepared: Prepared, key: Key):
        """Choose the points; the field of the model is replaced by the one to judge."""
        self._model = dataclasses.replace(model, stops=model.stops[::2])
        self._points, self._features = _some(prepared, key)
        self._key = key

    def __len__(self) -> int:
        """The number of points."""
        return len(self._points)

    def __call__(self, field: AbstractField) -> Float[np.ndarray, " n"]:
        """The value of a field at each point."""
        model = dataclasses.replace(self._model, field=field)
        settings = {"key": self._key, "tolerance": 0.0, "steps": _QUICK_STEPS}
        return -mixture_value(model.parts_of(self._points, self._features, **settings))


class HeldOutLoss:
    """The objective itself at held out points, each with the same few times and draws of noise.

    In many dimensions the likelihood is an estimate that takes long; this takes no flow.
    """

    def __init__(self, objective: AbstractObjective, prepared: Prepared, key: Key):
        """Choose the points and the draws, for what a field has to learn."""
        self._points, self._features = _some(prepared, key)
        self._objective, self._keys = objective, jr.split(key, _QUICK_DRAWS)

    def __len__(self) -> int:
        """The number of draws: a draw of noise for all points counts as one."""
        return len(self._keys)

    def __call__(self, field: AbstractField) -> Float[np.ndarray, " n"]:
        """The loss of a field for each draw."""
        given = self._objective, field, self._points, self._features
        return np.asarray([_loss(*given, key) for key in self._keys], np.float64)


def _some(prepared: Prepared, key: Key) -> tuple[Float[Array, "n ..."], Float[Array, "n c"]]:
    """Some of the held out points, and their features."""
    chosen = jr.permutation(key, len(prepared.held_out))[:_QUICK_POINTS]
    return prepared.held_out[chosen], prepared.held_features[chosen]


@eqx.filter_jit
def _loss(objective, field, points, features, key):
    return squared_error(field, field.manifold, objective.draw(points, features, key))
