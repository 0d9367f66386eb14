r"""Generation: from noise at the last time back to data, step by step on the manifold.

Times run down t_0 > t_1 > ... geometrically.  With a = sqrt(2t) the noise level, one step from t to
t' moves a point x by a geodesic:

* `walk`, the reverse SDE dX = 2 s dt + sqrt(2) dB (time running backwards):

      x' = exp_x( 2 (t - t') s + sqrt(2 (t - t') t'/t) z ),    z a standard Gaussian at x.

  The variance has the factor t'/t of the law of X_t' given X_t and X_0 in flat space, so that long
  steps are right as well where the data are one point.

* `flow`, the probability flow dx/dt = -s, that is dx/da = -a s: the midpoint rule in a, written in
  the tangent space at the midpoint m,  x' = exp_m( log_m(x) + (a' - a) (-a_m s_m) ).

* `corrected`, the walk with Langevin steps x -> exp_x(e s + sqrt(2 e) z) after each step.
"""

from collections.abc import Callable

import jax.numpy as jnp
import jax.random as jr

from ..core.types import Key, Point, Scalar, Tangent
from ..manifolds import AbstractManifold

Field = Callable[[Scalar, Point], Tangent]
# Langevin steps, in units of t: the noise has variance 2t, so this is well below instability.
_LANGEVIN = 0.25


def walk(
    score: Field, manifold: AbstractManifold, t: Scalar, after: Scalar, x: Point, key: Key
) -> Point:
    """One step of the reverse SDE."""
    drift = 2 * (t - after) * score(t, x)
    noise = jnp.sqrt(2 * (t - after) * after / t) * manifold.draw_tangent(key, x)
    return manifold.project_at(manifold.exp_at(x, drift + noise))


def flow(
    score: Field, manifold: AbstractManifold, t: Scalar, after: Scalar, x: Point, key: Key
) -> Point:
    """One step of the probability flow."""
    start, end = jnp.sqrt(2 * t), jnp.sqrt(2 * after)
    return midpoint(lambda a, x: a * score(a**2 / 2, x), manifold, start, end, x)


def midpoint(
    velocity: Field, manifold: AbstractManifold, start: Scalar, end: Scalar, x: Point
) -> Point:
    """One step of the midpoint rule, from `start` down to `end`."""
    halfway = manifold.exp_at(x, (start - end) / 2 * velocity(start, x))
    move = (start - end) * velocity((start + end) / 2, halfway)
    return manifold.project_at(manifold.exp_at(halfway, manifold.log_at(halfway, x) + move))


def corrected(
    score: Field, manifold: AbstractManifold, t: Scalar, after: Scalar, x: Point, key: Key
) -> Point:
    """One step of the reverse SDE and one of Langevin dynamics."""
    key_walk, key_noise = jr.split(key)
    x = walk(score, manifold, t, after, x, key_walk)
    length = _LANGEVIN * after
    noise = jnp.sqrt(2 * length) * manifold.draw_tangent(key_noise, x)
    return manifold.project_at(manifold.exp_at(x, length * score(after, x) + noise))


Step = Callable[[Field, AbstractManifold, Scalar, Scalar, Point, Key], Point]
"""One step of a draw: from a score, at a time, to an earlier time."""
STEPS: dict[str, Step] = {"walk": walk, "flow": flow, "corrected": corrected}
