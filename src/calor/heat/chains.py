r"""Draws from a density on a manifold by Markov chains, when no direct way is known.

* `metropolis_walk`, the paper's way on any manifold: start from the warped Gaussian, walk along
  random geodesics and accept a step x -> x' with probability min(1, p(x')/p(x)).  The proposal is
  symmetric, because the volume distortion of the exponential map is.  `metropolis_path` has the
  steps alone, for a start that is nearly right.
* `langevin`, for symmetric spaces.  In the tangent space of the origin the heat kernel is the
  Gaussian of variance 2t times exp(h), with h = log p - log G_t + log D a smooth function of the
  kernel coordinates y of the tangent vector v.  Langevin steps that keep the Gaussian invariant,

      v' = rho v + (1 - rho) 2t grad h(v) + sqrt(1 - rho^2) sqrt(2t) z,

  are accepted or not by Metropolis' rule (Cotter et al., "MCMC methods for functions", 2013).
  Only y is kept at the end: a random isometry that fixes x0, a rotation Q on SPD(n), places the
  point.

Both return the point and the mean acceptance probability of the chain.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ..core.types import Key, Point, Scalar
from ..manifolds import AbstractManifold, AbstractSymmetricSpace

_WALK_STEPS = 200
# Length of a proposal in units of the width sqrt(2t) of the target, over sqrt(dimension): the
# optimal scaling 2.38 of random walk Metropolis for a Gaussian.
_WALK_LENGTH = 2.38
_LANGEVIN_STEPS = 10
# Share of the old point in a proposal, and how far along the slope of the tilt the chain starts (a
# half is right for a quadratic tilt, one for a linear one).  With these SPD(10) has its exact
# moments after ten steps, at t = 1 too.
_MEMORY, _FIRST_MOVE = 0.7, 0.6


def metropolis_walk(
    manifold: AbstractManifold,
    log_prob: Callable[[Point], Scalar],
    t: Scalar,
    x0: Point,
    key: Key,
    steps: int = _WALK_STEPS,
) -> tuple[Point, Scalar]:
    """A draw from exp(log_prob), about sqrt(2t) wide around x0, and the acceptance rate."""
    key_start, key_walk = jr.split(key)
    x = manifold.exp_at(x0, jnp.sqrt(2 * t) * manifold.draw_tangent(key_start, x0))
    path, chances = metropolis_path(manifold, log_prob, t, x, key_walk, steps)
    return path[-1], jnp.mean(chances)


def metropolis_path(
    manifold: AbstractManifold,
    log_prob: Callable[[Point], Scalar],
    t: Scalar,
    x: Point,
    key: Key,
    steps: int,
) -> tuple[Float[Array, "s ..."], Float[Array, " s"]]:
    """The points that a chain from x passes, and the acceptance probabilities of its steps."""
    length = jnp.sqrt(2 * t) * _WALK_LENGTH / jnp.sqrt(manifold.dim)

    def step(carry, key):
        x, value = carry
        key_move, key_accept = jr.split(key)
        proposal = manifold.step_at(x, length * manifold.draw_tangent(key_move, x))
        new = log_prob(proposal)
        # Where there is no density, outside of the domain of a metric, no step leads.
        chance = jnp.nan_to_num(jnp.exp(jnp.minimum(new - value, 0.0)))
        accept = jr.uniform(key_accept, dtype=chance.dtype) < chance
        x, value = jnp.where(accept, proposal, x), jnp.where(accept, new, value)
        return (x, value), (x, chance)

    return jax.lax.scan(step, (x, log_prob(x)), jr.split(key, steps))[1]


class ChainReport(NamedTuple):
    """How well the Markov chains of draws mix."""

    acceptance: float
    """The mean acceptance probability of a step."""
    steps: int
    """The steps of the chain of each draw."""
    effective_size: float
    """How many independent draws the states of one chain are worth, from one to `steps`."""


def effective_size(paths: Float[Array, "n s ..."]) -> float:
    """How many independent draws the states of a chain are worth, from many chains of one law.

    The mean of m independent draws has a variance m times smaller than one draw: m is the variance
    of the states over that of the means of the chains, summed over the coordinates.
    """
    states = paths.reshape(*paths.shape[:2], -1)
    spread = jnp.sum(jnp.var(states.reshape(-1, states.shape[-1]), axis=0))
    return float(spread / jnp.sum(jnp.var(jnp.mean(states, axis=1), axis=0)))


def langevin(
    manifold: AbstractSymmetricSpace,
    phi: Callable[[Float[Array, " k"]], Scalar],
    t: Scalar,
    x0: Point,
    key: Key,
) -> tuple[Point, Scalar]:
    """A draw from the density exp(phi(y)) around x0, and the acceptance rate."""
    key_start, key_walk, key_place = jr.split(key, 3)
    origin = manifold.origin().astype(x0.dtype)
    variance = 2 * t

    def tilt(y):
        return phi(y) + jnp.sum(y * y) / (2 * variance) + manifold.log_distortion(y)

    def look(v):
        y, lift = manifold.tangent_coordinates(v)
        value, slope = jax.value_and_grad(tilt)(y)
        mean = _MEMORY * v + (1 - _MEMORY) * variance * lift(slope)
        return v, y, value - jnp.sum(v * v) / (2 * variance), mean

    width = jnp.sqrt((1 - _MEMORY**2) * variance)

    def step(state, key):
        v, _, value, mean = state
        key_move, key_accept = jr.split(key)
        proposal = look(mean + width * manifold.draw_tangent(key_move, origin))
        forth, back = proposal[0] - mean, v - proposal[3]
        change = (jnp.sum(forth * forth) - jnp.sum(back * back)) / (2 * width**2)
        chance = jnp.exp(jnp.minimum(proposal[2] - value + change, 0.0))
        accept = jr.uniform(key_accept, dtype=chance.dtype) < chance
        return jax.tree.map(partial(jnp.where, accept), proposal, state), chance

    v = jnp.sqrt(variance) * manifold.draw_tangent(key_start, origin)
    y, lift = manifold.tangent_coordinates(v)
    # The tilt widens the Gaussian: a first move part of the way along its slope.
    start = look(v + _FIRST_MOVE * variance * lift(jax.grad(tilt)(y)))
    (_, y, _, _), chances = jax.lax.scan(step, start, jr.split(key_walk, _LANGEVIN_STEPS))
    return manifold.point_at(y, x0, key_place), jnp.mean(chances)
