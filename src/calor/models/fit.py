"""Fitting a model: what diffusion models and flows do in the same way, from data to weights."""

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.checks import positive_integer, random_key
from ..core.types import Key, Points
from ..data.prepare import Prepared, prepare
from ..heat.kernel import AbstractHeatKernel, PoorKernelWarning
from ..manifolds import AbstractManifold, PointCloud, Submanifold
from ..manifolds.means import frechet_mean
from ..training.loop import AbstractLoss, History, train
from ..training.run import Run
from ..training.settings import Training
from .clouds import CloudNetwork, cloud_prior
from .fields import AbstractScore, frame_size
from .guesses import find_gaussian, find_guess
from .guesses.gaussian import Gaussian, gaussian_prior
from .guesses.mixture import Mixture
from .judges import HeldOutLikelihood, HeldOutLoss
from .likelihood import EXACT_DIVERGENCE
from .model import Model, with_weights
from .network import Network
from .objectives import AbstractObjective, squared_error
from .prior import AbstractPrior, KernelPrior, Uniform, distance_from_uniform
from .times import Scales, TimeLaw, find_scales

# The dimension up to which a network sees waves by default.
_MOST_WAVES = 10
# Stops that are tried, in units of t_min.
_STOPS = (1.0, 5.0, 50.0, 1000.0)


class PriorWarning(UserWarning):
    """The law of the noised data at the last time is not close to the prior."""


class Choices(NamedTuple):
    """What a user may choose about a fit, beside the data; `calor.fit` explains it."""

    network: Network | CloudNetwork | None
    training: Training | None
    t_min: float | None
    t1: float | None
    time_power: float
    centres: int
    stops: Sequence[float] | None
    centred: bool
    progress: bool | None
    resume: str | Path | None


