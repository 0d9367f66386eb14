"""Data at the door: checked once, with the number of the row that is wrong, then trusted."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ._types import Key
from .manifolds import AbstractManifold
from .manifolds.base import TOLERANCE


def checked_points(
    manifold: AbstractManifold, data: Any, owner: str, name: str = "data", at_least: int = 1
) -> Float[Array, "n ..."]:
    """An array of points of a manifold, along the first axis."""
    try:
        array = np.asarray(data)
    except Exception as error:
        raise TypeError(f"{owner}: {name} must be an array, got {type(data).__name__}.") from error
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{owner}: {name} must be an array of real numbers, got {array.dtype} "
            f"({type(data).__name__})."
        )
    if array.shape == manifold.shape:
        array = array[None]
    if array.ndim != 1 + len(manifold.shape) or array.shape[1:] != manifold.shape:
        expected = ("n", *manifold.shape)
        raise ValueError(
            f"{owner}: {name} must have shape ({', '.join(map(str, expected))}) for {manifold}, "
            f"got {array.shape}."
        )
    if len(array) < at_least:
        raise ValueError(f"{owner}: {name} must have at least {at_least} rows, got {len(array)}.")
    bad = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"{owner}: {name} has NaN or infinite entries in {int(bad.sum())} rows, the first is "
            f"row {row}; clean the data first."
        )
    points = jnp.asarray(array, jnp.result_type(float))
    offsets = np.asarray(jax.jit(jax.vmap(manifold._offset))(points))
    if not np.all(offsets <= TOLERANCE):
        row = int(np.argmax(~(offsets <= TOLERANCE)))
        try:
            manifold.check_point(points[row], f"{name}[{row}]")
        except ValueError as error:
            raise ValueError(f"{owner}: {error}") from error
        raise ValueError(f"{owner}: {name}[{row}] is not on {manifold}.")
    return jax.jit(jax.vmap(manifold._project))(points)


def split(key: Key, count: int, fraction: float) -> tuple[Array, Array]:
    """Indices of a training part and of a validation part, both not empty."""
    order = jr.permutation(key, count)
    held = min(max(1, round(fraction * count)), count - 1)
    return order[held:], order[:held]
