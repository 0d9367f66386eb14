r"""The training loop of models: steps of an optimizer, averaged weights, validation, resuming.

Nothing here knows what is trained: a loss draws examples from data, and is a function of a model
and of examples.  Where they take longer to draw than a model to learn from them, a pool of examples
is drawn once for many steps, each of which sees some of it.
"""

import time
from pathlib import Path
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int
from tqdm import tqdm

from ..core.types import Key, Scalar
from ..store import files
from ..store.stored import stored
from .fixed import trainable
from .optimizers import optimizer
from .settings import Training

# A state is saved this often, in seconds.
_SAVE_EVERY = 30.0

# A pool has examples for so many batches, so that few are seen twice in a row.
_POOL = 4

# Steps are made in one call for about this long, in seconds: of a small network a call by itself
# takes as long as a step.
_CALL = 0.3


class Loss(Protocol):
    """What is minimized."""

    def draw(self, data: Any, count: int, key: Key, /) -> Any:
        """So many random examples, arrays along their first axes."""
        ...

    def __call__(self, model: Any, examples: Any, /) -> Scalar:
        """The loss of a model."""
        ...


class Validation(Protocol):
    """How good a model is at each of so many held out points, the lower the better."""

    def __len__(self) -> int:
        """The number of points."""
        ...

    def __call__(self, model: Any, /) -> Float[np.ndarray, " n"]:
        """The values at the points."""
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
    running_loss: Scalar


