"""The numerical work behind `Submanifold`: geodesics, closest points, shooting, counting pairs.

Each function treats one point and knows nothing of manifolds beyond the functions it is handed.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..core.numerics import safe_norm


def runge_kutta(
    acceleration: Callable[[Array, Array], Array], x: Array, v: Array, steps: int
) -> tuple[Array, Array]:
    """Place and velocity of x'' = acceleration(x, x') at time one, by the classical method."""

    def stage(state, weights):
        x, v, velocity, turn, x_sum, v_sum = state
        ahead, weight = weights
        velocity, turn = v + ahead * turn, acceleration(x + ahead * velocity, v + ahead * turn)
        return (x, v, velocity, turn, x_sum + weight * velocity, v_sum + weight * turn), None

    def step(state, _):
        x, v = state
        # A loop over the stages, for a quarter of the compilation time.
        nothing = jnp.zeros_like(x)
        state, _ = jax.lax.scan(stage, (x, v, nothing, nothing, x, v), (ahead, weight))
        return state[4:], None

    ahead = jnp.asarray([0, 1 / 2, 1 / 2, 1], x.dtype) / steps
    weight = jnp.asarray([1 / 6, 1 / 3, 1 / 3, 1 / 6], x.dtype) / steps
    return jax.lax.scan(step, (x, v), length=steps)[0]


def complement(rows: Float[Array, "m N"]) -> Float[Array, "N d"]:
    """An orthonormal basis (columns) of the vectors orthogonal to all rows, by reflections."""
    count, size = rows.shape
    q = jnp.eye(size, dtype=rows.dtype)
    for i in range(count):
        column = jnp.where(jnp.arange(size) < i, 0.0, q.T @ rows[i])
        length = jnp.sqrt(jnp.sum(column * column))
        v = column.at[i].add(jnp.where(column[i] < 0, -length, length))
        v = v / jnp.sqrt(jnp.sum(v * v))
        q = q - 2 * jnp.outer(q @ v, v)
    return q[:, count:]


def newton_point(equations: Callable[[Array], Array], start: Array) -> tuple[Array, Array]:
    """A zero of the equations near `start`, not the closest one, and the distance left to it."""

    def step(_, y):
        return y - jnp.linalg.pinv(jax.jacrev(equations)(y)) @ equations(y)

    y = jax.lax.fori_loop(0, 50, step, start)
    return y, newton_distance(equations, y)


def closest_point(
    equations: Callable[[Array], Array], x: Array, start: Array, scale: Any
) -> tuple[Array, Array]:
    """The zero of the equations closest to x, and the multipliers there, by Newton's method.

    One step goes to the zero set of the linearized equations, and along it by Newton's rule for
    |y - x|^2 / 2 + multiplier . f(y).  Negative eigenvalues of its Hessian are reversed, so that
    the iteration leads to minima only; the part along the set is never longer than the way to x
    and to the set together.  `scale` is a length below which steps may be called small.
    """
    identity = jnp.eye(x.size, dtype=x.dtype)
    tiny = jnp.finfo(x.dtype).tiny

    def step(state):
        y, _, count = state
        jacobian = jax.jacrev(equations)(y)
        inverse = jnp.linalg.pinv(jacobian)
        multiplier = inverse.T @ (x - y)
        bend = identity + jax.hessian(lambda z: multiplier @ equations(z))(y)
        tangential = identity - inverse @ jacobian
        normal = -inverse @ equations(y)
        values, vectors = jnp.linalg.eigh(tangential @ bend @ tangential + identity - tangential)
        force = vectors.T @ tangential @ (x - y - bend @ normal)
        # Projected once more: far from x the rounding of a long force is not tangential.
        along = tangential @ vectors @ (force / jnp.maximum(jnp.abs(values), 1e-3))
        longest = safe_norm(x - y) + safe_norm(normal)
        move = normal + along * jnp.minimum(1.0, longest / jnp.maximum(safe_norm(along), tiny))
        return y + move, safe_norm(move), count + 1

    # Convergence is quadratic: after a step of this size the error is below rounding.
    small = 0.1 * float(jnp.finfo(x.dtype).eps) ** 0.5
    unfinished = lambda state: (state[1] > small * (safe_norm(state[0]) + scale)) & (state[2] < 100)
    state = (start, jnp.asarray(jnp.inf, x.dtype), 0)
    y = jax.lax.while_loop(unfinished, step, state)[0]
    return y, jnp.linalg.pinv(jax.jacrev(equations)(y)).T @ (x - y)


def newton_distance(equations: Callable[[Array], Array], x: Array) -> Float[Array, ""]:
    """Length of the Newton step to the zero set: the distance to it, to first order."""
    left, sizes, _ = jnp.linalg.svd(jax.jacrev(equations)(x), full_matrices=False)
    # Where the Jacobian is singular a point with f != 0 is far away, but not infinitely far.
    newton = left.T @ equations(x) / jnp.maximum(sizes, jnp.finfo(x.dtype).eps)
    return jnp.linalg.norm(newton)  # not the safe norm, which would call NaN zero


def least_squares(function: Callable[[Array], Array], starts: Array, scale: Any) -> Array:
    """A zero of the function, or a minimum of its square, by the Levenberg-Marquardt method.

    The starts are tried one after the other until one leads to a zero.  `scale` is a length whose
    last digit is the rounding error of the function.
    """
    dtype, size = starts.dtype, starts.shape[1]
    eps, tiny = float(jnp.finfo(dtype).eps), float(jnp.finfo(dtype).tiny)
    values_shape = jax.eval_shape(function, starts[0]).shape

    def step(state):
        (c, values, slopes), move, damping, _, count = state
        new_slopes, new_values = jax.jacfwd(lambda c: (function(c),) * 2, has_aux=True)(c + move)
        # A comparison with NaN, from a step far too long, is false and rejects the step.
        better = jnp.sum(new_values**2) < jnp.sum(values**2)
        choose = lambda new, old: jnp.where(better, new, old)
        longest = safe_norm(c) / 2 + tiny  # longer steps tend to land near another minimum
        c, values, slopes = map(choose, (c + move, new_values, new_slopes), (c, values, slopes))
        damping = choose(jnp.maximum(damping / 10, eps), damping * 5)
        normal = slopes.T @ slopes
        shift = damping * jnp.trace(normal) / size + eps * eps
        move = -jnp.linalg.solve(normal + shift * jnp.eye(size, dtype=dtype), slopes.T @ values)
        move = move * jnp.minimum(1.0, longest / jnp.maximum(safe_norm(move), tiny))
        # Stop at a zero, where steps drown in rounding, and at a minimum above zero, where the
        # linearized function gains nothing.
        length = safe_norm(values)
        going = (length > 4 * eps * scale) & (safe_norm(move) > 16 * eps * safe_norm(c))
        going &= safe_norm(slopes @ move) > 0.01 * length
        return (c, values, slopes), move, damping, going, count + 1

    def attempt(best, start):
        best_c, best_length = best
        unsolved = best_length > eps**0.5 * scale
        nothing = (start, jnp.full(values_shape, jnp.inf), jnp.zeros((*values_shape, size)))
        nothing = jax.tree.map(lambda a: a.astype(dtype), nothing)
        state = (nothing, jnp.zeros_like(start), jnp.asarray(1e-3, dtype), unsolved, 0)
        unfinished = lambda state: state[3] & (state[4] < 60)
        (c, values, _), *_ = jax.lax.while_loop(unfinished, step, state)
        length = safe_norm(values)
        better = length < best_length
        return (jnp.where(better, c, best_c), jnp.where(better, length, best_length)), None

    best = (starts[0], jnp.asarray(jnp.inf, dtype))
    return jax.lax.scan(attempt, best, starts)[0][0]


def linear_solve(linear: Callable[[Any], Any], right: Any) -> Any:
    """Solve linear(z) = right for a linear function of a small tree of arrays."""
    flat, unravel = ravel_pytree(right)
    columns = jax.vmap(lambda e: ravel_pytree(linear(unravel(e)))[0], out_axes=1)
    return unravel(jnp.linalg.solve(columns(jnp.eye(flat.size, dtype=flat.dtype)), flat))


def volume_from_pairs(
    blocks: Any, squared_distance: Callable[[Array, Array], Array], dim: int
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Volume from uniform points, given in several blocks, and its standard error.

    The fraction of pairs closer than rho is omega_d rho^d / volume (1 + O(rho^2)); it is counted
    at two radii and extrapolated.  The standard error is the jackknife's over the blocks.
    """
    count, size = blocks.shape[:2]
    pairs = jax.vmap(jax.vmap(squared_distance, in_axes=(None, 0)), in_axes=(0, None))
    # At the larger radius one pair in a hundred is close; half its square is the smaller one.
    largest = jnp.quantile(pairs(blocks[0], blocks[1]), 0.01)
    squared_radii = jnp.stack([largest / 2, largest])
    balls = math.pi ** (dim / 2) / math.gamma(dim / 2 + 1) * squared_radii ** (dim / 2)

    def close(a, b):
        return jnp.sum(pairs(a, b)[..., None] <= squared_radii, axis=(0, 1))

    def estimate(close_pairs, points):
        # Each point was counted as close to itself.
        densities = (close_pairs - points) / (points * (points - 1.0)) / balls
        return 1 / (2 * densities[0] - densities[1])

    table = jax.lax.map(lambda a: jax.lax.map(lambda b: close(a, b), blocks), blocks)
    total = jnp.sum(table, axis=(0, 1))
    without = total - 2 * jnp.sum(table, axis=1) + jnp.diagonal(table).T
    left_out = jax.vmap(lambda close_pairs: estimate(close_pairs, (count - 1) * size))(without)
    return estimate(total, count * size), jnp.sqrt((count - 1) * jnp.var(left_out))
