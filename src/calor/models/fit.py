"""Fitting: what diffusion models and flows do in the same way, from data to weights.

One model is fitted for each part of the data that is put aside.  They are trained together, and
what a model says of its own part nobody has told it.
"""

import dataclasses
import hashlib
import json
import time
from pathlib import Path
from typing import Any, Generic

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from .. import __version__
from ..core.checks import key_numbers, random_key
from ..core.doors import warn
from ..core.types import Key, Scalar
from ..data.folds import Folds, Prepared, taken
from ..data.points import embedded
from ..data.prepare import Given, prepare
from ..heat.kernel import AbstractHeatKernel, PoorKernelWarning
from ..manifolds import AbstractManifold
from ..training.loop import History, Judge, train_together
from ..training.run import Run
from ..training.settings import Training
from ..training.steps import AbstractLoss, seconds_of_a_step, together
from . import clouds as clouds  # whose family registers itself
from .families import family_of
from .fields import AbstractField, frame_size
from .flow_model import JUDGED, FlowModel, held_out, weighted
from .guesses import centres_for, find_gaussians, find_mixture
from .guesses.base import AbstractGuess
from .judges import HeldOutLikelihood, HeldOutLoss
from .network import AbstractNetwork, Task
from .objectives import AbstractObjective, squared_error
from .prior import AbstractPrior
from .specification import Choices, Kind, check_kernel
from .times import Scales, Times, find_scales
from .verdict import warn_if_useless


def fit_model(
    kind: Kind[FlowModel],
    kernel: AbstractHeatKernel,
    given: Given,
    choices: Choices,
    *,
    key: Key,
    run: Run,
) -> FlowModel:
    """Prepare the data, train a field, and find the weights of the stops.

    Args:
        kind: of model.
        kernel: gives noise and prior.
        given: points, and what came with them.
        choices: everything else.
        key: a random key.
        run: the name of the work, and how it is shown and gone on with.
    """
    check_kernel(kernel)
    choices.network_for(family_of(kernel.manifold), kernel.manifold).check(kernel.manifold)
    key_split, key_fit = jr.split(random_key(key))
    folds = prepare(kernel.manifold, given, key=key_split, centred=choices.centred)
    (model,), values = begin(kind, kernel, folds, choices, key=key_fit).train(run)
    if len(values) and kernel.manifold.is_compact():
        counts = folds.few(len(values), 1)[0].weights(len(values))
        warn_if_useless(values + kernel.manifold.log_volume(), counts, "uniform")
    if run.resume is not None:
        Path(run.resume).unlink(missing_ok=True)
    return model


@dataclasses.dataclass(frozen=True)
class Untrained(Generic[FlowModel]):
    """Models of random fields, one for each part that is put aside, and what they learn from."""

    models: tuple[FlowModel, ...]
    parts: tuple[Prepared, ...]
    """The data of each."""
    folds: Folds
    loss: AbstractLoss
    judge: Judge
    training: Training
    key_train: Key
    key_check: Key

    def seconds_of_a_step(self) -> float:
        """From a few that are made and forgotten."""
        fields = [model.field for model in self.models]
        return seconds_of_a_step(
            fields, self.loss, self.training, key=self.key_train, part=_network_of
        )

    def seen(self) -> int:
        """The points that a validation looks at, of those that were put aside."""
        held = sum(len(rows) for rows in self.folds.rows) or len(self.parts[0].held_out)
        return min(held, _QUICK_POINTS)

    def seconds_to_judge(self) -> tuple[float, float]:
        """How long a validation takes, and how long weights of stops, when all is compiled.

        The flow is followed by few steps, and the time of all of them follows from that.
        """
        fields = [model.field for model in self.models]
        held, _ = held_out(self.parts, self.folds, JUDGED)

        def weigh() -> None:
            for model, rows in zip(self.models, held, strict=True):
                model.parts_of(rows.points, rows.features, key=self.key_check, steps=_TRIAL_STEPS)

        found = []
        for work in (lambda: self.judge(fields), weigh):
            work()
            began = time.monotonic()
            work()
            found.append(time.monotonic() - began)
        return found[0], found[1] * _USUAL_STEPS / _TRIAL_STEPS

    def train(
        self, run: Run, *, judged: bool = False
    ) -> tuple[tuple[FlowModel, ...], Float[np.ndarray, " h"]]:
        """Train them; returns them, and if `judged` the log-densities of what was put aside."""
        first = self.models[0]
        record = json.loads(first.record)
        fields, history = train_together(
            [model.field for model in self.models],
            self.loss,
            self.training,
            key=self.key_train,
            judge=self.judge,
            run=dataclasses.replace(run, title=f"{run.title} on {first.manifold}", identity=record),
            part=_network_of,
            is_guess=first.field.adds_guess() and first.field.guess is not None,
        )
        models = [
            dataclasses.replace(model, field=field, history=history)
            for model, field in zip(self.models, fields, strict=True)
        ]
        return weighted(models, self.parts, self.folds, key=self.key_check, judged=judged)


