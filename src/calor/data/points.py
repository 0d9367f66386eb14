"""Points at the door: checked once, with the number of the row that is wrong, then trusted."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.types import Points
from ..manifolds import AbstractManifold
from ..manifolds.base import TOLERANCE
from .forms import BadRow, as_array

# How far rounding to single precision may move a point.
_ROUNDING = 0.05


def checked_points(
    manifold: AbstractManifold,
    data: Any,
    name: str = "data",
    at_least: int = 1,
    centre: np.ndarray | None = None,
) -> Float[Array, "n ..."]:
    """An array of points of a manifold, along the first axis.

    Args:
        manifold: where the points are.
        data: an array, a data frame, or rotations of scipy.
        name: of the argument, for messages.
        at_least: how many points there must be.
        centre: the point that an isometry takes to the origin, if the points are to be moved.
    """
    if manifold.moves_to_origin():
        return moved(manifold, doubled_points(manifold, data, name, at_least), centre, name)
    array = _rows(manifold, data, name, at_least)
    return _on_manifold(manifold, jnp.asarray(array, jnp.result_type(float)), name)


def doubled_points(
    manifold: AbstractManifold, data: Any, name: str, at_least: int = 1
) -> Float[np.ndarray, "n ..."]:
    """The points in double precision, before anything is moved.

    Those that share a bad condition have a good one later.
    """
    array = _rows(manifold, data, name, at_least)
    with jax.enable_x64(True):
        return np.asarray(_on_manifold(manifold, jnp.asarray(array, jnp.float64), name))


def moved(
    manifold: AbstractManifold, points: Points, centre: np.ndarray | None, name: str
) -> Float[Array, "n ..."]:
    """Points in working precision, as seen from the centre."""
    with jax.enable_x64(True):
        inside = jnp.asarray(points)
        if centre is not None:
            inside = _each(eqx.Partial(manifold.to_origin, centre=jnp.asarray(centre)), inside)
        places, points = np.asarray(embedded(manifold, inside)), np.asarray(inside)
    rounded = jnp.asarray(points, jnp.result_type(float))
    off = np.linalg.norm(np.asarray(embedded(manifold, rounded)) - places, axis=1)
    if not np.all(off <= _ROUNDING):
        row = int(np.argmax(~(off <= _ROUNDING)))
        raise ValueError(
            f"{name}[{row}] is nearly singular: rounding to {rounded.dtype} moves it by "
            f"{off[row]:.2g} in the metric. Add a multiple of the identity, leave out channels "
            "that depend on others, or call jax.config.update('jax_enable_x64', True) first."
        )
    return rounded


def uncentred(
    manifold: AbstractManifold, points: Float[Array, "n ..."], centre: np.ndarray | None
) -> Float[Array, "n ..."]:
    """Points around the origin moved back to the centre, if there is one."""
    if centre is None:
        return points
    with jax.enable_x64(True):
        inside = jnp.asarray(np.asarray(points, np.float64))
        out = eqx.Partial(manifold.from_origin, centre=jnp.asarray(centre))
        found = np.asarray(_each(out, inside))
    return _each(manifold.project_at, jnp.asarray(found, points.dtype))


def _rows(manifold: AbstractManifold, data: Any, name: str, at_least: int) -> np.ndarray:
    """An array of finite real numbers of the right shape."""
    try:
        data = as_array(data, manifold)
    except (TypeError, ValueError) as error:
        error.args = (f"{name}: {error}",)
        raise
    try:
        array = np.asarray(data)
    except Exception as error:
        raise TypeError(f"{name} must be an array, got {type(data).__name__}.") from error
    if array.dtype.kind not in "fiub":
        hint = " Take its real part, if its imaginary part is rounding." * (array.dtype.kind == "c")
        raise TypeError(
            f"{name} must be an array of real numbers, got {array.dtype} "
            f"({type(data).__name__}).{hint}"
        )
    if array.shape == manifold.shape:
        array = array[None]
    if array.ndim != 1 + len(manifold.shape) or array.shape[1:] != manifold.shape:
        expected = ", ".join(map(str, ("n", *manifold.shape)))
        raise ValueError(f"{name} must have shape ({expected}) for {manifold}, got {array.shape}.")
    if len(array) < at_least:
        raise ValueError(f"{name} must have at least {at_least} rows, got {len(array)}.")
    bad = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        raise BadRow(
            row,
            "NaN or infinite",
            f"{name} has NaN or infinite entries in {int(bad.sum())} rows, the first is "
            f"row {row}; clean the data first.",
        )
    return array


def _on_manifold(manifold: AbstractManifold, points: Array, name: str) -> Array:
    """The nearest points of the manifold; an error names the first that is not near."""
    offsets = np.asarray(_each(manifold.offset_at, points))
    if not np.all(offsets <= TOLERANCE):
        row = int(np.argmax(~(offsets <= TOLERANCE)))
        reason = f"not a point of {manifold}, {offsets[row]:.3g} away from it"
        try:
            manifold.check_point(points[row], f"{name}[{row}]")
        except ValueError as error:
            raise BadRow(row, reason, str(error)) from error
        raise BadRow(row, reason, f"{name}[{row}] is not on {manifold}.")
    return _each(manifold.project_at, points)


def embedded(manifold: AbstractManifold, points: Float[Array, "n ..."]) -> Float[Array, "n d"]:
    """The places of points in flat space."""
    return _each(manifold.embedding, points)


@eqx.filter_jit
def _each(function, points):
    """A function of every point; a method of a manifold is compiled once for equal manifolds."""
    return jax.vmap(function)(points)
