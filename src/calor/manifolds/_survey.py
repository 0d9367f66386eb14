"""Checks and measurements of a manifold that is stated by equations and a metric.

What was wrong, what was seen, what to do: the functions here are handed to us by the user, and
their values are known only at points that we have to find first.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ._geodesics import newton_point
from .base import TOLERANCE

# A Jacobian whose smallest singular value is below this part of its usual size counts as singular.
RANK_TOLERANCE = 1e-3
# Points to look for on the manifold.
ANCHORS = 32


def check_output(
    function: Any, name: str, n: int, accept: Callable[..., Any], described: str
) -> tuple[int, ...]:
    """The shape of what a function of a point of R^n returns; errors if it is no such function."""
    if not callable(function):
        raise ValueError(f"Submanifold: {name} must be a function of a point, got {function!r}.")
    try:
        output = jax.eval_shape(function, jax.ShapeDtypeStruct((n,), jnp.result_type(float)))
    except Exception as error:
        raise ValueError(
            f"Submanifold: {name} cannot be evaluated at an array of shape ({n},): {error} "
            "Write it with jax.numpy, for one point."
        ) from error
    if not hasattr(output, "shape") or not jnp.issubdtype(output.dtype, jnp.floating):
        raise ValueError(f"Submanifold: {name} must return real numbers, got {output}.")
    if not accept(output.shape):
        raise ValueError(f"Submanifold: {name} must return {described}, got shape {output.shape}.")
    return output.shape


def check_regular(owner: str, name: str, x: Any, jacobian: Any, metric: Any) -> None:
    """Raise an error if the Jacobian of the constraint or the metric is degenerate at x."""
    jacobian, metric = np.asarray(jacobian), np.asarray(metric)
    smallest = 0.0
    if np.isfinite(jacobian).all():
        smallest = np.linalg.svd(jacobian, compute_uv=False)[-1] if jacobian.size else 1.0
    if not smallest > RANK_TOLERANCE:
        raise ValueError(
            f"{owner}: the constraint is singular at {name} = {x}: the smallest singular value of "
            f"its Jacobian is {smallest:.3g} times the usual one. Equations must be independent, "
            "not squared, and the set smooth at the point."
        )
    problem = ""
    if not np.isfinite(metric).all():
        problem = "not finite"
    elif np.abs(metric - metric.T).max() > 1e-4 * np.abs(metric).max():
        problem = "not symmetric"
    elif not np.linalg.eigvalsh(metric)[0] > 0:
        problem = "not positive definite"
    if problem:
        raise ValueError(
            f"{owner}: the metric is {problem} at {name} = {x}, where it is {metric.tolist()}. "
            "Correct the metric, or use points inside its domain."
        )


def survey(
    manifold: Any, around: Any
) -> tuple[tuple[float, ...], tuple[tuple[float, ...], ...], float, int]:
    """Find some points of a `Submanifold`, and measure it and its equations there.

    Args:
        manifold: not yet complete.
        around: points of the manifold, if they are given and need not be found.

    Returns the usual length of each row of the Jacobian; points of the manifold; the root mean
    square distance from their middle; and the Runge-Kutta steps for a geodesic of a few times that
    length.
    """
    with jax.ensure_compile_time_eval():
        normals = jr.normal(jr.key(0), (4 * ANCHORS, *manifold.shape))
        if around is None:
            anchors = _found(manifold, normals)
        else:
            anchors = _given(manifold, np.asarray(around, np.float32))
        count = len(anchors)
        middle = anchors.mean(axis=0)
        spread = np.sqrt(np.mean(np.sum((anchors - middle) ** 2, axis=1)))
        around = np.concatenate([anchors, middle + spread * np.asarray(normals)])

        def measure(x):
            turns = jax.vmap(lambda e: manifold.acceleration_at(x, e))(manifold.frame(x))
            return *manifold.matrices_at(x), turns

        jacobians, metrics, turns = map(np.asarray, jax.jit(jax.vmap(measure))(around))
    rows = np.linalg.norm(np.nan_to_num(jacobians[count:]), axis=2)
    slopes = np.median(rows, axis=0) + np.finfo(np.float32).tiny
    for x, jacobian, metric in zip(anchors, jacobians, metrics, strict=False):
        check_regular(str(manifold), "x", x, jacobian / slopes[:, None], metric)
    chords = anchors[:, None] - anchors[None]
    width = np.sqrt(np.einsum("xyi,xij,xyj->xy", chords, metrics[:count], chords).mean() / 2)
    if not width > 0:
        raise ValueError(
            f"Submanifold: the points of the manifold that are known coincide, at {anchors[0]}; a "
            "manifold of dimension one and more is needed, and different points in around."
        )
    bend = np.sqrt(np.einsum("xei,xij,xej->xe", turns[:count], metrics[:count], turns[:count]))
    # Four steps per radian of the tightest bend, for a geodesic three times as long as the width.
    steps = int(np.clip(12 * width * bend.max(), 16, 512))
    return tuple(slopes.tolist()), tuple(map(tuple, anchors.tolist())), float(width), steps


def _given(manifold, points):
    """Some of the points that the user gave; errors if they are none of the manifold."""
    [n] = manifold.shape
    if points.ndim != 2 or points.shape[1] != n or len(points) < 2:
        raise ValueError(
            f"Submanifold: around must be at least two points, an array of shape (n, {n}), got one "
            f"of shape {points.shape}."
        )
    if not np.isfinite(points).all():
        raise ValueError("Submanifold: around has NaN or infinite entries; leave these points out.")
    anchors = np.random.default_rng(0).permutation(points)[:ANCHORS]
    offset = float(jnp.max(jax.vmap(manifold.offset_at)(jnp.asarray(anchors))))
    if not offset <= TOLERANCE:
        raise ValueError(
            f"Submanifold: a point of around is {offset:.3g} away from the zeros of the constraint "
            f"(tolerance {TOLERANCE:g}); give points of the manifold."
        )
    return anchors


def _found(manifold, starts):
    """Zeros of the equations, by Newton's method."""
    search = jax.jit(jax.vmap(lambda x: newton_point(manifold.equations, x)))
    found, offsets = map(np.asarray, search(starts))
    anchors = found[offsets <= TOLERANCE][:ANCHORS]
    if len(anchors) == 0:
        finite = np.isfinite(np.asarray(jax.vmap(manifold.equations)(starts))).all()
        raise ValueError(
            f"Submanifold: no zero of the constraint was found from {len(found)} standard "
            f"Gaussian points, where it is {'finite' if finite else 'NaN or infinite'}. Check "
            "that it has zeros and derivatives; scale it so that the zeros are near the origin."
        )
    return anchors


