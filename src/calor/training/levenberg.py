"""The Levenberg-Marquardt method for small networks: least squares by damped Gauss-Newton steps.

To minimize |R(p)|^2, with J the Jacobian of R at p, step by the solution d of

    (J^T J + damping) d = J^T R,

and accept p - d if the sum of squares decreases; then the damping is divided by 3, else multiplied
by 4 and the step tried again.  For networks of up to some thousand parameters in float64 this
reaches residuals that stochastic gradients do not.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

from ..core.types import Scalar

_LEAST_DAMPING, _TRIES = 1e-15, 12


class Step(eqx.Module):
    """Where the minimization is."""

    parameters: Float[Array, " p"]
    damping: Scalar
    losses: Float[Array, " b"]
    """The sum of squares of each block of residuals."""


def start(parameters: Float[Array, " p"], blocks: int, damping: float = 1e-2) -> Step:
    """The state before the first step."""
    dtype = parameters.dtype
    return Step(parameters, jnp.asarray(damping, dtype), jnp.full(blocks, jnp.inf, dtype))


def advance(
    residuals: Sequence[Callable[[Float[Array, " p"], Any], Scalar]],
    data: Sequence[Any],
    state: Step,
) -> Step:
    """One accepted step, or, if none decreases the sum of squares, the same parameters.

    Args:
        residuals: for each block of R one component, as a function of the parameters and of one
            row of the block's data.
        data: for each block arrays with one row for each component, along their first axes.
        state: where to start from.
    """
    blocks = list(zip(residuals, data, strict=True))

    def losses(parameters):
        squares = [
            jnp.sum(jax.vmap(residual, (None, 0))(parameters, rows) ** 2)
            for residual, rows in blocks
        ]
        return jnp.stack(squares)

    values, jacobians = zip(
        *(
            jax.vmap(jax.value_and_grad(residual), (None, 0))(state.parameters, rows)
            for residual, rows in blocks
        ),
        strict=True,
    )
    now = jnp.stack([jnp.sum(value**2) for value in values])
    hessian = sum(jacobian.T @ jacobian for jacobian in jacobians)
    gradient = sum(jacobian.T @ value for jacobian, value in zip(jacobians, values, strict=True))
    identity = jnp.eye(len(state.parameters), dtype=state.parameters.dtype)

    def attempt(carry):
        step, tries, _ = carry
        change = cho_solve(cho_factor(hessian + step.damping * identity), gradient)
        parameters = state.parameters - change
        new = losses(parameters)
        better = jnp.sum(new) < jnp.sum(now)  # false for NaN: the matrix was not positive definite
        accepted = Step(parameters, jnp.maximum(step.damping / 3, _LEAST_DAMPING), new)
        refused = Step(state.parameters, 4 * step.damping, now)
        return jax.tree.map(partial(jnp.where, better), accepted, refused), tries + 1, better

    step, _, _ = jax.lax.while_loop(
        lambda carry: ~carry[2] & (carry[1] < _TRIES),
        attempt,
        (Step(state.parameters, state.damping, now), 0, jnp.asarray(False)),
    )
    return step
