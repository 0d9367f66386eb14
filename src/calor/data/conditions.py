"""Conditions that come with points, as numbers of order one."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..store.stored import stored


def followed(encoded: Float[Array, "n c"], told: Array | np.ndarray) -> Float[Array, "n f"]:
    """Features: what conditions were encoded as, followed by what they tell of the data."""
    return jnp.concatenate([encoded, jnp.asarray(told, encoded.dtype)], axis=1)


@stored("Condition")
class Condition(eqx.Module):
    """How conditions become numbers of order one, followed by what they predict of the data.

    Numbers are taken relative to their median and quantiles, and outliers drawn in by arcsinh;
    labels are one-hot.
    """

    middle: Float[Array, " c"] | None
    spread: Float[Array, " c"] | None
    labels: tuple[str | int, ...] = eqx.field(static=True)
    regression: Callable[[Array], Array] | None = None
    """What features predict of the data, a module of its own: it is kept in files too."""

    def __call__(self, values: Any, count: int) -> Float[Array, "n c"]:
        """The features for `count` conditions, or for one that is shared by all."""
        features = self._encoded(values)
        if self.regression is not None:
            features = followed(features, jax.jit(jax.vmap(self.regression))(features))
        return _shared(features, count)

    def _encoded(self, values: Any) -> Float[Array, "n c"]:
        if self.middle is None or self.spread is None:
            return self._one_hot(values)
        array = _numbers(values)
        size = len(self.middle)
        if array.ndim == 0 or (array.ndim == 1 and size > 1):
            array = array.reshape(1, -1)
        array = array.reshape(len(array), -1)
        if array.shape[1] != size:
            raise ValueError(
                f"condition must have {size} numbers for each point, got an array of "
                f"shape {array.shape}."
            )
        return jnp.arcsinh((array - self.middle) / self.spread)

    def _one_hot(self, values: Any) -> Float[Array, "n c"]:
        given = np.atleast_1d(plain(values))
        places = {label: place for place, label in enumerate(self.labels)}
        unknown = [value for value in given.ravel().tolist() if value not in places]
        if unknown or given.ndim != 1:
            known = ", ".join(repr(label) for label in self.labels[:20])
            raise ValueError(
                f"condition must be one of the labels of the training data ({known}), "
                f"got {unknown[0] if unknown else given.shape!r}."
            )
        index = jnp.asarray([places[value] for value in given.tolist()])
        return jax.nn.one_hot(index, len(self.labels))


def learn_condition(values: Any) -> Condition:
    """The encoding of the conditions of training data: real numbers, or labels."""
    given = plain(values)
    if given.ndim == 0:
        raise ValueError(f"condition must have one row for each point, got {given!r}.")
    if given.dtype.kind in "iuUb":
        if given.ndim != 1:
            raise ValueError(
                f"labels must be one for each point, got an array of shape {given.shape}; "
                "convert numbers that are no labels to float."
            )
        labels = np.unique(given).tolist()
        if len(labels) > 1000:
            raise ValueError(
                f"{len(labels)} different labels; convert numbers that are no labels to float."
            )
        return Condition(None, None, tuple(labels))
    array = _numbers(given)
    array = array.reshape(len(array), -1)
    low, middle, high = jnp.quantile(array, jnp.asarray([0.16, 0.5, 0.84]), axis=0)
    spread, deviation = (high - low) / 2, jnp.std(array, axis=0)
    spread = jnp.where(spread > 0, spread, jnp.where(deviation > 0, deviation, 1.0))
    return Condition(middle, spread, ())


def plain(values: Any) -> np.ndarray:
    """An array of numbers or of strings, from lists, data frames and their like."""
    array = np.asarray(values)
    if array.dtype == object:
        array = np.asarray(array.tolist())
    return array.astype(str) if array.dtype.kind == "S" else array


def _numbers(values: Any) -> Array:
    array = plain(values)
    if array.dtype.kind not in "fiub" or not np.all(np.isfinite(array)):
        raise ValueError(
            f"condition must be finite numbers or labels, got {array.dtype} with "
            "NaN, infinite or other entries."
        )
    return jnp.asarray(array, jnp.result_type(float))


def _shared(features: Float[Array, "m c"], count: int) -> Float[Array, "n c"]:
    if len(features) == count:
        return features
    if len(features) == 1:
        return jnp.broadcast_to(features, (count, features.shape[1]))
    raise ValueError(
        f"got {len(features)} conditions for {count} points; give one for each, or one for all."
    )
