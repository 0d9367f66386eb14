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
    """A weighted combination of models of the same manifold."""

    models: tuple[AbstractModel, ...]
    weights: tuple[float, ...] = eqx.field(static=True)
    """Of the models."""
    names: tuple[str, ...] = eqx.field(static=True, default=())
    """Of the models, where each is a part of another kind."""
    record: str = eqx.field(static=True, default="{}")

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

    def part(self, name: str) -> AbstractModel:
        """The model of such a name."""
        if name not in self.names:
            listed = ", ".join(repr(known) for known in self.names) or "none"
            raise ValueError(f"there is no part {name!r}; the parts are {listed}.")
        return self.models[self.names.index(name)]

    def methods(self) -> tuple[str, ...]:
        """Those of the models; one without the method that is asked for draws in its usual way."""
        names = (name for model in self.models for name in model.methods())
        return tuple(dict.fromkeys(["exact", *names]))

    def log_parts(
        self, x: Points, condition: Any, *, key: Key, tolerance: float, probes: int | None
    ) -> Float[Array, "n k"]:
        """log-densities of the models."""
        how: dict[str, Any] = {"key": key, "tolerance": tolerance, "probes": probes}
        columns = [m.log_prob(x, condition=_for(m, condition), **how) for m in self.models]
        found = jnp.stack(columns, axis=1)
        # A point that one flow lost has no density by it, and that of the others as a whole.
        known = jnp.any(jnp.isfinite(found), axis=1, keepdims=True)
        return jnp.where(jnp.isnan(found) & known, -jnp.inf, found)

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
            how: dict[str, Any] = {"steps": steps}
            how |= {"method": method} if method in model.methods() else {}
            drawn = np.asarray(model.sample(count, condition=given, key=keys[place], **how))
            found[rows] = drawn if given is None else drawn[rows]
        return jnp.asarray(found)

    def found(self) -> dict[str, Any]:
        """The plan, seconds, and how likely the points are that were put aside."""
        about = self.about
        if "held_out" not in about:
            return {}
        held = about["held_out"]
        return {
            "seconds": about["seconds"],
            "plan": about["plan"],
            "validation_log_likelihood": held["whole"]["all together"][0],
            "held_out": held,
        }

    def __str__(self) -> str:
        about = self.about
        if "held_out" in about:
            return _table(self, about)
        shares = ", ".join(
            f"{weight:.2g} {model}" for weight, model in zip(self.weights, self.models, strict=True)
        )
        return f"Stacked({shares})"


def _table(model: Stacked, about: dict[str, Any]) -> str:
    """The parts of a model, their weights and the log-likelihoods of what was put aside."""
    held, weights = about["held_out"], dict(zip(model.names, model.weights, strict=True))
    rows = [("part", "weight", "log-likelihood")]
    for name, (mean, error) in held["parts"].items():
        weight = f"{weights[name]:.2f}" if name in weights else "left out"
        rows.append((name, weight, f"{mean:.3f} ± {error:.3f}"))
    for name, (mean, error) in held["whole"].items():
        rows.append((name, "", f"{mean:.3f} ± {error:.3f}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    text = (
        f"Parts on {model.manifold} weighed together, by {held['points']} points that they had "
        "not seen:\n  " + "\n  ".join(lines)
    )
    if held.get("auc"):
        mean, error = held["auc"]
        text += (
            f"\nTrees tell draws from data with AUC {mean:.3f} ± {error:.3f} (one half: not at all)"
        )
    return text


def _for(model: AbstractModel, condition: Any) -> Any:
    """The condition, if the model was fitted with any."""
    return condition if model.condition is not None else None


def even(models: Sequence[AbstractModel]) -> Stacked:
    """Models of equal weights."""
    return Stacked(  # pyright: ignore[reportCallIssue]
        models=tuple(models),
        weights=(1 / len(models),) * len(models),
        record=json.dumps({"models": [model.about for model in models]}),
    )


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
    if any(model.manifold.fingerprint() != models[0].manifold.fingerprint() for model in models):
        names = " and ".join(dict.fromkeys(str(model.manifold) for model in models))
        raise ValueError(f"models must live on the same manifold, got {names}.")
    equal = even(models)
    if condition is not None and equal.condition is None:
        raise ValueError("no model was fitted with conditions; leave condition out.")
    parts = equal.log_parts(x, condition, key=jr.key(0), tolerance=1e-4, probes=None)
    return dataclasses.replace(equal, weights=tuple(mixture_weights(parts).tolist()))
