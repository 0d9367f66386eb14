"""The numerical work behind `Submanifold`: geodesics, closest points, shooting, counting pairs.

Each function treats one point and knows nothing of manifolds beyond the functions it is handed.
"""

import math

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from .._numerics import safe_norm


def runge_kutta(acceleration, x, v, steps):
    """The solution of x'' = acceleration(x, x') at time one, by the classical method."""
    h = 1 / steps

    def step(state, _):
        x, v = state
        a1 = acceleration(x, v)
        v2 = v + h / 2 * a1
        a2 = acceleration(x + h / 2 * v, v2)
        v3 = v + h / 2 * a2
        a3 = acceleration(x + h / 2 * v2, v3)
        v4 = v + h * a3
        a4 = acceleration(x + h * v3, v4)
        x = x + h / 6 * (v + 2 * v2 + 2 * v3 + v4)
        return (x, v + h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)), None

    return jax.lax.scan(step, (x, v), length=steps)[0][0]


def closest_point(equations, x, start, scale):
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
        along = vectors @ (force / jnp.maximum(jnp.abs(values), 1e-3))
        longest = safe_norm(x - y) + safe_norm(normal)
        move = normal + along * jnp.minimum(1.0, longest / jnp.maximum(safe_norm(along), tiny))
        return y + move, safe_norm(move), count + 1

    # Convergence is quadratic: after a step of this size the error is below rounding.
    small = 0.1 * float(jnp.finfo(x.dtype).eps) ** 0.5
    unfinished = lambda state: (state[1] > small * (safe_norm(state[0]) + scale)) & (state[2] < 100)
    state = (start, jnp.asarray(jnp.inf, x.dtype), 0)
    y = jax.lax.while_loop(unfinished, step, state)[0]
    return y, jnp.linalg.pinv(jax.jacrev(equations)(y)).T @ (x - y)


def newton_distance(equations, x):
    """Length of the Newton step to the zero set: the distance to it, to first order."""
    left, sizes, _ = jnp.linalg.svd(jax.jacrev(equations)(x), full_matrices=False)
    # Where the Jacobian is singular a point with f != 0 is far away, but not infinitely far.
    return safe_norm(left.T @ equations(x) / jnp.maximum(sizes, jnp.finfo(x.dtype).eps))


def least_squares(function, start, scale):
    """A minimum of |function|^2, by the Levenberg-Marquardt method.

    `scale` is a length whose last digit is the rounding error of the function.
    """
    eps = float(jnp.finfo(start.dtype).eps)
    identity = jnp.eye(start.size, dtype=start.dtype)

    def evaluate(c):
        slopes, values = jax.jacfwd(lambda c: (function(c),) * 2, has_aux=True)(c)
        return values, slopes

    def step(state):
        old, damping, _, count = state
        c, values, slopes = old
        normal = slopes.T @ slopes
        shift = damping * jnp.trace(normal) / c.size + eps * eps
        move = -jnp.linalg.solve(normal + shift * identity, slopes.T @ values)
        new = (c + move, *evaluate(c + move))
        # A comparison with NaN, from a step far too long, is false and rejects the step.
        better = jnp.sum(new[1] ** 2) < jnp.sum(values**2)
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), new, old)
        damping = jnp.where(better, jnp.maximum(damping / 10, eps), damping * 5)
        return best, damping, safe_norm(move), count + 1

    def unfinished(state):
        (c, values, _), _, move, count = state
        moving = move > 16 * eps * safe_norm(c)
        return (safe_norm(values) > 4 * eps * scale) & moving & (count < 60)

    damping, far = jnp.asarray(1e-3, start.dtype), jnp.asarray(jnp.inf, start.dtype)
    state = ((start, *evaluate(start)), damping, far, 0)
    return jax.lax.while_loop(unfinished, step, state)[0][0]


def linear_solve(linear, right):
    """Solve linear(z) = right for a linear function of a small tree of arrays."""
    flat, unravel = ravel_pytree(right)
    columns = jax.vmap(lambda e: ravel_pytree(linear(unravel(e)))[0], out_axes=1)
    return unravel(jnp.linalg.solve(columns(jnp.eye(flat.size, dtype=flat.dtype)), flat))


def volume_from_pairs(blocks, squared_distance, dim):
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
