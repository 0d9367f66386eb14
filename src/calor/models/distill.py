r"""`calor.distill`: a model whose network jumps along the flow of another one, its teacher.

A draw is one jump, or two, or four, and only jumps that a draw makes are learned (see `jumps`).
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from .. import __version__
from ..core.checks import key_numbers, positive_integer, random_key
from ..core.doors import door
from ..core.types import Key, Points
from ..data.conditions import Condition
from ..manifolds import AbstractManifold
from ..store.stored import stored
from ..training.fixed import Fixed
from ..training.loop import History, train
from ..training.run import Run
from ..training.settings import Training
from .flow_model import AbstractFlowModel
from .jumps import TOLD, WIDER, HeldOutJumps, Jumps, teach
from .model import AbstractModel, in_batches

# Draws of the teacher that judge.
_HELD_OUT = 512


@stored("Distilled", root="model")
class Distilled(AbstractModel):
    """A model that jumps; `calor.distill` makes it.

    Its densities are those of its teacher, whose draws its own are meant to be.
    """

    teacher: AbstractFlowModel
    jumps: Jumps
    steps: tuple[int, ...] = eqx.field(static=True)
    """Numbers of jumps, in increasing order."""
    history: History
    record: str = eqx.field(static=True)

    @property
    def manifold(self) -> AbstractManifold:
        """Of the teacher."""
        return self.teacher.manifold

    @property
    def condition(self) -> Condition | None:
        """Of the teacher."""
        return self.teacher.condition

    @property
    def centre(self) -> np.ndarray | None:
        """Of the teacher."""
        return self.teacher.centre

    @property
    def weights(self) -> tuple[float, ...]:
        """Of the stops of the teacher and of its prior."""
        return self.teacher.weights

    def methods(self) -> tuple[str, ...]:
        return ("jumps",)

    def log_parts(
        self, x: Points, condition: Any, *, key: Key, tolerance: float, probes: int | None
    ) -> Float[Array, "n k"]:
        """Those of the teacher."""
        return self.teacher.log_parts(x, condition, key=key, tolerance=tolerance, probes=probes)

    def draw_parts(
        self, parts: Int[Array, " n"], condition: Any, *, key: Key, steps: int, method: str
    ) -> Float[Array, "n ..."]:
        """Draws by the largest number of jumps up to `steps` that were learned."""
        learned = [count for count in self.steps if count <= steps]
        if not learned:
            raise ValueError(
                f"steps must be at least {self.steps[0]}, the fewest jumps that were learned, got "
                f"{steps}."
            )
        features = self.features(condition, len(parts))
        stops = jnp.asarray([*self.teacher.stops, self.teacher.t1])[parts]
        keys, times = jr.split(key, len(parts)), jnp.zeros(learned[-1] + 1)
        return self.outside(in_batches(self.jumps.draw, keys, stops, features, shared=(times,)))

    def __str__(self) -> str:
        listed = ", ".join(str(count) for count in self.steps)
        return f"Distilled({self.teacher}, in {listed} jumps)"


@door("distill")
def distill(
    model: AbstractFlowModel,
    *,
    condition: Any = None,
    key: Key,
    steps: Sequence[int] = (1, 2, 4),
    draws: int = 20000,
    training: Training | None = None,
    progress: bool | None = None,
    resume: str | Path | None = None,
) -> Distilled:
    """Teach a network to draw from a diffusion model or a flow in a few jumps.

    Args:
        model: the teacher, from `calor.fit` or `calor.fit_flow`.
        condition: those that draws will be asked for, such as those of the data, if the model was
            fitted with conditions.
        key: a random key.
        steps: numbers of jumps that a draw may make.
        draws: of the teacher, from which the network learns.
        training: the budget.
        progress: whether to show a progress bar; by default on a terminal only.
        resume: a file for the state of an unfinished training, which goes on from it if it exists.
    """
    if not model.can_teach():
        raise ValueError(
            f"only a diffusion or a flow can be distilled, got {model!s:.80}; fit one with "
            "calor.fit(parts='diffusion') or 'flow', or take a model of a stack."
        )
    counts = tuple(sorted({positive_integer(count, "steps") for count in np.ravel(steps)}))
    draws = positive_integer(draws, "draws", at_least=4)
    training = training or Training()
    key_rows, key_draws, key_train = jr.split(random_key(key), 3)
    network, field = model.field.network, model.field
    entry = WIDER.find(network)
    if entry is None:
        raise ValueError(f"a model with a {type(network).__name__} cannot be distilled yet.")
    known = model.features(condition, 1 if condition is None else len(condition))
    features = known[jr.randint(key_rows, (draws,), 0, len(known))]
    wider = entry.made(network, TOLD)
    log_times = Fixed(jnp.log(jnp.asarray([model.stops[0], model.t1], float)))
    student = dataclasses.replace(model.bare(), field=dataclasses.replace(field, network=wider))
    jumps = Jumps(student, log_times)
    pairs = teach(jumps, model, features, counts, key=key_draws)
    aside = min(_HELD_OUT, draws // 4)
    held = dataclasses.replace(pairs, places=pairs.places[:aside], features=features[:aside])
    pairs = dataclasses.replace(pairs, places=pairs.places[aside:], features=features[aside:])
    record = {
        "teacher": model.about,
        "steps": list(counts),
        "draws": draws,
        "training": training.record(),
        "key": key_numbers(key).tolist(),
        "calor": __version__,
    }
    run = Run(f"distill on {model.manifold}", record, progress, resume)
    jumps, history = train(
        jumps,
        pairs,
        training,
        key=key_train,
        judge=HeldOutJumps(held),
        run=run,
        part=lambda jumps: jumps.student.field.network,
        is_guess=True,
    )
    if resume is not None:
        Path(resume).unlink(missing_ok=True)
    told: dict[str, Any] = {"history": history, "record": json.dumps(record)}
    return Distilled(teacher=model, jumps=jumps, steps=counts, **told)