def check_symmetries(manifold: Any, symmetries: Any) -> None:
    """Raise an error unless a function draws isometries of a `Submanifold`."""

    def move(key, x):
        image, pushed = jax.vmap(
            lambda e: jax.jvp(symmetries(key), (x,), (e,)), out_axes=(None, 0)
        )(manifold.frame(x))
        lengths = lambda y, frame: jax.vmap(
            lambda u: jax.vmap(lambda v: manifold.inner_at(y, u, v))(frame)
        )(frame)
        return (
            image,
            manifold.offset_at(image),
            lengths(x, manifold.frame(x)),
            lengths(image, pushed),
        )

    with jax.ensure_compile_time_eval():
        anchors = jnp.asarray(manifold.anchors)
        keys = jr.split(jr.key(0), len(anchors))
        try:
            images, offsets, before, after = jax.jit(jax.vmap(move))(keys, anchors)
        except Exception as error:
            raise ValueError(
                "Submanifold: symmetries must be a function that takes a random key and returns a "
                f"function of a point, an isometry, written with jax.numpy; it fails: {error}"
            ) from error
        offset = float(jnp.max(offsets))
        change = float(jnp.max(jnp.abs(after - before)))
    if images.shape != anchors.shape or not offset < 1e-3 or not change < 1e-3:
        raise ValueError(
            "Submanifold: symmetries must draw isometries; one of them moves points off the "
            f"manifold by up to {offset:.2g} and changes inner products by up to {change:.2g}."
        )