def begin(
    kind: Kind[FlowModel],
    kernel: AbstractHeatKernel,
    folds: Folds,
    choices: Choices,
    *,
    key: Key,
    members: int = 1,
) -> Untrained[FlowModel]:
    """Everything about models but their training.

    Args:
        kind: of model.
        kernel: gives noise and prior.
        folds: the data, and what is put aside in turn.
        choices: everything else.
        key: a random key.
        members: how many models there are, if one validation part was given for all.
    """
    manifold = kernel.manifold
    family, field_class = family_of(manifold), kind.field(family_of(manifold))
    network = field_class.network_of(choices.network_for(family, manifold))
    network.check(manifold)
    key_start, key_train, key_check = jr.split(key, 3)
    each = [folds.part(number) for number in range(len(folds.rows) or members)]
    found = find_gaussians(network.has_gaussian(), manifold, each)
    parts, guesses = tuple(part for part, _ in found), [guess for _, guess in found]
    points, starts = folds.whole.points, folds.whole.starts
    # Of points that were measured with noise it is not known how likely the true ones are.
    by_likelihood = network.judges_by_likelihood(manifold) and starts is None
    # A guess that is a law in a chart is near, and its loss tells as much for less.
    is_near = guesses[0] is not None and guesses[0].has_volume()
    widths = None if guesses[0] is None else guesses[0].widths(parts[0].features)
    asked: dict[str, Any] = {"t1": choices.t1, "finest": family.finest, "widths": widths}
    scales = find_scales(kernel, points, t_min=choices.t_min, **asked)
    if starts is not None and choices.t_min is None:
        # Before that nothing is seen of the points: it is the density of the noise that is left.
        earliest = _SEEN * float(np.quantile(starts, 0.1))
        scales = find_scales(kernel, points, t_min=max(scales.t_min, earliest), **asked)
    _warn_if_late(kernel, scales.t1)
    stops = choices.stops_within(scales, by_likelihood)
    if starts is not None and len(stops) > 1:
        raise ValueError(
            f"with concentration there is one stop, got {len(stops)}: how likely the true points "
            "are, by which several are weighed, is not known."
        )
    times = Times(scales.t_min, scales.t1, choices.time_power)
    usual = family.prior(kernel, points, scales, choices.centres, key_check)
    training = choices.training_with(manifold)
    models, losses = [], []
    sizes = [len(part.points) for part in parts]
    centres = centres_for(network.mixture_size(), min(sizes))
    for number, (part, guess) in enumerate(zip(parts, guesses, strict=True)):
        own = jr.fold_in(key_start, number)
        prior = None if guess is None else guess.prior(kernel, scales.t1, key_check)
        prior = prior or usual
        field = _random_field(field_class, network, manifold, part, guess, scales, centres, own)
        objective = kind.objective(times, kernel, prior)
        losses.append(batches(objective, part, max(sizes)))
        record = {
            "manifold": str(manifold),
            "kernel": str(kernel),
            "field": field_class.__name__,
            "network": vars(network),
            "training": training.record(),
            "times": [scales.t_min, scales.t1, choices.time_power],
            "stops": list(stops),
            "data": digest_of(folds, kernel, prior),
            "key": key_numbers(key).tolist(),
            "judged_by": "likelihood" if by_likelihood and not is_near else "loss",
            "member": number,
            "members": len(parts),
            "calor": __version__,
            "centred": choices.centred,
            "centres": choices.centres,
        }
        model = kind.model(
            manifold=manifold,
            field=field,
            prior=prior,
            condition=part.encoder,
            centre=part.centre,
            stops=stops,
            weights=(1.0,) + (0.0,) * len(stops),
            t1=scales.t1,
            history=History.empty(0),
            record=json.dumps(record),
        )
        models.append(model)
    rows, few = held_out(parts, folds, _QUICK_POINTS)
    judge: Judge = HeldOutLoss([loss.objective for loss in losses], rows, key_check)
    if by_likelihood and not is_near:
        judge = HeldOutLikelihood(models, rows, few, few.weights(_QUICK_POINTS), key_check)
    return Untrained(
        tuple(models), parts, folds, together(losses), judge, training, key_train, key_check
    )


