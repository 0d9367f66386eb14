"""Fitting a model: what diffusion models and flows do in the same way, from data to weights."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from .. import __version__
from ..core.checks import key_numbers, random_key
from ..core.doors import warn
from ..core.types import Key, Scalar
from ..data.prepare import Given, Prepared, prepare
from ..heat.kernel import AbstractHeatKernel, PoorKernelWarning
from ..training.loop import AbstractLoss, History, train
from ..training.run import Run
from . import clouds as clouds  # whose family registers itself
from .families import family_of
from .fields import AbstractField, frame_size
from .flow_model import FlowModel, weighted
from .guesses import find_gaussian, find_mixture
from .judges import HeldOutLikelihood, HeldOutLoss
from .network import Task
from .objectives import AbstractObjective, squared_error
from .prior import AbstractPrior
from .specification import Choices, Kind, check_kernel
from .times import Times, find_scales


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
    points, by_likelihood = prepared.points, network.judges_by_likelihood(manifold)
    widths = None if guess is None else guess.widths(prepared.features)
    asked = {"t_min": choices.t_min, "t1": choices.t1}
    scales = find_scales(kernel, points, **asked, finest=family.finest, widths=widths)
    _warn_if_late(kernel, scales.t1)
    stops = choices.stops_within(scales, by_likelihood)
    prior = None if guess is None else guess.prior(kernel, scales.t1, key_check)
    prior = prior or family.prior(kernel, points, scales, choices.centres, key_check)
    if guess is None:
        guess = find_mixture(network.mixture_size(), manifold, points, scales.t_min, key_start)
    task = Task(
        manifold=manifold,
        points=points,
        scales=scales,
        features=prepared.features.shape[1],
        told=0 if guess is None else frame_size(manifold),
        outputs=field_class.outputs(manifold),
        smallest=0.0 if guess is None else guess.smallest(jax.vmap(manifold.embedding)(points)),
    )
    built = network.build(task, key=key_start)
    times = Times(scales.t_min, scales.t1, choices.time_power)
    objective = kind.objective(times, kernel, prior)
    record = {
        "manifold": str(manifold),
        "kernel": str(kernel),
        "field": field_class.__name__,
        "network": vars(network),
        "training": training.record(),
        "times": [times.t_min, times.t1, times.power],
        "stops": list(stops),
        "data": _digest(prepared, kernel, prior),
        "key": key_numbers(key).tolist(),
        "calor": __version__,
        "centred": choices.centred,
        "centres": choices.centres,
    }
    model = kind.model(
        manifold=manifold,
        field=field_class(manifold, built, guess),  # pyright: ignore[reportCallIssue]
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
    if by_likelihood:
        judge = HeldOutLikelihood(model, prepared, key_check)
    field, history = train(
        model.field,
        Batches(objective, points, prepared.features),
        training,
        key=key_train,
        judge=judge,
        run=dataclasses.replace(run, title=f"{run.title} on {manifold}", identity=record),
        part=lambda field: field.network,
        is_guess=model.field.adds_guess() and guess is not None,
    )
    model = dataclasses.replace(model, field=field, history=history)
    model = weighted(model, prepared, key=key_check)
    if run.resume is not None:
        Path(run.resume).unlink(missing_ok=True)
    return model


def _warn_if_late(kernel: AbstractHeatKernel, t1: float) -> None:
    """Warn of times beyond what the kernel is made for."""
    if t1 > kernel.latest():
        warn(
            f"t1 = {t1:g} is later than {kernel.latest():.2g}, up to which "
            f"{kernel} is accurate; lower t1, or solve the kernel up to there: "
            "calor.solve(manifold, key=key), on a Submanifold with calor.recipes.pairs(t1=...).",
            PoorKernelWarning,
        )


def _digest(prepared: Prepared, kernel: AbstractHeatKernel, prior: AbstractPrior) -> str:
    """What tells data from others; an unfinished training goes on only from the same."""
    digest = hashlib.sha256()
    for array in jax.tree.leaves((prepared, kernel, prior)):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(json.dumps(kernel.manifold.fingerprint()).encode())
    return digest.hexdigest()[:16]


class Batches(AbstractLoss):
    """The objective on random data points."""

    objective: AbstractObjective
    points: Float[Array, "n ..."]
    features: Float[Array, "n k"]

    def draw(self, count: int, step: Int[Array, ""], key: Key) -> Any:
        """Examples from so many data points, with repetition."""
        key_batch, key_noise = jr.split(key)
        chosen = jr.randint(key_batch, (count,), 0, len(self.points))
        return self.objective.draw(self.points[chosen], self.features[chosen], key_noise)

    def __call__(
        self, field: AbstractField, examples: Any, state: Any
    ) -> tuple[Scalar, dict[str, Any]]:
        """Their mean squared error."""
        return squared_error(field, field.manifold, examples), {}
