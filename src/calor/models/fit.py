"""Fitting a model: what diffusion models and flows do in the same way, from data to weights."""

import dataclasses
import hashlib
import json
from pathlib import Path

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .. import __version__
from ..core.checks import key_numbers, random_key
from ..core.doors import warn
from ..core.types import Key
from ..data.prepare import Given, Prepared, prepare
from ..heat.kernel import AbstractHeatKernel, PoorKernelWarning
from ..training.loop import AbstractLoss, History, train
from ..training.run import Run
from ..training.settings import Training
from . import clouds as clouds  # whose family registers itself
from .families import Family, family_of
from .fields import AbstractField, frame_size
from .flow_model import FlowModel, weighted
from .guesses import find_gaussian, find_mixture
from .guesses.base import AbstractGuess
from .judges import HeldOutLikelihood, HeldOutLoss
from .network import AbstractNetwork, Task
from .objectives import AbstractObjective, squared_error
from .prior import AbstractPrior
from .specification import Choices, Kind, check_kernel
from .times import Scales, Times, find_scales


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
    manifold, family = kernel.manifold, family_of(kernel.manifold)
    network, field_class = choices.network_for(family, manifold), kind.field(family)
    network = field_class.network_of(network)
    network.check(manifold)
    training = choices.training_with(manifold.noise_reuse())
    key_split, key_start, key_train, key_check = jr.split(random_key(key), 4)
    prepared = prepare(manifold, given, key=key_split, centred=choices.centred)
    prepared, guess = find_gaussian(network.has_gaussian(), manifold, prepared)
    scales = _scales(kernel, prepared, choices, family, guess)
    stops = choices.stops_within(scales, network.judges_by_likelihood(manifold))
    prior = _prior(kernel, prepared, choices, family, guess, scales, key_check)
    times = Times(scales.t_min, scales.t1, choices.time_power)
    objective = kind.objective(times, kernel, prior)
    field = _field(field_class, network, prepared, kernel, guess, scales, key_start)
    record = _record(kernel, network, training, field_class, times, stops, prepared, prior, key)
    record |= {"centred": choices.centred, "centres": choices.centres}
    model = kind.model(
        manifold=manifold,
        field=field,
        prior=prior,
        condition=prepared.encoder,
        centre=prepared.centre,
        stops=stops,
        weights=(1.0,) + (0.0,) * len(stops),
        t1=scales.t1,
        history=History.empty(0),
        record=json.dumps(record),
    )
    judge = HeldOutLoss(objective, prepared, key_check)
    if network.judges_by_likelihood(manifold):
        judge = HeldOutLikelihood(model, prepared, key_check)
    field, history = train(
        model.field,
        Batches(objective, prepared.points, prepared.features),
        training,
        key=key_train,
        judge=judge,
        run=dataclasses.replace(run, title=f"{run.title} on {manifold}", identity=record),
        part=lambda field: field.network,
        is_guess=field.adds_guess() and field.guess is not None,
    )
    model = dataclasses.replace(model, field=field, history=history)
    model = weighted(model, prepared, key=key_check)
    if run.resume is not None:
        Path(run.resume).unlink(missing_ok=True)
    return model


def _scales(
    kernel: AbstractHeatKernel,
    prepared: Prepared,
    choices: Choices,
    family: Family,
    guess: AbstractGuess | None,
) -> Scales:
    """The scales of the data; warns if they go beyond what the kernel is made for."""
    widths = None if guess is None else guess.widths(prepared.features)
    asked = {"t_min": choices.t_min, "t1": choices.t1}
    scales = find_scales(kernel, prepared.points, **asked, finest=family.finest, widths=widths)
    if scales.t1 > kernel.latest():
        warn(
            f"t1 = {scales.t1:g} is later than {kernel.latest():.2g}, up to which "
            f"{kernel} is accurate; lower t1, or solve the kernel up to there: "
            "calor.solve(manifold, key=key), on a Submanifold with calor.recipes.pairs(t1=...).",
            PoorKernelWarning,
        )
    return scales


def _prior(
    kernel: AbstractHeatKernel,
    prepared: Prepared,
    choices: Choices,
    family: Family,
    guess: AbstractGuess | None,
    scales: Scales,
    key: Key,
) -> AbstractPrior:
    """Where generation starts: what a guess knows of it, or what suits the family."""
    found = None if guess is None else guess.prior(kernel, scales.t1, key)
    return found or family.prior(kernel, prepared.points, scales, choices.centres, key)


def _field(
    field_class: type[AbstractField],
    network: AbstractNetwork,
    prepared: Prepared,
    kernel: AbstractHeatKernel,
    guess: AbstractGuess | None,
    scales: Scales,
    key: Key,
) -> AbstractField:
    """A field with a random network, told of a guess if there is one."""
    manifold, points = kernel.manifold, prepared.points
    if guess is None:
        guess = find_mixture(network.mixture_size(), manifold, points, scales.t_min, key)
    task = Task(
        manifold=manifold,
        points=points,
        scales=scales,
        features=prepared.features.shape[1],
        told=0 if guess is None else frame_size(manifold),
        outputs=field_class.outputs(manifold),
        smallest=0.0 if guess is None else guess.smallest(jax.vmap(manifold.embedding)(points)),
    )
    return field_class(manifold, network.build(task, key=key), guess)  # pyright: ignore


class Batches(AbstractLoss):
    """The objective on random data points."""

    objective: AbstractObjective
    points: Float[Array, "n ..."]
    features: Float[Array, "n k"]

    def draw(self, count, step, key):
        """Examples from so many data points, with repetition."""
        key_batch, key_noise = jr.split(key)
        chosen = jr.randint(key_batch, (count,), 0, len(self.points))
        return self.objective.draw(self.points[chosen], self.features[chosen], key_noise)

    def __call__(self, field, examples, state):
        """Their mean squared error."""
        return squared_error(field, field.manifold, examples), {}


def _record(
    kernel: AbstractHeatKernel,
    network: AbstractNetwork,
    training: Training,
    field: type[AbstractField],
    times: Times,
    stops: tuple[float, ...],
    prepared: Prepared,
    prior: AbstractPrior,
    key: Key,
) -> dict:
    """What a model was made of, as JSON; an unfinished training goes on only from the same."""
    digest = hashlib.sha256()
    for array in jax.tree.leaves((prepared, kernel, prior)):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(json.dumps(kernel.manifold.fingerprint()).encode())
    return {
        "manifold": str(kernel.manifold),
        "kernel": str(kernel),
        "field": field.__name__,
        "network": vars(network),
        "training": training.record(),
        "times": [times.t_min, times.t1, times.power],
        "stops": list(stops),
        "data": digest.hexdigest()[:16],
        "key": key_numbers(key).tolist(),
        "calor": __version__,
    }