# Steps of a flow that are timed, and how many there are usually, of two evaluations each.
_TRIAL_STEPS, _USUAL_STEPS = 4, 50
# The held out points that training sees; the first time of a model of points that were measured
# with noise, in units of that of the best tenth.
_QUICK_POINTS, _SEEN = 512, 1.5


def _network_of(field: AbstractField) -> Any:
    """What of a field is trained."""
    return field.network


def _random_field(
    field_class: type[AbstractField],
    network: AbstractNetwork,
    manifold: AbstractManifold,
    part: Prepared,
    guess: AbstractGuess | None,
    scales: Scales,
    centres: int,
    key: Key,
) -> AbstractField:
    """A field that knows its data by a first guess alone."""
    if guess is None:
        guess = find_mixture(centres, manifold, part.points, scales.t_min, key)
    task = Task(
        manifold=manifold,
        points=part.points,
        scales=scales,
        features=part.features.shape[1],
        told=0 if guess is None else frame_size(manifold),
        outputs=field_class.outputs(manifold),
        smallest=0.0 if guess is None else guess.smallest(embedded(manifold, part.points)),
    )
    built = network.build(task, key=key)
    return field_class(manifold, built, guess)  # pyright: ignore[reportCallIssue]


def _warn_if_late(kernel: AbstractHeatKernel, t1: float) -> None:
    """Warn of times beyond what the kernel is made for."""
    if t1 > kernel.latest():
        warn(
            f"t1 = {t1:g} is later than {kernel.latest():.2g}, up to which "
            f"{kernel} is accurate; lower t1, or solve the kernel up to there: "
            "calor.solve(manifold, key=key), on a Submanifold with calor.recipes.pairs(t1=...).",
            PoorKernelWarning,
        )


def digest_of(folds: Folds, kernel: AbstractHeatKernel, prior: AbstractPrior | None = None) -> str:
    """What tells data from others; an unfinished training goes on only from the same."""
    digest = hashlib.sha256()
    for array in jax.tree.leaves((folds.whole, folds.rows, kernel, prior)):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(json.dumps(kernel.manifold.fingerprint()).encode())
    return digest.hexdigest()[:16]


class Batches(AbstractLoss):
    """The objective on random data points."""

    objective: AbstractObjective
    points: Float[Array, "n ..."]
    features: Float[Array, "n k"]
    count: Int[Array, ""]
    """How many of them there are; the others fill up."""
    sums: Float[Array, " n"] | None
    """The running sum of how much points count, up to one, if they do not count the same."""
    starts: Float[Array, " n"] | None
    """The time after which each point is a draw, if points were measured with noise."""

    def draw(self, count: int, step: Int[Array, ""], key: Key) -> Any:
        """Examples from so many data points, with repetition."""
        key_batch, key_noise = jr.split(key)
        if self.sums is None:
            chosen = jr.randint(key_batch, (count,), 0, self.count)
        else:
            chosen = jnp.searchsorted(self.sums, jr.uniform(key_batch, (count,)), side="right")
            chosen = jnp.minimum(chosen, self.count - 1)
        starts = None if self.starts is None else self.starts[chosen]
        return self.objective.draw(self.points[chosen], self.features[chosen], key_noise, starts)

    def __call__(
        self, field: AbstractField, examples: Any, state: Any
    ) -> tuple[Scalar, dict[str, Any]]:
        """Their mean squared error."""
        return squared_error(field, field.manifold, examples), {}


def batches(objective: AbstractObjective, part: Prepared, size: int | None = None) -> Batches:
    """The objective on the training points, filled up to so many."""
    count = len(part.points)
    rows = np.minimum(np.arange(size or count), count - 1)
    sums = None
    if part.weights is not None:
        sums = jnp.asarray((np.cumsum(part.weights) / np.sum(part.weights))[rows], float)
    points, features = taken(part.points, rows), taken(part.features, rows)
    starts = None if part.starts is None else jnp.asarray(part.starts[rows], float)
    return Batches(objective, points, features, jnp.asarray(count), sums, starts)