def train(
    model: Any,
    loss: Loss,
    validate: Validation,
    data: Any,
    settings: Training,
    key: Key,
    *,
    title: str,
    identity: dict,
    is_guess: bool = False,
    progress: bool | None = None,
    resume: str | Path | None = None,
) -> tuple[Any, History]:
    """Train a model; returns the best averaged one, by validation, and the history.

    The best one is the last whose validation is not worse than the lowest by more than the standard
    error of their difference: small differences are noise, and later weights are averaged longer.

    Args:
        model: what to train, an equinox module.
        loss: what to minimize.
        validate: values of a model at held out points, the lower the better; deterministic.
        data: arrays that the loss draws examples from.
        settings: the budget.
        key: a random key.
        title: for the progress bar.
        identity: what an unfinished run must agree with to be continued.
        is_guess: whether the model is a guess as it is; then it is the first to be validated.
        progress: whether to show a progress bar; by default on a terminal only.
        resume: a file for the state of an unfinished run, as for `calor.solve`.
    """
    parameters, rest = trainable(model)
    transform = optimizer(settings)
    rows = -(-settings.steps // settings.validate_every) + is_guess
    state = State(
        jnp.zeros((), int),
        parameters,
        parameters,
        parameters,
        jnp.full(len(validate), jnp.inf, float),
        transform.init(parameters),
        History.empty(rows),
        jnp.zeros(()),
    )
    if resume is not None and Path(resume).exists():
        state = files.load_state(resume, state, identity)
    before = float(jnp.nanmax(jnp.append(state.history.seconds, 0.0)))
    begun = saved = time.monotonic()
    number, pool = int(state.step), None
    # The steps that a pool serves; without one each step draws for itself.
    reuse = settings.reuse or 1
    serves = _POOL * reuse if reuse > 1 else 0
    at_once = 1
    bar = tqdm(
        total=settings.steps,
        initial=number,
        desc=title,
        unit="step",
        disable=None if progress is None else not progress,
        dynamic_ncols=True,
        leave=False,
    )
    try:
        with bar:
            while True:
                is_due = number % settings.validate_every == 0 or number == settings.steps
                if is_due and (number or is_guess):
                    row = (number - 1) // settings.validate_every + is_guess
                    if bool(jnp.isnan(state.history.validations[row])):
                        values = validate(eqx.combine(state.averaged, rest))
                        found = float(np.mean(values))
                        _check_finite(state, found)
                        state = _validated(state, row, values, before + time.monotonic() - begun)
                        shown = f"{float(state.history.losses[row]):.4f}"
                        bar.set_postfix(loss=shown, held_out=f"{-found:.3f}")
                    if _is_stale(state.history, row, settings.patience):
                        break
                if number == settings.steps:
                    break
                if serves and (pool is None or number % serves == 0):
                    key_pool = jr.fold_in(jr.fold_in(key, settings.steps), number // serves)
                    pool = _fill(data, key_pool, loss, settings)
                inputs = pool if serves else data
                count, called = min(at_once, _due(number, settings, serves)), time.monotonic()
                state = _advance(state, inputs, key, rest, loss, settings, jnp.asarray(count))
                jax.block_until_ready(state.step)
                at_once = _at_once(count, time.monotonic() - called)
                number += count
                bar.update(count)
                if resume is not None and time.monotonic() - saved > _SAVE_EVERY:
                    files.save_state(resume, state, identity)
                    saved = time.monotonic()
    except KeyboardInterrupt:
        if resume is not None:
            files.save_state(resume, state, identity)
        raise
    if resume is not None:  # what follows may be interrupted too; who asked for it removes it
        files.save_state(resume, state, identity)
    reached = int(jnp.sum(jnp.isfinite(state.history.seconds)))
    return eqx.combine(state.best, rest), jax.tree.map(lambda a: a[:reached], state.history)


@eqx.filter_jit
def _fill(data, key, loss, settings):
    """A pool of examples."""
    return loss.draw(data, _POOL * settings.batch, key)


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
def _advance(state, inputs, key, rest, loss, settings, count):
    """So many steps, on examples of a pool or drawn from data.

    Everything is an argument, so that fits of the same shape share it compiled.
    """

    def step(_, state):
        return _step(state, inputs, jr.fold_in(key, state.step), rest, loss, settings)

    return jax.lax.fori_loop(0, count, step, state)


def _step(state, inputs, key, rest, loss, settings):
    if (settings.reuse or 1) > 1:
        count = len(jax.tree.leaves(inputs)[0])
        chosen = jr.randint(key, (settings.batch,), 0, count)
        examples = jax.tree.map(lambda a: a[chosen], inputs)
    else:
        examples = loss.draw(inputs, settings.batch, key)

    def value(parameters):
        return loss(eqx.combine(parameters, rest), examples)

    found, gradient = eqx.filter_value_and_grad(value)(state.parameters)
    updates, inner = optimizer(settings).update(gradient, state.optimizer, state.parameters)
    parameters = optax.apply_updates(state.parameters, updates)
    count = state.step + 1
    # The average of few steps is short, so that the random start is soon forgotten.
    decay = jnp.minimum(settings.average, (1 + count) / (10 + count))
    averaged = jax.tree.map(lambda a, p: a + (1 - decay) * (p - a), state.averaged, parameters)
    smooth = jnp.minimum(0.99, (count - 1) / count)
    running = smooth * state.running_loss + (1 - smooth) * found
    fixed = state.best, state.lowest
    return State(count, parameters, averaged, *fixed, inner, state.history, running)


def _validated(state, row, values, seconds):
    history, lowest, found = state.history, np.asarray(state.lowest), float(np.mean(values))
    worse = values - lowest
    is_lowest = found < np.mean(lowest)
    is_kept = is_lowest or np.mean(worse) <= np.std(worse) / np.sqrt(len(worse))
    if is_kept:
        state = eqx.tree_at(lambda s: s.best, state, state.averaged)
    if is_lowest:
        state = eqx.tree_at(lambda s: s.lowest, state, jnp.asarray(values, state.lowest.dtype))
    history = History(
        history.steps.at[row].set(state.step),
        history.losses.at[row].set(jnp.where(state.step > 0, state.running_loss, jnp.nan)),
        history.validations.at[row].set(found),
        history.seconds.at[row].set(seconds),
        history.kept.at[row].set(is_kept),
    )
    return eqx.tree_at(lambda s: s.history, state, history)


def _is_stale(history, row, patience):
    reached = history.validations[: row + 1]
    return row - int(jnp.nanargmin(reached)) >= patience


def _check_finite(state, validation):
    step, loss = int(state.step), float(state.running_loss)
    if not (jnp.isfinite(loss) and jnp.isfinite(validation)):
        what = f"training diverged at step {step}: loss {loss:g}" if step else "before training"
        raise FloatingPointError(
            f"{what}, validation {validation:g}; lower learning_rate or raise t_min."
        )
