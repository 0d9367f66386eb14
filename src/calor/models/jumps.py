r"""Jumps along the flow of a model, and how they are learned from it.

Where the flow takes a point of the level A (see `few`) until the level A' is learned from what it
does with draws of the prior: a network says the vector

    (1 - A'/A) v(A, A', x)        of the jump       x' = exp_x(...),

and begins as the field of the teacher, for which v is the reach that does not know A'.  With d the
distance of the places, in the embedding, where a jump ends and where it should, and a = sqrt(2t),
the loss is

    (sqrt(d^2 + a'^2) - a') / a.

It is quadratic up to the noise that is left at the end, and linear beyond, since far jumps are not
smooth: a jump between two clusters of data is no better than one into the wrong one.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.registry import Registry
from ..core.types import Key, Point, Scalar
from ..store.stored import stored
from ..training.fixed import Fixed
from ..training.steps import AbstractLoss
from .flow_model import AbstractFlowModel
from .generate import midpoint
from .model import in_batches
from .network import FieldNetwork, time_waves

WIDER = Registry("networks that can be told more")
# Numbers that say where a jump ends.
TOLD = 9
# Steps of the teacher, of two evaluations each: all, and between levels that are kept at least.
_STEPS, _BETWEEN = 48, 4


@WIDER.register(FieldNetwork)
def _wider(network: FieldNetwork, count: int) -> FieldNetwork:
    """A network of a longer condition, of whose last numbers it makes nothing yet."""
    more = jnp.zeros((count, network.layers[0].weight.shape[1]))
    weight = jnp.concatenate([network.layers[0].weight, more.astype(network.out.weight.dtype)])
    return eqx.tree_at(lambda network: network.layers[0].weight, network, weight)


class Aimed(eqx.Module):
    """A network that is told where a jump ends; the rest of a field does not hear of it."""

    network: Any
    end: Float[Array, " e"]

    def __call__(
        self, place: Float[Array, "..."], t: Scalar, condition: Float[Array, " c"]
    ) -> Float[Array, "..."]:
        """What the network says for this end."""
        return self.network(place, t, jnp.concatenate([condition, self.end]))


@stored("Jumps")
class Jumps(eqx.Module):
    """Jumps between levels."""

    student: AbstractFlowModel
    """A teacher whose network takes the end of a jump too."""
    log_times: Fixed
    power: float = eqx.field(static=True, default=7.0)
    """Levels are evenly spaced in A^(1/power); longer steps than those of a solver are as good."""

    def __call__(
        self, level: Scalar, after: Scalar, x: Point, features: Float[Array, " c"]
    ) -> Point:
        """Where a point goes from a level to a later one."""
        student = self.student
        end = time_waves(student.time(after), self.log_times, TOLD // 2).astype(x.dtype)
        aimed = Aimed(student.field.network, end)
        student = eqx.tree_at(lambda student: student.field.network, student, aimed)
        vector = student.reach(level, x, features)
        ahead = student.manifold.exp_at(x, (1 - after / level) * vector)
        return jnp.where(after < level, student.manifold.project_at(ahead), x)

    def levels(self, stop: Scalar, count: int) -> Float[Array, " k"]:
        """The levels of a draw in so many jumps."""
        return self.student.levels(stop, count, self.power)

    def draw(
        self, times: Float[Array, " k"], key: Key, stop: Scalar, features: Float[Array, " c"]
    ) -> Point:
        """A draw in as many jumps as the times have."""
        x = self.student.prior.sample(key, features)
        levels = self.levels(stop.astype(x.dtype), len(times) - 1)

        def jump(x: Point, ends: Float[Array, "2"]) -> tuple[Point, None]:
            return self(ends[0], ends[1], x, features), None

        return jax.lax.scan(jump, x, jnp.stack([levels[:-1], levels[1:]], axis=1))[0]


class Pairs(AbstractLoss):
    """Beginnings and ends of jumps, from draws of the teacher."""

    places: Float[Array, "n l ..."]
    """Where they were at each of the levels."""
    features: Float[Array, "n c"]
    levels: Float[Array, " l"]
    start: Int[Array, " p"]
    end: Int[Array, " p"]
    """The levels between which jumps are, by number."""
    often: Float[Array, " p"]
    """The share of each jump."""

    def draw(self, count: int, step: Int[Array, ""], key: Key) -> Any:
        """So many random jumps."""
        key_row, key_jump = jr.split(key)
        row = jr.randint(key_row, (count,), 0, len(self.places))
        jump = jr.categorical(key_jump, jnp.log(self.often), shape=(count,))
        return self.of(row, jump)

    def of(self, row: Int[Array, " n"], jump: Int[Array, " n"]) -> Any:
        """Levels, places and features of jumps of some draws."""
        start, end = self.start[jump], self.end[jump]
        ends = self.places[row, start], self.places[row, end]
        return self.levels[start], self.levels[end], *ends, self.features[row]

    def __call__(self, model: Jumps, examples: Any, state: Any) -> tuple[Scalar, dict[str, Scalar]]:
        """Their mean loss."""
        return jnp.mean(jax.vmap(lambda *one: jump_loss(model, *one))(*examples)), {}


def jump_loss(
    jumps: Jumps,
    level: Scalar,
    after: Scalar,
    x: Point,
    target: Point,
    features: Float[Array, " c"],
) -> Scalar:
    """How far from its target a jump ends."""
    manifold = jumps.student.manifold
    reached = manifold.embedding(jumps(level, after, x, features))
    squared = jnp.sum((reached - manifold.embedding(target)) ** 2)
    begun, left = (jnp.sqrt(2 * jumps.student.time(a)) for a in (level, after))
    return squared / (begun * (jnp.sqrt(squared + left**2) + left))


class HeldOutJumps:
    """The loss of draws of the teacher that are put aside, all jumps of each."""

    def __init__(self, pairs: Pairs):
        """Of these draws."""
        self._pairs = pairs

    def __len__(self) -> int:
        """The number of draws."""
        return len(self._pairs.places)

    def __call__(self, models: Sequence[Jumps]) -> Float[np.ndarray, " n"]:
        """The mean loss of each draw, of the only model."""
        return np.asarray(_held_out(self._pairs, models[0]), np.float64)


@eqx.filter_jit
def _held_out(pairs, jumps):
    every = jnp.arange(len(pairs.often))

    def one(row):
        examples = pairs.of(jnp.full(len(every), row), every)
        losses = jax.vmap(lambda *jump: jump_loss(jumps, *jump))(*examples)
        return jnp.sum(pairs.often * losses) / jnp.sum(pairs.often)

    return jax.lax.map(one, jnp.arange(len(pairs.places)), batch_size=64)


def teach(
    jumps: Jumps,
    teacher: AbstractFlowModel,
    features: Float[Array, "n c"],
    steps: Sequence[int],
    *,
    key: Key,
) -> Pairs:
    """Draws of a teacher, one for each row of features, and the jumps of so many steps."""
    bare, made, found = teacher.bare(), [], []
    for stop, weight in zip(teacher.stops, teacher.weights, strict=False):
        for count in steps:
            levels = np.asarray(jumps.levels(jnp.asarray(stop), count), np.float64)
            found.extend(levels)
            made.extend((*ends, weight) for ends in zip(levels, levels[1:], strict=False))
    # Levels that draws share differ by rounding.
    kept = np.sort(np.asarray(found)[np.unique(np.round(np.log(found), 4), return_index=True)[1]])
    kept = kept[::-1].copy()

    def number(level):
        return np.argmin(np.abs(np.log(kept) - np.log(level)))

    levels = jnp.asarray(kept, features.dtype if features.size else float)
    keys = jr.split(key, len(features))
    places = in_batches(_Way(bare), keys, features, shared=(levels,))
    starts, ends = (jnp.asarray([number(jump[i]) for jump in made]) for i in (0, 1))
    often = jnp.asarray([jump[2] for jump in made], levels.dtype)
    return Pairs(places, features, levels, starts, ends, often)


class _Way(eqx.Module):
    """Where a draw of the prior is at each level."""

    model: AbstractFlowModel

    def __call__(self, levels, key, features):
        model = self.model
        count = max(_BETWEEN, -(-_STEPS // (len(levels) - 1)))

        def velocity(level, x):
            return model.reach(level, x, features) / level

        def between(x, ends):
            inner = jnp.geomspace(ends[0], ends[1], count + 1)

            def step(x, part):
                return midpoint(velocity, model.manifold, part[0], part[1], x), None

            x = jax.lax.scan(step, x, jnp.stack([inner[:-1], inner[1:]], axis=1))[0]
            return x, x

        x = model.prior.sample(key, features)
        levels = levels.astype(x.dtype)
        after = jax.lax.scan(between, x, jnp.stack([levels[:-1], levels[1:]], axis=1))[1]
        return jnp.concatenate([x[None], after])
