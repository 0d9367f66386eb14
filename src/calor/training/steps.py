"""Steps of an optimizer, of one model or of several of the same shape.

Nothing here knows what is trained: a loss draws examples, and is a function of a model and of
examples.  Where they take longer to draw than a model to learn from them, a pool of examples is
drawn once for many steps, each of which sees some of it.
"""

import dataclasses
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Int

from ..core.types import Key, Scalar
from .fixed import everything, trainable
from .optimizers import optimizer
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

    def member(self, number: Int[Array, ""]) -> "AbstractLoss":
        """The loss of the model of such a number, where several are trained together."""
        return self

    def names(self) -> tuple[str, ...]:
        """The names of these terms."""
        return ()

    def begin(self) -> Any:
        """The state of the balance before the first step."""
        return None

    def adapt(self, state: Any, model: Any, examples: Any, step: Int[Array, ""], /) -> Any:
        """The state for a step on these examples."""
        return state


class Together(AbstractLoss):
    """The losses of several models that are trained together."""

    each: AbstractLoss
    """Losses of the same shape, their arrays with a leading axis."""

    def member(self, number: Int[Array, ""]) -> AbstractLoss:
        return _one(self.each, number)

    def draw(self, count: int, step: Int[Array, ""], key: Key) -> Any:
        """It is a member that draws."""
        raise ValueError("each of these losses draws for itself; ask for a member")

    def __call__(
        self, model: Any, examples: Any, state: Any, /
    ) -> tuple[Scalar, dict[str, Scalar]]:
        """It is a member that is minimized."""
        raise ValueError("each of these losses is for one model; ask for a member")

    def names(self) -> tuple[str, ...]:
        return self.each.names()

    def begin(self) -> Any:
        return self.each.begin()


def together(losses: Sequence[AbstractLoss]) -> Together:
    """The losses of several models that are trained together, one each."""
    return Together(stacked(losses))


class Learner(eqx.Module):
    """What the steps of one model change; of several models, with a leading axis."""

    parameters: Any
    averaged: Any
    optimizer: Any
    running: dict[str, Scalar]
    """Running means of the loss and of its terms."""
    balance: Any
    """The state of the loss."""


@dataclasses.dataclass
class Steps:
    """Makes steps, several in a call if one is quick, on examples of a pool or drawn anew."""

    loss: AbstractLoss
    rest: Any
    settings: Training
    key: Key
    at_once: int = 1
    """The steps of the next call: what they do does not depend on it."""
    reached: int = 0
    pool: Any = None

    def advance(self, learners: Learner, number: int) -> Learner:
        """Make steps after so many; `reached` is the number of all steps then."""
        settings, serves = self.settings, self.serves()
        members = jnp.arange(len(jax.tree.leaves(learners)[0]))
        if serves and (self.pool is None or number % serves == 0):
            self.fill(members, number // serves)
        count, called = min(self.at_once, _due(number, settings, serves)), time.monotonic()
        if settings.optimizer is None:  # one that others share, whatever their number of steps
            settings = dataclasses.replace(settings, steps=1, validate_every=1, patience=1)
        now = jnp.asarray(number), jnp.asarray(count), jnp.asarray(self.settings.steps)
        found = _advance(
            learners, members, self.loss, self.pool, self.key, self.rest, now, settings
        )
        jax.block_until_ready(found)
        taken = time.monotonic() - called
        self.at_once = max(1, min(2 * count, int(_CALL * count / max(taken, 1e-9))))
        self.reached = number + count
        return found

    def serves(self) -> int:
        """The steps that a pool serves; zero if each step draws for itself."""
        reuse = self.settings.reuse or 1
        return _POOL * reuse if reuse > 1 else 0

    def fill(self, members: Int[Array, " k"], pools: int) -> None:
        """Draw the pool after so many."""
        key_pool = jr.fold_in(jr.fold_in(self.key, self.settings.steps), pools)
        size, step = _POOL * self.settings.batch, jnp.asarray(pools * self.serves())
        self.pool = jax.block_until_ready(_fill(self.loss, members, step, key_pool, size))


def seconds_of_a_step(
    models: Sequence[M],
    loss: AbstractLoss,
    settings: Training,
    *,
    key: Key,
    part: Callable[[M], Any] = everything,
    steps: int = 4,
) -> float:
    """How long a step of `train_together` takes, from a few that are made and forgotten.

    What they compile the training uses.
    """
    learners, rest = started(models, loss, settings, part)
    trial, taken = Steps(loss, rest, settings, key), []
    for number, count in ((0, 1), (1, steps), (1, steps)):
        trial.at_once, began = count, time.monotonic()
        trial.advance(learners, number)
        taken.append((time.monotonic() - began) / (trial.reached - number))
    each = min(taken[1:])
    if trial.serves():
        began = time.monotonic()
        trial.fill(jnp.arange(len(models)), 0)
        each += (time.monotonic() - began) / trial.serves()
    return each


def started(
    models: Sequence[M], loss: AbstractLoss, settings: Training, part: Callable[[M], Any]
) -> tuple[Learner, Any]:
    """What is trained of the models, before the first step, and the rest of them."""
    pairs = [trainable(model, part) for model in models]
    parameters, rest = (stacked([pair[i] for pair in pairs]) for i in (0, 1))
    inner = jax.vmap(optimizer(settings).init)(parameters)
    zero = jnp.zeros(len(models))
    running = {name: zero for name in ("loss", *loss.names())}
    balance = stacked([loss.begin() for _ in models])
    return Learner(parameters, parameters, inner, running, balance), rest


def stacked(trees: Sequence[Any]) -> Any:
    """Trees of the same shape as one, its arrays with a leading axis."""
    arrays, rest = zip(*(eqx.partition(tree, eqx.is_array) for tree in trees), strict=True)
    return eqx.combine(jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays), rest[0])


