"""Brownian motion in steps along geodesics."""

import jax
import jax.numpy as jnp
import jax.random as jr

from ..core.types import Point, Scalar
from . import AbstractManifold, Submanifold


def geodesic_walk(manifold: Submanifold, t: Scalar, x0: Point, key, steps: int = 24) -> Point:
    """Brownian motion in steps of Gaussian tangent vectors, shortened for the curvature.

    A Gaussian step of variance 2 dt moves too far by dt Ric / 3 of itself, in the mean; so each
    step is shorter by dt R / 6n.
    """
    time = t / steps

    def step(x, key):
        shorter = 1 - time * manifold.scalar_curvature(x) / (6 * manifold.dim)
        length = jnp.sqrt(2 * time) * jnp.maximum(shorter, 0.5)
        return manifold.step_at(x, length * manifold.draw_tangent(key, x)), None

    return jax.lax.scan(step, x0, jr.split(key, steps))[0]


# Steps of the geodesic random walk.
_WALK = 24


def geodesic_random_walk(manifold: AbstractManifold, t, x0, key):
    """Brownian motion for a time t in steps of Gaussian tangent vectors."""
    length = jnp.sqrt(2 * t / _WALK)

    def step(x, step_key):
        return manifold.exp_at(x, length * manifold.draw_tangent(step_key, x)), None

    return jax.lax.scan(step, x0, jr.split(key, _WALK))[0]
