r"""The training loop: steps of an optimizer, averaged weights, validation, resuming.

Nothing here knows what is trained: a loss draws examples, and is a function of a model and of
examples.  Where they take longer to draw than a model to learn from them, a pool of examples is
drawn once for many steps, each of which sees some of it.
"""

import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from ..core.types import Key, Scalar
from ..store.stored import stored
from .fixed import everything, trainable
from .optimizers import optimizer
from .run import Run
from .settings import Training

M = TypeVar("M")

# A pool has examples for so many batches, so that few are seen twice in a row.
_POOL = 4

# Steps are made in one call for about this long, in seconds: of a small network a call by itself
# takes as long as a step.
_CALL = 0.3


class AbstractLoss(eqx.Module):
    """What is minimized; the data are fields of it.

    A loss of several terms may balance them by a state of its own.
    """

    @abstractmethod
    def draw(self, count: int, step: Int[Array, ""], key: Key) -> Any:
        """So many random examples, arrays along their first axes, for a step of the training."""

    @abstractmethod
    def __call__(
        self, model: Any, examples: Any, state: Any, /
    ) -> tuple[Scalar, dict[str, Scalar]]:
        """The loss of a model, and the terms that it shows."""

    def names(self) -> tuple[str, ...]:
        """The names of these terms."""
        return ()

    def begin(self) -> Any:
        """The state of the balance before the first step."""
        return None

    def adapt(self, state: Any, model: Any, examples: Any, step: Int[Array, ""], /) -> Any:
        """The state for a step on these examples."""
        return state


class Judge(Protocol):
    """How good a model is at each of so many held out points, the lower the better."""

    def __len__(self) -> int:
        """The number of points."""
        ...

    def __call__(self, model: Any, /) -> Float[np.ndarray, " n"]:
        """The values at the points, always the same for the same model."""
        ...


@stored("History", arrays={"losses": jnp.asarray})  # before the first step there is none
class History(eqx.Module):
    """What training saw at each validation."""

    steps: Int[Array, " v"]
    losses: Float[Array, " v"]
    validations: Float[Array, " v"]
    """The lower the better; of a model, minus the mean log-likelihood of held out points, or, in
    more than ten dimensions, the loss there."""
    seconds: Float[Array, " v"]
    kept: Bool[Array, " v"]
    """Whether the weights were the best so far; those of the last such row are kept."""

    @staticmethod
    def empty(rows: int) -> "History":
        """A history with so many rows to fill."""
        # Of a stated type: where it changes later, a step would be compiled again.
        losses, validations, seconds = (jnp.full(rows, jnp.nan, float) for _ in range(3))
        steps, kept = jnp.zeros(rows, int), jnp.zeros(rows, bool)
        return History(steps, losses, validations, seconds, kept)

    def validation(self) -> float:
        """The validation of the weights that are kept."""
        return float(self.validations[jnp.flatnonzero(self.kept)[-1]])


class State(eqx.Module):
    """Everything needed to go on with a training."""

    step: Int[Array, ""]
    parameters: Any
    averaged: Any
    best: Any
    lowest: Float[Array, " n"]
    """The values at held out points where their mean was lowest."""
    optimizer: Any
    history: History
    running: dict[str, Scalar]
    """Running means of the loss and of its terms."""
    balance: Any
    """The state of the loss."""