def _one(tree, number):
    """A tree of those that were stacked."""
    return jax.tree.map(lambda a: a[number] if eqx.is_array(a) else a, tree)


def apart(parameters: Any, rest: Any) -> tuple[Any, ...]:
    """The models that were stacked."""
    models = eqx.combine(parameters, rest)
    count = len(jax.tree.leaves(parameters)[0])
    return tuple(_one(models, number) for number in range(count))


@eqx.filter_jit
def _fill(loss, members, step, key, size):
    """A pool of examples for each model."""

    def one(member):
        return loss.member(member).draw(size, step, jr.fold_in(key, member))

    return jax.lax.map(one, members)


def _due(number, settings, serves):
    """The steps until a validation, a new pool or the end."""
    periods = [settings.validate_every] + [serves] * (serves > 0)
    return min(settings.steps - number, *(period - number % period for period in periods))


@eqx.filter_jit
def _advance(learners, members, loss, pool, key, rest, now, settings):
    """So many steps of every model, one model after the other.

    Everything is an argument, so that fits of the same shape share it compiled.  Products of
    matrices are faster one after the other than with a leading axis.
    """
    number, count, total = now
    fixed, static = eqx.partition(rest, eqx.is_array)

    def one(inputs):
        member, learner, fixed, pool = inputs
        own, model = loss.member(member), eqx.combine(fixed, static)
        member_key = jr.fold_in(key, member)

        def step(made, learner):
            at = number + made
            return _step(learner, at, total, own, pool, jr.fold_in(member_key, at), model, settings)

        return jax.lax.fori_loop(0, count, step, learner)

    return jax.lax.map(one, (members, learners, fixed, pool))


def _step(learner, at, total, loss, pool, key, rest, settings):
    if pool is None:
        examples = loss.draw(settings.batch, at, key)
    else:
        chosen = jr.randint(key, (settings.batch,), 0, len(jax.tree.leaves(pool)[0]))
        examples = jax.tree.map(lambda a: a[chosen], pool)
    before = learner.running
    balance = loss.adapt(learner.balance, eqx.combine(learner.parameters, rest), examples, at)

    def value(parameters):
        return loss(eqx.combine(parameters, rest), examples, balance)

    slope = eqx.filter_value_and_grad(value, has_aux=True)
    (found, terms), gradient = slope(learner.parameters)
    found = {"loss": found, **terms}
    if settings.skip_nonfinite:
        gradient = _or_zero(gradient)
        found = {n: jnp.where(jnp.isfinite(v), v, before[n]) for n, v in found.items()}
    update = optimizer(settings).update
    updates, inner = update(gradient, learner.optimizer, learner.parameters, total=total)
    parameters = optax.apply_updates(learner.parameters, updates)
    count = at + 1
    # The average of few steps is short, so that the random start is soon forgotten.
    decay = jnp.minimum(settings.average, (1 + count) / (10 + count))
    averaged = jax.tree.map(lambda a, p: a + (1 - decay) * (p - a), learner.averaged, parameters)
    smooth = jnp.minimum(0.99, (count - 1) / count)
    running = {n: smooth * before[n] + (1 - smooth) * v for n, v in found.items()}
    return Learner(parameters, averaged, inner, running, balance)


def _or_zero(gradient):
    """A gradient, or zero if any of it is not finite."""
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(gradient)]
    return jax.tree.map(lambda g: jnp.where(jnp.all(jnp.stack(finite)), g, 0.0), gradient)
