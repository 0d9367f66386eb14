r"""Models along a flow: what diffusion models and flow matching have in common.

A model moves draws of a prior along a flow on the manifold.  The flow sharpens them as it goes, and
it may be left early, at a *stop*: the noise that is left there is that of Brownian motion after the
time t_k.  Which stop fits data best depends on the data, so a model is a mixture over a few stops
and the prior, its weights found on validation data:

    p(x) = sum_k w_k p_{t_k}(x) + w_0 prior(x).
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.doors import warn
from ..core.types import Key, Point, Points, Scalar, Tangent
from ..data.conditions import Condition
from ..data.folds import Folds, Prepared, taken
from ..manifolds import AbstractManifold
from ..training.loop import History
from . import likelihood
from .few import POWER, levels_between, multistep
from .fields import AbstractField
from .model import AbstractModel, finite, in_batches, mixture_value, mixture_weights
from .prior import AbstractPrior

# Stops of a smaller weight are left out.
_SMALLEST_WEIGHT = 2e-3
# How many held out points the weights are found on.
JUDGED = 1024


class AbstractFlowModel(AbstractModel):
    """A model along a flow.

    A new one supplies `velocity`, `span` and `generator`, and `level`, `time` and `reach` for few
    steps.
    """

    manifold: AbstractManifold
    field: AbstractField
    prior: AbstractPrior
    condition: Condition | None
    centre: np.ndarray | None
    stops: tuple[float, ...] = eqx.field(static=True)
    weights: tuple[float, ...] = eqx.field(static=True)
    """Of the stops, and of the prior."""
    t1: float
    history: History
    record: str = eqx.field(static=True)

    @abstractmethod
    def velocity(self, tau: Scalar, x: Point, features: Float[Array, " c"]) -> Tangent:
        """The velocity of the flow in a time tau of its own."""

    @abstractmethod
    def span(self, stop: Scalar) -> tuple[Scalar, Scalar]:
        """The time tau at a stop, and the one at the prior."""

    @abstractmethod
    def level(self, t: Scalar) -> Scalar:
        """How far noise has still to go at a time, see `few`."""

    @abstractmethod
    def time(self, level: Scalar) -> Scalar:
        """The inverse of `level`."""

    @abstractmethod
    def reach(self, level: Scalar, x: Point, features: Float[Array, " c"]) -> Tangent:
        """The vector to the denoised point."""

    @abstractmethod
    def generator(self, method: str) -> Callable[..., Point]:
        """One draw as a function of times, a key, a stop and features.

        It is a method of a `bare` model, so that it is compiled once.
        """

    def can_teach(self) -> bool:
        """It can."""
        return True

    def log_parts(
        self, x: Points, condition: Any, *, key: Key, tolerance: float, probes: int | None
    ) -> Float[Array, "n k"]:
        """log-densities (n, k + 1) at the stops and of the prior; NaN where the flow was lost."""
        x = self.seen(x)
        features = self.features(condition, len(x))
        parts = self.parts_of(x, features, key=key, tolerance=tolerance, probes=probes)
        lost = int(jnp.sum(jnp.any(jnp.isnan(parts), axis=1)))
        if lost:
            warn(
                f"the flow of {lost} points did not reach its end within "
                f"{likelihood.LARGEST_STEPS} steps; their log-densities are NaN. Raise tolerance."
            )
        return parts

    def parts_of(
        self,
        x: Float[Array, "n ..."],
        features: Float[Array, "n c"],
        *,
        key: Key,
        tolerance: float = 1e-4,
        probes: int | None = None,
        steps: int | None = None,
    ) -> Float[Array, "n k"]:
        """The same of points that were checked; by so many steps, if they are given.

        Stop, last time and pace are arrays: training and likelihoods share what is compiled.
        """
        if probes is None:
            probes = 0 if self.manifold.dim <= likelihood.EXACT_DIVERGENCE else 8
        pace = likelihood.by_tolerance(tolerance) if steps is None else likelihood.by_steps(steps)
        run, keys = self.bare()._log_density, jr.split(key, len(x))
        columns = []
        for stop in self.stops:
            shared = probes, pace, np.asarray(stop, x.dtype)
            columns.append(in_batches(run, x, features, keys, shared=shared))
        columns.append(in_batches(self.prior.log_prob, x, features))
        return jnp.asarray(np.stack(columns, axis=1))

    def _log_density(self, probes, pace, stop, x, features, key):
        """The log-density of one point at one stop; NaN where the flow was lost."""
        way = likelihood.follow(
            # A value, so that it is traced once.
            eqx.Partial(self.velocity, features=features),
            self.manifold,
            x,
            *self.span(stop),
            pace=pace,
            probes=likelihood.probes(key, self.manifold, x, probes) if probes else None,
        )
        value = self.prior.log_prob(way.end, features) + way.divergence
        return jnp.where(way.reached, value, jnp.nan)

    def draw_parts(
        self, parts: Int[Array, " n"], condition: Any, *, key: Key, steps: int, method: str
    ) -> Float[Array, "n ..."]:
        """Each point runs down the times to its own stop."""
        features = self.features(condition, len(parts))
        stops = jnp.asarray([*self.stops, self.t1])[parts]
        times = jnp.geomspace(self.t1, self.stops[0], steps + 1)
        keys = jr.split(key, len(parts))
        drawn = in_batches(self.generator(method), keys, stops, features, shared=(times,))
        return self.outside(drawn)

    def found(self) -> dict[str, Any]:
        """Steps, seconds, and the validation, which may be that of the loss."""
        if not len(self.history.steps):
            return {}
        usual = "likelihood" if likelihood.is_quick(self.manifold) else "loss"
        name, value = "validation_loss", self.history.validation()
        if self.about.get("judged_by", usual) == "likelihood":
            name, value = "validation_log_likelihood", -value
        return {
            "steps": int(self.history.steps[-1]),
            "seconds": round(float(self.history.seconds[-1]), 1),
            name: value,
        }

    def run_few(
        self, times: Float[Array, " k"], key: Key, stop: Scalar, features: Float[Array, " c"]
    ) -> Point:
        """A draw of the prior that is moved to the stop in as many steps as the times have."""
        start = self.prior.sample(key, features)
        levels = self.levels(stop.astype(start.dtype), len(times) - 1)
        reach = eqx.Partial(self.reach, features=features)
        return multistep(reach, self.manifold, levels, start)

    def levels(self, stop: Scalar, steps: int, power: float = POWER) -> Float[Array, " k"]:
        """The levels of so few steps from the prior to a stop."""
        first = self.level(jnp.asarray(self.t1, stop.dtype))
        return levels_between(first, self.level(stop), steps, power)

    def bare(self) -> Self:
        """The model without what only describes it: equal ones share their compiled functions."""
        nothing: dict[str, Any] = {"stops": (), "weights": (), "record": "", "centre": None}
        nothing |= {"condition": None, "history": History.empty(0), "t1": jnp.asarray(self.t1)}
        return dataclasses.replace(self, **nothing)

    def __str__(self) -> str:
        stops = ", ".join(f"{stop:.2g}" for stop in self.stops)
        return f"{type(self).__name__}({self.manifold}, stops at t = {stops}, t1 = {self.t1:g})"


FlowModel = TypeVar("FlowModel", bound=AbstractFlowModel)


class HeldOut(NamedTuple):
    """Some of the points that were put aside for a model."""

    points: Float[Array, "m ..."]
    features: Float[Array, "m c"]
    weights: Float[np.ndarray, " m"]
    starts: Float[np.ndarray, " m"] | None = None


def held_out(
    parts: Sequence[Prepared], folds: Folds, most: int
) -> tuple[tuple[HeldOut, ...], Folds]:
    """What was put aside for each model, but not more than so many points altogether.

    Args:
        parts: the data of each model.
        folds: what was put aside.
        most: points.
    """
    few, places = folds.few(most, len(parts))
    found = []
    for part, rows in zip(parts, places, strict=True):
        weights = np.ones(len(rows)) if part.held_weights is None else part.held_weights[rows]
        starts = None if part.held_starts is None else part.held_starts[rows]
        points, features = taken(part.held_out, rows), taken(part.held_features, rows)
        found.append(HeldOut(points, features, weights, starts))
    return tuple(found), few


def weighted(
    models: Sequence[FlowModel], parts: Sequence[Prepared], folds: Folds, *, key: Key, judged: bool
) -> tuple[tuple[FlowModel, ...], Float[np.ndarray, " h"]]:
    """Trained models with the weights of their stops, by the likelihood of held out points.

    The weights are the same for all of them.  Also returns the log-densities of what was put aside,
    by weights that were found on other parts, if there is a choice of stops or they are to be
    judged.
    """
    if len(models[0].stops) == 1 and not judged:
        return tuple(dataclasses.replace(m, weights=(1.0, 0.0)) for m in models), np.zeros(0)
    held, few = held_out(parts, folds, JUDGED)
    values = [
        finite(model.parts_of(rows.points, rows.features, key=key))
        for model, rows in zip(models, held, strict=True)
    ]
    columns, count, blocks = few.judged(values), few.weights(JUDGED), few.blocks(JUDGED)
    stops, weights = models[0].stops, np.asarray([1.0, 0.0])
    if len(stops) > 1:
        weights = mixture_weights(columns, counts=count)
        keep = weights[:-1] >= _SMALLEST_WEIGHT
        if not keep.any():
            keep[np.argmax(weights[:-1])] = True
        columns = columns[:, np.append(keep, True)]
        weights = mixture_weights(columns, counts=count)
        stops = tuple(np.asarray(stops)[keep].tolist())
    chosen: Any = {"stops": stops, "weights": tuple(weights.tolist())}
    found = tuple(dataclasses.replace(model, **chosen) for model in models)
    if len(models[0].stops) == 1:
        return found, columns[:, 0]
    return found, mixture_value(columns, count, blocks=blocks)
