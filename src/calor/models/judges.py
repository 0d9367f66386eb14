"""How good a model is at held out points, as training sees it."""

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import Float

from ..core.types import Key
from ..data.prepare import Prepared
from .fields import AbstractScore
from .model import AbstractModel, changed, finite, mixture_weights
from .objectives import AbstractObjective, squared_error

# During training it is fewer, and the flow is followed in so many steps.
_QUICK_POINTS, _QUICK_STEPS = 512, 40


class HeldOutLikelihood:
    """Minus the log-likelihood of held out points, as training sees it: fast, not exact.

    Some of the stops, some of the points, the flow by few steps of the midpoint rule.
    """

    def __init__(self, model: AbstractModel, prepared: Prepared, key: Key):
        """Choose the points.

        Args:
            model: with any field; it is replaced by the one to judge.
            prepared: the data.
            key: a random key.
        """
        chosen = jr.permutation(key, len(prepared.held_out))[:_QUICK_POINTS]
        self._model = changed(model, stops=model.stops[::2])
        self._points = prepared.held_out[chosen], prepared.held_features[chosen]
        self._key = key

    def __len__(self) -> int:
        """The number of points."""
        return len(self._points[0])

    def __call__(self, field: AbstractScore) -> Float[np.ndarray, " n"]:
        """The value of a field at each point."""
        model = changed(self._model, field=field)
        parts = finite(model._parts(*self._points, self._key, 0.0, None, _QUICK_STEPS))
        return -np.logaddexp.reduce(parts + np.log(mixture_weights(parts)), axis=1)


class HeldOutLoss:
    """The objective itself at held out points, each with the same few times and draws of noise.

    In many dimensions the likelihood is an estimate that takes long; this takes no flow.
    """

    def __init__(self, objective: AbstractObjective, prepared: Prepared, key: Key, draws: int = 8):
        """Choose the points.

        Args:
            objective: what a field has to learn.
            prepared: the data.
            key: a random key.
            draws: of noise, for each point.
        """
        chosen = jr.permutation(key, len(prepared.held_out))[:_QUICK_POINTS]
        self._points = prepared.held_out[chosen], prepared.held_features[chosen]
        self._objective, self._keys = objective, jr.split(key, draws)

    def __len__(self) -> int:
        """The number of draws: a draw of noise for all points counts as one."""
        return len(self._keys)

    def __call__(self, field: AbstractScore) -> Float[np.ndarray, " n"]:
        """The loss of a field for each draw."""
        rows = [_objective_value(self._objective, field, *self._points, k) for k in self._keys]
        return np.asarray(rows, np.float64)


@eqx.filter_jit
def _objective_value(objective, field, points, features, key):
    return squared_error(field, field.manifold, objective.draw(points, features, key))
