"""How good a model is at held out points, as training sees it."""

import dataclasses

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.types import Key, Scalar
from ..data.prepare import Prepared
from .fields import AbstractField
from .flow_model import AbstractFlowModel
from .model import mixture_value
from .objectives import AbstractObjective, squared_error

# During training it is fewer, and the flow is followed in so many steps.
_QUICK_POINTS, _QUICK_STEPS = 512, 40


class HeldOutLikelihood:
    """Minus the log-likelihood of held out points, as training sees it: fast, not exact.

    Some of the stops, some of the points, the flow by few steps of the midpoint rule.
    """

    def __init__(self, model: AbstractFlowModel, prepared: Prepared, key: Key):
        """Choose the points.

        Args:
            model: with any field; it is replaced by the one to judge.
            prepared: the data.
            key: a random key.
        """
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

    def __init__(self, objective: AbstractObjective, prepared: Prepared, key: Key, draws: int = 8):
        """Choose the points.

        Args:
            objective: what a field has to learn.
            prepared: the data.
            key: a random key.
            draws: of noise, for each point.
        """
        self._points, self._features = _some(prepared, key)
        self._objective, self._keys = objective, jr.split(key, draws)

    def __len__(self) -> int:
        """The number of draws: a draw of noise for all points counts as one."""
        return len(self._keys)

    def __call__(self, field: AbstractField) -> Float[np.ndarray, " n"]:
        """The loss of a field for each draw."""
        given = self._objective, field, self._points, self._features
        return np.asarray([_objective_value(*given, key) for key in self._keys], np.float64)


def _some(prepared: Prepared, key: Key) -> tuple[Float[Array, "n ..."], Float[Array, "n c"]]:
    """Some of the held out points, and their features."""
    chosen = jr.permutation(key, len(prepared.held_out))[:_QUICK_POINTS]
    return prepared.held_out[chosen], prepared.held_features[chosen]


@eqx.filter_jit
def _objective_value(
    objective: AbstractObjective,
    field: AbstractField,
    points: Float[Array, "n ..."],
    features: Float[Array, "n c"],
    key: Key,
) -> Scalar:
    return squared_error(field, field.manifold, objective.draw(points, features, key))
