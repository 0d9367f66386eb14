"""What the rows of all least squares have in common.

A row is a dictionary of what one residual needs, arrays with one entry for each point along their
first axes.
"""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ...core.types import Key, Scalar

Rows = dict[str, Any]

EXCESS = 1.5
"""Beyond where the initial law is known log p may exceed a Gaussian of about the distance by this
much and no more: mass that hides there would not show in the loss."""


def times_between(
    start: Scalar | float, end: Scalar | float, count: int, key: Key
) -> Float[Array, " n"]:
    """Random times, log-uniform: one in each of so many equal parts."""
    u = (jnp.arange(count) + jr.uniform(key, (count,))) / count
    return start * (end / start) ** u


def scaled(rows: Rows, count: int | Scalar) -> Rows:
    """Rows so weighted that their sum of squares is a mean."""
    return {**rows, "weight": rows["weight"] / jnp.sqrt(count)}


def initial_error(found: Scalar, row: Rows) -> Scalar:
    """The weighted residual of an initial value; `beyond` where it is known only the excess."""
    error = found - row["value"]
    return row["weight"] * jnp.where(row["beyond"], jnp.maximum(error, 0.0), error)
