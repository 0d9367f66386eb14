"""The training loop: steps, validation, averaged weights that are kept, resuming.

Several models of the same shape, such as the members of an ensemble, are trained together: each
learns by itself, and they are judged, kept and stopped as one.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..core.types import Key
from ..store.stored import stored
from .fixed import everything
from .run import Run
from .settings import Training
from .steps import AbstractLoss, Learner, Steps, apart, started

M = TypeVar("M")


class Judge(Protocol):
    """How good models are at each of so many held out points, the lower the better."""

    def __len__(self) -> int:
        """The number of points."""
        ...

    def __call__(self, models: Sequence[Any], /) -> Float[np.ndarray, " n"]:
        """The values at the points, always the same for the same models."""
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
    learners: Learner
    best: Any
    lowest: Float[Array, " n"]
    """The values at held out points where their mean was lowest."""
    history: History


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
    """Train one model, as `train_together` does several."""
    more: dict[str, Any] = {"judge": judge, "run": run, "part": part, "is_guess": is_guess}
    (trained,), history = train_together([model], loss, settings, key=key, **more)
    return trained, history


def train_together(
    models: Sequence[M],
    loss: AbstractLoss,
    settings: Training,
    *,
    key: Key,
    judge: Judge | None = None,
    run: Run | None = None,
    part: Callable[[M], Any] = everything,
    is_guess: bool = False,
) -> tuple[tuple[M, ...], History]:
    """Train models of the same shape; returns the best averaged ones, by validation, and history.

    They are judged together and stop together.  The best ones are the last whose validation is not
    worse than the lowest by more than the standard error of their difference: small differences are
    noise, and later weights are averaged longer.  Without a judge they are the last ones.

    Args:
        models: what to train, equinox modules.
        loss: what to minimize; its `member` is the loss of a single model.
        settings: the budget.
        key: a random key.
        judge: values of the models at held out points, the lower the better.
        run: progress and resuming.
        part: of a model, which is trained but for what is `Fixed` in it.
        is_guess: whether a model is a guess as it is; then it is the first to be validated.
    """
    learners, rest = started(models, loss, settings, part)
    rows = -(-settings.steps // settings.validate_every) + is_guess
    lowest = jnp.full(1 if judge is None else len(judge), jnp.inf, float)
    start = jnp.zeros((), int), learners, learners.averaged, lowest, History.empty(rows)
    steps = Steps(loss, rest, settings, key)
    run, made = run or Run(progress=False), lambda state: int(state.step)
    with run.going(State(*start), made, settings.steps) as going:
        state, number = going.state, made(going.state)
        while True:
            is_due = number % settings.validate_every == 0 or number == settings.steps
            if is_due and (number or is_guess):
                row = (number - 1) // settings.validate_every + is_guess
                if bool(jnp.isnan(state.history.seconds[row])):
                    averaged = apart(state.learners.averaged, rest)
                    values = None if judge is None else judge(averaged)
                    _check_finite(state, values)
                    state = _validated(state, row, values, going.seconds())
                    going.reach(state, _shown(state, values))
                if judge is not None and _is_stale(state.history, row, settings.patience):
                    break
            if number == settings.steps:
                break
            learners = steps.advance(state.learners, number)
            number = steps.reached
            state = dataclasses.replace(state, step=jnp.asarray(number), learners=learners)
            going.reach(state, _shown(state) if judge is None else None)
    reached = int(jnp.sum(jnp.isfinite(state.history.seconds)))
    return apart(state.best, rest), jax.tree.map(lambda a: a[:reached], state.history)


def _running(state):
    """The running means of the loss and of its terms, over all models."""
    return {name: float(jnp.mean(value)) for name, value in state.learners.running.items()}


def _shown(state, values=None):
    """The terms of the loss, or it itself, and what the judge says."""
    running = _running(state)
    if values is not None:
        return {"loss": running["loss"], "held_out": -np.mean(values)}
    return {name: value for name, value in running.items() if name != "loss"} or running


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
        state = dataclasses.replace(state, best=state.learners.averaged)
    history = History(
        history.steps.at[row].set(state.step),
        history.losses.at[row].set(_running(state)["loss"] if state.step > 0 else jnp.nan),
        history.validations.at[row].set(found),
        history.seconds.at[row].set(seconds),
        history.kept.at[row].set(is_kept),
    )
    return eqx.tree_at(lambda s: s.history, state, history)


def _is_stale(history, row, patience):
    reached = history.validations[: row + 1]
    return row - int(jnp.nanargmin(reached)) >= patience


def _check_finite(state, values):
    step, loss = int(state.step), _running(state)["loss"]
    validation = 0.0 if values is None else float(np.mean(values))
    if not (np.isfinite(loss) and np.isfinite(validation)):
        what = f"training diverged at step {step}: loss {loss:g}" if step else "before training"
        raise FloatingPointError(
            f"{what}, validation {validation:g}; lower learning_rate or raise t_min."
        )