def train(
    model: M,
    loss: AbstractLoss,
    settings: Training,
    *,
    key: Key,
    judge: Judge | None = None,
    run: Run | None = None,
    part: Callable[[M], Any] = everything,
    is_guess: bool = False,
) -> tuple[M, History]:
    """Train a model; returns the best averaged one, by validation, and the history.

    The best one is the last whose validation is not worse than the lowest by more than the standard
    error of their difference: small differences are noise, and later weights are averaged longer.
    Without a judge it is the last one.

    Args:
        model: what to train, an equinox module.
        loss: what to minimize.
        settings: the budget.
        key: a random key.
        judge: values of a model at held out points, the lower the better.
        run: progress and resuming.
        part: of the model, which is trained but for what is `Fixed` in it.
        is_guess: whether the model is a guess as it is; then it is the first to be validated.
    """
    parameters, rest = trainable(model, part)
    rows = -(-settings.steps // settings.validate_every) + is_guess
    state = State(
        jnp.zeros((), int),
        parameters,
        parameters,
        parameters,
        jnp.full(1 if judge is None else len(judge), jnp.inf, float),
        optimizer(settings).init(parameters),
        History.empty(rows),
        {name: jnp.zeros(()) for name in ("loss", *loss.names())},
        loss.begin(),
    )
    # The steps that a pool serves; without one each step draws for itself.
    reuse = settings.reuse or 1
    serves = _POOL * reuse if reuse > 1 else 0
    pool, at_once = None, 1
    run, made = run or Run(progress=False), lambda state: int(state.step)
    with run.going(state, made, settings.steps) as going:
        state, number = going.state, made(going.state)
        while True:
            is_due = number % settings.validate_every == 0 or number == settings.steps
            if is_due and (number or is_guess):
                row = (number - 1) // settings.validate_every + is_guess
                if bool(jnp.isnan(state.history.seconds[row])):
                    values = None if judge is None else judge(eqx.combine(state.averaged, rest))
                    _check_finite(state, values)
                    state = _validated(state, row, values, going.seconds())
                    going.reach(state, _shown(state, values))
                if judge is not None and _is_stale(state.history, row, settings.patience):
                    break
            if number == settings.steps:
                break
            if serves and (pool is None or number % serves == 0):
                key_pool = jr.fold_in(jr.fold_in(key, settings.steps), number // serves)
                pool = _fill(loss, state.step, key_pool, settings)
            count, called = min(at_once, _due(number, settings, serves)), time.monotonic()
            state = _advance(state, loss, pool, key, rest, settings, jnp.asarray(count))
            jax.block_until_ready(state.step)
            at_once = _at_once(count, time.monotonic() - called)
            number += count
            going.reach(state, _shown(state) if judge is None else None)
    reached = int(jnp.sum(jnp.isfinite(state.history.seconds)))
    return eqx.combine(state.best, rest), jax.tree.map(lambda a: a[:reached], state.history)


def _shown(state, values=None):
    """The terms of the loss, or it itself, and what the judge says."""
    if values is not None:
        return {"loss": state.running["loss"], "held_out": -np.mean(values)}
    terms = {name: value for name, value in state.running.items() if name != "loss"}
    return terms or state.running


@eqx.filter_jit
def _fill(loss, step, key, settings):
    """A pool of examples."""
    return loss.draw(_POOL * settings.batch, step, key)


def _due(number, settings, serves):
    """The steps until a validation, a new pool or the end."""
    periods = [settings.validate_every] + [serves] * (serves > 0)
    return min(settings.steps - number, *(period - number % period for period in periods))


def _at_once(count, seconds):
    """The steps of the next call: twice those of the last, if that will not be too long.

    What steps do does not depend on it.
    """
    return max(1, min(2 * count, int(_CALL * count / max(seconds, 1e-9))))


@eqx.filter_jit
def _advance(state, loss, pool, key, rest, settings, count):
    """So many steps, on examples of a pool or drawn anew.

    Everything is an argument, so that fits of the same shape share it compiled.
    """

    def step(_, state):
        return _step(state, loss, pool, jr.fold_in(key, state.step), rest, settings)

    return jax.lax.fori_loop(0, count, step, state)


def _step(state, loss, pool, key, rest, settings):
    if pool is None:
        examples = loss.draw(settings.batch, state.step, key)
    else:
        chosen = jr.randint(key, (settings.batch,), 0, len(jax.tree.leaves(pool)[0]))
        examples = jax.tree.map(lambda a: a[chosen], pool)
    model = eqx.combine(state.parameters, rest)
    balance = loss.adapt(state.balance, model, examples, state.step)

    def value(parameters):
        return loss(eqx.combine(parameters, rest), examples, balance)

    slope = eqx.filter_value_and_grad(value, has_aux=True)
    (found, terms), gradient = slope(state.parameters)
    found = {"loss": found, **terms}
    if settings.skip_nonfinite:
        gradient = _or_zero(gradient)
        found = {n: jnp.where(jnp.isfinite(v), v, state.running[n]) for n, v in found.items()}
    updates, inner = optimizer(settings).update(gradient, state.optimizer, state.parameters)
    parameters = optax.apply_updates(state.parameters, updates)
    count = state.step + 1
    # The average of few steps is short, so that the random start is soon forgotten.
    decay = jnp.minimum(settings.average, (1 + count) / (10 + count))
    averaged = jax.tree.map(lambda a, p: a + (1 - decay) * (p - a), state.averaged, parameters)
    smooth = jnp.minimum(0.99, (count - 1) / count)
    running = {n: smooth * state.running[n] + (1 - smooth) * v for n, v in found.items()}
    kept = state.best, state.lowest
    return State(count, parameters, averaged, *kept, inner, state.history, running, balance)


def _or_zero(gradient):
    """A gradient, or zero if any of it is not finite."""
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(gradient)]
    return jax.tree.map(lambda g: jnp.where(jnp.all(jnp.stack(finite)), g, 0.0), gradient)


def _validated(state, row, values, seconds):
    """The state after a validation; without values every one is the best."""
    history, found, is_kept = state.history, jnp.nan, True
    if values is not None:
        lowest, found = np.asarray(state.lowest), float(np.mean(values))
        worse = values - lowest
        is_lowest = found < np.mean(lowest)
        is_kept = is_lowest or np.mean(worse) <= np.std(worse) / np.sqrt(len(worse))
        if is_lowest:
            state = eqx.tree_at(lambda s: s.lowest, state, jnp.asarray(values, state.lowest.dtype))
    if is_kept:
        state = eqx.tree_at(lambda s: s.best, state, state.averaged)
    history = History(
        history.steps.at[row].set(state.step),
        history.losses.at[row].set(jnp.where(state.step > 0, state.running["loss"], jnp.nan)),
        history.validations.at[row].set(found),
        history.seconds.at[row].set(seconds),
        history.kept.at[row].set(is_kept),
    )
    return eqx.tree_at(lambda s: s.history, state, history)


def _is_stale(history, row, patience):
    reached = history.validations[: row + 1]
    return row - int(jnp.nanargmin(reached)) >= patience


def _check_finite(state, values):
    step, loss = int(state.step), float(state.running["loss"])
    validation = 0.0 if values is None else float(np.mean(values))
    if not (np.isfinite(loss) and np.isfinite(validation)):
        what = f"training diverged at step {step}: loss {loss:g}" if step else "before training"
        raise FloatingPointError(
            f"{what}, validation {validation:g}; lower learning_rate or raise t_min."
        )
