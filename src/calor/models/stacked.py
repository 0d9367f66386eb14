"""Stacking: a mixture of models, with weights of the largest likelihood on points put aside.

Models that were fitted to the same data in different ways are often right in different places.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.doors import door
from ..core.types import Key, Points
from ..data.conditions import Condition
from ..manifolds import AbstractManifold
from ..store.stored import stored
from .model import AbstractModel, mixture_weights


@stored("Stacked", root="model")
class Stacked(AbstractModel):
    """A weighted combination of models of the same manifold; `calor.stack` makes it."""

    models: tuple[AbstractModel, ...]
    weights: tuple[float, ...] = eqx.field(static=True)
    """Of the models."""

    @property
    def manifold(self) -> AbstractManifold:
        """Of all models."""
        return self.models[0].manifold

    @property
    def condition(self) -> Condition | None:
        """The encoding of the first model that has one; each model uses its own."""
        return next((m.condition for m in self.models if m.condition is not None), None)

    @property
    def centre(self) -> None:
        """None: each model moves points by itself."""
        return None

    @property
    def record(self) -> str:
        """How each model was made."""
        return json.dumps({"models": [model.about for model in self.models]})

    def log_parts(
        self, x: Points, condition: Any, *, key: Key, tolerance: float, probes: int | None
    ) -> Float[Array, "n k"]:
        """log-densities of the models."""
        how: dict[str, Any] = {"key": key, "tolerance": tolerance, "probes": probes}
        columns = [m.log_prob(x, condition=_for(m, condition), **how) for m in self.models]
        return jnp.stack(columns, axis=1)

    def draw_parts(
        self, parts: Int[Array, " n"], condition: Any, *, key: Key, steps: int, method: str
    ) -> Float[Array, "n ..."]:
        """Draws of the models."""
        number, keys = len(parts), jr.split(key, len(self.models))
        found = np.empty((number, *self.manifold.shape), jnp.result_type(float))
        for place, model in enumerate(self.models):
            rows, given = np.flatnonzero(parts == place), _for(model, condition)
            if len(rows) == 0:
                continue
            # Conditions belong to all points, so that all are drawn and some of them kept.
            count = len(rows) if given is None else number
            drawn = np.asarray(model.sample(count, condition=given, key=keys[place], steps=steps))
            found[rows] = drawn if given is None else drawn[rows]
        return jnp.asarray(found)

    def __str__(self) -> str:
        shares = ", ".join(
            f"{weight:.2g} {model}" for weight, model in zip(self.weights, self.models, strict=True)
        )
        return f"Stacked({shares})"


def _for(model: AbstractModel, condition: Any) -> Any:
    """The condition, if the model was fitted with any."""
    return condition if model.condition is not None else None


@door("stack")
def stack(models: Sequence[AbstractModel], x: Points, *, condition: Any = None) -> Stacked:
    """Combine models with the weights under which points are most likely.

    Args:
        models: of the same manifold.
        x: points along the first axis that no model was fitted to.
        condition: of each point, or one for all, if some models were fitted with conditions.
    """
    models = tuple(models)
    if not models:
        raise ValueError("at least one model is needed.")
    names = sorted({str(model.manifold) for model in models})
    if len(names) > 1:
        raise ValueError(f"models must live on the same manifold, got {' and '.join(names)}.")
    weights = (1 / len(models),) * len(models)
    equal = Stacked(models=models, weights=weights)  # pyright: ignore[reportCallIssue]
    if condition is not None and equal.condition is None:
        raise ValueError("no model was fitted with conditions; leave condition out.")
    parts = equal.log_parts(x, condition, key=jr.key(0), tolerance=1e-4, probes=None)
    return dataclasses.replace(equal, weights=tuple(mixture_weights(parts).tolist()))
