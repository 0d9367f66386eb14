r"""Draws in few steps: a multistep method for the flow of a model, one evaluation a step.

The *level* A of a time is how far noise has still to go.  Toward smaller levels the flow is

    dx / d(-log A) = v(A, x),

where the *reach* v points at the denoised point D = exp_x(v).  In flat space A = sqrt(2t) and D is
the mean of the data given x; if D stays where it is, x runs along the geodesic to it, and is
exp_x((1 - A'/A) v) at the level A', however long the step (for flows the level is what is left of
the way, and D the mean of where geodesics through x end).  So what has to be small is not the step
but how much D changes.  As in the multistep methods of Lu et al. (2022), DPM-Solver++, it is taken
to go on as it did since the last step, but at a constant rate in A, not in log A: it settles as A
ends.  With v_old = log_x(D_old) the direction to where that step was headed, from the level A_old,

    x' = exp_x( (1 - q) v + (1 - q + q log q) / (A_old/A - 1) (v - v_old) ),      q = A'/A.

The error is of second order on any manifold, since geodesics to a fixed point are exact.

On a compact manifold the score fades as e^(-g t), g the first eigenvalue, and so the level is

    A(t) = int_0^t sqrt(g / (e^(2 g t) - 1)) dt = arctan(sqrt(e^(2 g t) - 1)) / sqrt(g),

which ends at pi / (2 sqrt(g)), and not sqrt(2t), which does not.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.types import Point, Scalar, Tangent
from ..manifolds import AbstractManifold

# Levels are evenly spaced in A^(1/3), not in A^(1/7) as in Karras et al. (2022): see
# `benchmarks/fewsteps.py --powers`.
POWER = 3.0


def level_of(t: Scalar, gap: float) -> Scalar:
    """The level of a time on a manifold with this first eigenvalue."""
    if gap == 0:
        return jnp.sqrt(2 * t)
    return jnp.arctan(jnp.sqrt(jnp.expm1(2 * gap * t))) / gap**0.5


def time_of(level: Scalar, gap: float) -> Scalar:
    """The time of a level."""
    if gap == 0:
        return level**2 / 2
    return jnp.log1p(jnp.tan(gap**0.5 * level) ** 2) / (2 * gap)


def levels_between(
    first: Scalar, last: Scalar, steps: int, power: float = POWER
) -> Float[Array, " k"]:
    """The levels of so many steps, evenly spaced in A^(1/power)."""
    ends = first ** (1 / power), last ** (1 / power)
    inner = jnp.linspace(*ends, steps + 1) ** power
    return inner.at[0].set(first).at[-1].set(last)


def multistep(
    reach: Callable[[Scalar, Point], Tangent],
    manifold: AbstractManifold,
    levels: Float[Array, " k"],
    x: Point,
) -> Point:
    """Follow the flow from a point at the first level down to the last.

    Args:
        reach: the vector to the denoised point, of level and point.
        manifold: where the point moves.
        levels: in decreasing order; the method is asked once at each but the last.
        x: the start.
    """
    # Neighbouring arrays along the way stand for neighbouring points of the covering manifold.
    log = manifold.covering().log_at

    def step(
        carry: tuple[Point, Point, Scalar], ends: Float[Array, "2"]
    ) -> tuple[tuple[Point, Point, Scalar], None]:
        x, target, gap = carry
        level, after = ends
        v, left = reach(level, x), after / level
        # The first step has none before it, and one of no length goes nowhere.
        ahead = (1 - left + left * jnp.log(left)) / jnp.where(gap > 0, gap, jnp.inf)
        vector = (1 - left) * v + ahead * (v - log(x, target))
        moved = manifold.project_at(manifold.exp_at(x, vector))
        headed = manifold.project_at(manifold.exp_at(x, v))
        return (jnp.where(left < 1, moved, x), headed, 1 / left - 1), None

    levels = levels.astype(x.dtype)
    start = x, x, jnp.zeros((), x.dtype)
    return jax.lax.scan(step, start, jnp.stack([levels[:-1], levels[1:]], axis=1))[0][0]
