r"""Log-likelihoods by following a flow: d log p / d tau = -div v along dx / d tau = v(tau, x).

For a diffusion the flow is the probability flow, v = -grad log p_t; for flow matching it is the
learned velocity.  The density is with respect to the Riemannian volume, and so is the divergence.
"""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ..core.types import Key, Point, Scalar, Tangent
from ..manifolds import AbstractManifold, calculus

Velocity = Callable[[Scalar, Point], Tangent]
# Above this dimension the divergence is estimated (Hutchinson).
EXACT_DIVERGENCE = 10
LARGEST_STEPS = 4096


class Trajectory(eqx.Module):
    """Where a point went along the flow."""

    end: Point
    divergence: Scalar
    """The integral of div v along the way."""
    steps: Scalar
    reached: Scalar
    """Whether the end was reached within the tolerance."""


def follow(
    velocity: Velocity,
    manifold: AbstractManifold,
    x: Point,
    start: Scalar,
    end: Scalar,
    *,
    tolerance: float | Scalar,
    probes: Float[Array, "p ..."] | None = None,
    steps: int | None = None,
) -> Trajectory:
    """Follow the flow from one point with a Runge-Kutta method.

    The state is the point in ambient coordinates, put back on the manifold whenever the velocity
    is asked for, and the integral of the divergence.

    Args:
        velocity: of time and point.
        manifold: where the point moves.
        x: the start.
        start: the time of the start.
        end: the time of the end, later or earlier.
        tolerance: absolute and relative, for each step.
        probes: random signs, as vectors in coefficients of the basis, to estimate the divergence
            with; None computes it exactly.
        steps: of equal length, of the midpoint rule, instead of adaptive ones.
    """

    def rate(tau: Any, state: tuple[Point, Scalar], _: Any) -> tuple[Tangent, Scalar]:
        return _rate(velocity, manifold, probes, tau, state[0])

    solver, controller = diffrax.Tsit5(), diffrax.PIDController(rtol=tolerance, atol=tolerance)
    if steps is not None:
        solver, controller = diffrax.Midpoint(), diffrax.ConstantStepSize()
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(rate),
        solver,
        start,
        end,
        (end - start) / (steps or 100),
        (x, jnp.zeros((), x.dtype)),
        stepsize_controller=controller,
        max_steps=LARGEST_STEPS,
        throw=False,
    )
    place, total = jax.tree.map(lambda a: a[-1], solution.ys)
    reached = solution.result == diffrax.RESULTS.successful
    return Trajectory(manifold.project_at(place), total, solution.stats["num_steps"], reached)


@eqx.filter_jit
def _rate(velocity, manifold, probes, tau, x):
    """The velocity and its divergence; if it is a value, traced once for all flows."""
    place = manifold.project_at(x)
    frame = manifold.basis(place)
    if probes is not None:
        frame = jnp.tensordot(probes, frame, axes=1) / jnp.sqrt(len(probes))
    return calculus.value_and_divergence(
        lambda y: velocity(tau, y), place, frame, manifold.inner_at
    )


def probes(key: Key, manifold: AbstractManifold, x: Point, count: int) -> Float[Array, "p m"]:
    """Random signs for Hutchinson's estimator, in coefficients of the basis."""
    size = jax.eval_shape(manifold.basis, x).shape[0]
    return jr.rademacher(key, (count, size), dtype=x.dtype)
