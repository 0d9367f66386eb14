"""The Frechet mean of points of a manifold."""

import equinox as eqx
import jax
import jax.numpy as jnp

from ..core.numerics import safe_sqrt
from ..core.types import Point, Points
from . import AbstractManifold


def frechet_mean(manifold: AbstractManifold, points: Points) -> Point:
    """The point with the smallest mean squared distance to the points, by gradient descent.

    Args:
        manifold: where the points are.
        points: an array of points along its first axis.
    """
    return _descend(manifold, jnp.asarray(points))


@eqx.filter_jit
def _descend(manifold, points):
    middle = jnp.mean(jax.vmap(manifold.embedding)(points), axis=0)
    gaps = jax.vmap(lambda x: jnp.sum((manifold.embedding(x) - middle) ** 2))(points)
    rounding = jnp.finfo(points.dtype).eps

    def pull(x):
        toward = jax.vmap(lambda y: manifold.log_at(x, y))(points)
        lengths = jax.vmap(lambda v: safe_sqrt(manifold.inner_at(x, v, v)))(toward)
        mean = jnp.mean(toward, axis=0)
        return mean, jnp.mean(lengths), safe_sqrt(manifold.inner_at(x, mean, mean))

    def go_on(state):
        count, _, (_, length, size), before, _, _ = state
        # Near rounding until nothing is gained any more; how near that is depends on the manifold.
        gains = (size < 0.8 * before) | (size > 1e4 * rounding * (1 + length))
        return (count < 1000) & (size > rounding) & gains

    def step(state):
        count, x, found, before, place, is_whole = state
        new = pull(place)  # here only: it is most of what is compiled
        # A whole step is right in flat space.  The second derivative of half the squared distance
        # r^2 is at most r coth r < 1 + r on manifolds of curvature -1 and more: a share of
        # 1/(1 + r) is always safe, and takes ten times as many steps.
        is_taken = (new[2] < 0.8 * found[2]) | ~is_whole
        before = jnp.where(is_taken, found[2], before)
        x, found = jax.tree.map(lambda a, b: jnp.where(is_taken, a, b), (place, new), (x, found))
        mean, length, _ = found
        share = jnp.where(is_taken, 1.0, 1 / (1 + length))
        place = manifold.project_at(manifold.exp_at(x, share * mean))
        return count + is_taken, x, found, before, place, is_taken

    start, nothing = points[jnp.argmin(gaps)], jnp.full((), jnp.inf, points.dtype)
    unknown = jnp.zeros_like(start), jnp.zeros_like(nothing), nothing
    begin = -1, start, unknown, nothing, start, jnp.asarray(False)
    return jax.lax.while_loop(go_on, step, begin)[1]
