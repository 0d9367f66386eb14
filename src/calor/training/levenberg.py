"""The Levenberg-Marquardt method for small networks: least squares by damped Gauss-Newton steps.

To minimize |R(p)|^2, with J the Jacobian of R at p, step by the solution d of

    (J^T J + damping) d = J^T R,

and accept p - d if the sum of squares decreases; then the damping is divided by 3, else multiplied
by 4 and the step tried again.  For networks of up to some thousand parameters in float64 this
reaches residuals that stochastic gradients do not.

A hard problem is cut into stages, windows of time or fresh points, each of which starts where an
earlier one ended.  optimistix's method was weighed for the steps.  Here residuals come in blocks of
one formula each, whose J^T J are added up without J ever being put together; the rows of a block
are arguments, so that the steps of all stages are compiled once; and a stage says with which
damping it goes on.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float, Int

from ..core.types import Key, Scalar
from .run import Run

Residual = Callable[[Float[Array, " p"], Any], Scalar]
"""One component of a block of residuals, as a function of the parameters and of its row."""

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


def advance(residuals: Sequence[Residual], data: Sequence[Any], state: Step) -> Step:
    """One accepted step, or, if none decreases the sum of squares, the same parameters.

    Args:
        residuals: for each block of R one component.
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


class Done(eqx.Module):
    """What the finished stages found."""

    parameters: Float[Array, "s p"]
    losses: Float[Array, " s"]


class AbstractStages(eqx.Module):
    """Least squares solved one after the other; a stage may start from what those before found."""

    @abstractmethod
    def steps(self) -> tuple[int, ...]:
        """The number of steps in each stage."""

    @abstractmethod
    def residuals(self) -> dict[str, Residual]:
        """The blocks of residuals and their names, the same in all stages."""

    @abstractmethod
    def begin(self, stage: int, done: Done, key: Key) -> Step:
        """The state at the beginning of a stage."""

    @abstractmethod
    def rows(self, stage: int, done: Done, key: Key) -> Sequence[Any]:
        """The rows of each block in a stage."""


class Reached(eqx.Module):
    """How far the stages are: everything that is needed to go on."""

    stage: Int[Array, ""]
    number: Int[Array, ""]
    """The steps that were made in this stage."""
    state: Step
    done: Done


def minimize(stages: AbstractStages, *, key: Key, run: Run) -> tuple[Done, float]:
    """Go through all stages; returns what they found and the seconds it took.

    Args:
        stages: what to minimize.
        key: a random key.
        run: progress and resuming.
    """
    steps, names = stages.steps(), tuple(stages.residuals())

    def fresh(stage, done):
        state = stages.begin(stage, done, jr.fold_in(key, 2 * stage))
        return Reached(jnp.asarray(stage), jnp.zeros((), int), state, done)

    first = fresh(0, Done(jnp.zeros((0, 0)), jnp.zeros(0)))
    size = len(first.state.parameters)
    done = Done(jnp.zeros((len(steps), size)), jnp.zeros(len(steps)))
    first = eqx.tree_at(lambda reached: reached.done, first, done)

    def made(reached):
        return sum(steps[: int(reached.stage)]) + int(reached.number)

    with run.going(first, made, sum(steps)) as going:
        while (stage := int(going.state.stage)) < len(steps):
            state, done = going.state.state, going.state.done
            rows = stages.rows(stage, done, jr.fold_in(key, 2 * stage + 1))
            for number in range(int(going.state.number), steps[stage]):
                state = jax.block_until_ready(_advance(stages, rows, state))
                reached = Reached(going.state.stage, jnp.asarray(number + 1), state, done)
                going.reach(reached, dict(zip(names, state.losses, strict=True)))
            done = Done(
                done.parameters.at[stage].set(state.parameters),
                done.losses.at[stage].set(sum(state.losses)),
            )
            last = Reached(jnp.asarray(stage + 1), jnp.zeros((), int), state, done)
            going.reach(last if stage + 1 == len(steps) else fresh(stage + 1, done))
        return going.state.done, going.seconds()


@eqx.filter_jit
def _advance(stages, rows, state):
    return advance(tuple(stages.residuals().values()), rows, state)