def fit_model(
    model_class: type[Model],
    field_class: type[AbstractScore],
    make_objective: Callable[[AbstractPrior, TimeLaw], AbstractObjective],
    kernel: AbstractHeatKernel,
    data: Points,
    condition: Any,
    groups: Any,
    validation: Any,
    choices: Choices,
    key: Key,
    owner: str,
) -> Model:
    """Prepare the data, train a field, and find the weights of the stops.

    Args:
        model_class: `Diffusion` or `Flow`.
        field_class: the class of the field that is trained.
        make_objective: what the field has to learn, from the prior and the law of times.
        kernel: gives noise and prior.
        data: points.
        condition: of the points.
        groups: that points belong to.
        validation: a fraction, or points, or a pair of points and conditions.
        choices: everything else.
        key: a random key.
        owner: the public function that is called, for messages.
    """
    if not isinstance(kernel, AbstractHeatKernel):
        raise TypeError(
            f"{owner}: kernel must come from calor.heat_kernel or calor.solve, got {kernel!r:.80}."
        )
    manifold = kernel.manifold
    network, training = _network(choices.network, manifold, owner), choices.training or Training()
    if training.reuse is None:
        training = dataclasses.replace(training, reuse=manifold.noise_reuse())
    key_split, key_start, key_train, key_check = jr.split(random_key(key, owner), 4)
    given = condition, validation, key_split, owner, choices.centred, groups
    prepared = prepare(manifold, data, *given)
    given = choices.t_min, choices.t1
    # In many dimensions a likelihood is an estimate that takes long.
    by_likelihood = network.judge == "likelihood" and manifold.dim <= EXACT_DIVERGENCE
    prepared, gaussian = find_gaussian(network.gaussian, manifold, prepared, owner)
    widths = gaussian.widths(prepared.features) if gaussian is not None else None
    scales = find_scales(manifold, prepared.points, *given, owner, kernel, widths)
    if scales.t1 > kernel.latest():
        warnings.warn(
            f"{owner}: t1 = {scales.t1:g} is later than {kernel.latest():.2g}, up to which "
            f"{kernel} is accurate; lower t1, or solve the kernel up to there: "
            "calor.solve(manifold, key=key), on a Submanifold with calor.recipes.pairs(t1=...).",
            PoorKernelWarning,
            stacklevel=3,
        )
    stops = _stops(choices.stops, scales, by_likelihood, owner)
    if gaussian is None:
        given = scales.t1, choices.centres, key_check, owner, scales.wanted
        prior = make_prior(kernel, prepared.points, *given)
    else:
        prior = gaussian_prior(kernel, gaussian, scales.t1, key_check)
    law = TimeLaw(scales.t_min, scales.t1, float(choices.time_power))
    objective = make_objective(prior, law)
    field = _start(network, field_class, manifold, prepared, scales, gaussian, key_start)
    record = _record(kernel, network, training, field_class, law, stops, prepared, prior, key)
    record |= {"centred": choices.centred, "centres": choices.centres}
    model = model_class(
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
    if by_likelihood:
        judge = HeldOutLikelihood(model, prepared, key_check)
    field, history = train(
        model.field,
        Batches(objective, prepared.points, prepared.features),
        training,
        key=key_train,
        judge=judge,
        run=Run(f"{owner} on {manifold}", record, choices.progress, choices.resume),
        part=lambda field: field.network,
        is_guess=field.adds_guess() and field.guess is not None,
    )
    model = with_weights(model, field, history, prepared, key_check)
    if choices.resume is not None:
        Path(choices.resume).unlink(missing_ok=True)
    return model


def is_cloud(kernel: Any) -> bool:
    """Whether a kernel is one of point clouds, which have networks of their own."""
    return isinstance(getattr(kernel, "manifold", None), PointCloud)


def _network(given, manifold, owner):
    """The network that was asked for, if it is one for this manifold."""
    needed = CloudNetwork if isinstance(manifold, PointCloud) else Network
    if given is not None and not isinstance(given, needed):
        raise TypeError(
            f"{owner}: network on {manifold} must be a calor.{needed.__name__}, got {given!r:.80}."
        )
    return given or needed()


def _start(
    network: Any,
    field_class: Any,
    manifold: Any,
    prepared: Prepared,
    scales: Scales,
    gaussian: Gaussian | None,
    key: Key,
) -> AbstractScore:
    """A field with a random network."""
    if isinstance(network, CloudNetwork):
        return field_class(manifold, network.start(manifold, prepared, scales, key))
    guess = gaussian or find_guess(network, manifold, prepared, scales, key)
    built = build_network(network, manifold, prepared, scales, field_class, guess, key)
    return field_class(manifold, built, guess)


def build_network(
    network: Network,
    manifold: AbstractManifold,
    prepared: Prepared,
    scales: Scales,
    field: type[AbstractScore],
    guess: Mixture | Gaussian | None,
    key: Key,
) -> Any:
    """The network of a field, for the embedded points of a manifold unless it makes its own."""
    times = scales.t_min, scales.t1
    own = field.make_network(key, manifold, prepared.features.shape[1], times)
    if own is not None:
        return own
    places = jax.vmap(manifold.embedding)(prepared.points)
    lengths = scales.finest, scales.coarsest
    conditions = prepared.features.shape[1] + (frame_size(manifold) if guess is not None else 0)
    # Compact manifolds are of size one, and late noise fills them however narrow the data are.
    smallest = 0.1 if manifold.is_compact() else 1e-12
    if isinstance(guess, Gaussian):  # it tells of directions in which the data are narrow
        smallest = float(jnp.sqrt(jnp.mean(jnp.var(places, axis=0))))
    if network.frequencies is None and manifold.dim > _MOST_WAVES:
        # Waves in random directions do not fill many dimensions.
        network = dataclasses.replace(network, frequencies=0)
    return network.build(key, places, lengths, times, conditions, field.outputs(manifold), smallest)


def _stops(given, scales, by_likelihood, owner):
    """The stops that are tried, in increasing order; one if no likelihood chooses among them."""
    if given is None and not by_likelihood:
        return (scales.t_min,)
    if given is None:
        multiples = [factor * scales.t_min for factor in _STOPS]
        return tuple(t for t in multiples if t < scales.t1 / 10) or (scales.t_min,)
    stops = tuple(sorted(float(stop) for stop in np.ravel(given)))
    if not stops or not scales.t_min <= stops[0] or not stops[-1] < scales.t1:
        raise ValueError(
            f"{owner}: stops must be times from t_min = {scales.t_min:g} to below "
            f"t1 = {scales.t1:g}, got {given!r:.80}."
        )
    return stops


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


def make_prior(
    kernel: AbstractHeatKernel,
    points: Float[Array, "n ..."],
    t1: float,
    centres: int,
    key: Key,
    owner: str,
    wanted: float = 0.0,
) -> AbstractPrior:
    """The law that generation starts from; warns if the noised data are far from it."""
    manifold = kernel.manifold
    if isinstance(manifold, PointCloud):
        return cloud_prior(manifold, points, t1)
    if manifold.is_compact():
        distance = distance_from_uniform(kernel, t1, points, key)
        if not distance < 0.05:
            warnings.warn(
                f"{owner}: at the last time t1 = {t1:g} the noised data are still {distance:.2g} "
                "away from the uniform law (mean of |vol p - 1|); raise t1.",
                PriorWarning,
                stacklevel=4,
            )
        return Uniform(manifold, kernel.found_volume())
    centres = positive_integer(centres, "centres", owner)
    if centres == 1 and t1 < wanted:
        warnings.warn(
            f"{owner}: data spread this wide need a last time t1 = {wanted:.2g} to look like one "
            f"kernel around their mean, but {kernel} is accurate up to t1 = {t1:.2g} only, which "
            "is used; start from more centres, as in centres=64.",
            PriorWarning,
            stacklevel=4,
        )
    if centres == 1:
        return KernelPrior(kernel, t1, frechet_mean(manifold, points)[None])
    chosen = jr.choice(key, len(points), (min(centres, len(points)),), replace=False)
    return KernelPrior(kernel, t1, points[chosen])


def _record(
    kernel: AbstractHeatKernel,
    network: Network | CloudNetwork,
    training: Training,
    field: type[AbstractScore],
    law: TimeLaw,
    stops: Sequence[float],
    prepared: Prepared,
    prior: AbstractPrior,
    key: Key,
) -> dict:
    """What a model was made of, as JSON; an unfinished training goes on only from the same."""
    from .. import __version__

    digest = hashlib.sha256()
    for array in jax.tree.leaves((prepared, kernel, prior)):
        digest.update(np.ascontiguousarray(array).tobytes())
    if isinstance(kernel.manifold, Submanifold):
        digest.update(json.dumps(kernel.manifold.probe()).encode())
    data = jr.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    return {
        "manifold": str(kernel.manifold),
        "kernel": str(kernel),
        "field": field.__name__,
        "network": vars(network),
        "training": training.record(),
        "times": [law.t_min, law.t1, law.power],
        "stops": list(stops),
        "data": digest.hexdigest()[:16],
        "key": np.asarray(data).tolist(),
        "calor": __version__,
    }
