r"""Models along a flow: what diffusion models and flow matching have in common.

A model moves draws of a prior along a flow on the manifold.  The flow sharpens them as it goes, and
it may be left early, at a *stop*: the noise that is left there is that of Brownian motion after the
time t_k.  Which stop fits data best depends on the data, so a model is a mixture over a few stops
and the prior, its weights found on validation data:

    p(x) = sum_k w_k p_{t_k}(x) + w_0 prior(x).
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self, TypeVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.doors import warn
from ..core.types import Key, Point, Points, Scalar, Tangent
from ..data.conditions import Condition
from ..data.prepare import Prepared
from ..manifolds import AbstractManifold
from ..training.loop import History
from . import likelihood
from .fields import AbstractField
from .model import AbstractModel, finite, in_batches, mixture_weights
from .prior import AbstractPrior

# Stops of a smaller weight are left out.
_SMALLEST_WEIGHT = 2e-3
# How many held out points the weights are found on.
_POINTS = 1024


class AbstractFlowModel(AbstractModel):
    """A model along a flow; a new one supplies `velocity`, `span` and `generator`."""

    manifold: AbstractManifold
    field: AbstractField
    prior: AbstractPrior
    condition: Condition | None
    centre: np.ndarray | None
    stops: tuple[float, ...] = eqx.field(static=True)
    weights: tuple[float, ...] = eqx.field(static=True)
    """Of the stops, and of the prior."""
    t1: float = eqx.field(static=True)
    history: History
    record: str = eqx.field(static=True)

    @abstractmethod
    def velocity(self, tau: Scalar, x: Point, features: Float[Array, " c"]) -> Tangent:
        """The velocity of the flow in a time tau of its own."""

    @abstractmethod
    def span(self, stop: Scalar) -> tuple[Scalar, Scalar]:
        """The time tau at a stop, and the one at the prior."""

    @abstractmethod
    def generator(self, method: str) -> Callable[..., Point]:
        """One draw as a function of times, a key, a stop and features.

        It is a method of a `bare` model, so that it is compiled once.
        """

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
        """The same of points that were checked; by so many steps, if they are given."""
        if probes is None:
            probes = 0 if self.manifold.dim <= likelihood.EXACT_DIVERGENCE else 8
        run, keys = self.bare()._log_density, jr.split(key, len(x))
        columns = []
        for stop in self.stops:
            shared = probes, steps, jnp.asarray(tolerance, x.dtype), jnp.asarray(stop, x.dtype)
            columns.append(in_batches(run, x, features, keys, shared=shared))
        columns.append(in_batches(self.prior.log_prob, x, features))
        return jnp.stack(columns, axis=1)

    def _log_density(self, probes, steps, tolerance, stop, x, features, key):
        """The log-density of one point at one stop; NaN where the flow was lost."""
        way = likelihood.follow(
            # A value, so that it is traced once.
            eqx.Partial(self.velocity, features=features),
            self.manifold,
            x,
            *self.span(stop),
            tolerance=tolerance,
            probes=likelihood.probes(key, self.manifold, x, probes) if probes else None,
            steps=steps,
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

    def bare(self) -> Self:
        """The model without what only describes it: equal ones share their compiled functions."""
        nothing: dict[str, Any] = {"stops": (), "weights": (), "record": "", "centre": None}
        return dataclasses.replace(self, **nothing, condition=None, history=History.empty(0))

    def __str__(self) -> str:
        stops = ", ".join(f"{stop:.2g}" for stop in self.stops)
        return f"{type(self).__name__}({self.manifold}, stops at t = {stops}, t1 = {self.t1:g})"


FlowModel = TypeVar("FlowModel", bound=AbstractFlowModel)


def weighted(model: FlowModel, prepared: Prepared, *, key: Key) -> FlowModel:
    """A trained model with the weights of its stops, by the likelihood of held out points."""
    if len(model.stops) == 1:
        return dataclasses.replace(model, weights=(1.0, 0.0))
    chosen = jr.permutation(key, len(prepared.held_out))[:_POINTS]
    x, features = prepared.held_out[chosen], prepared.held_features[chosen]
    parts = finite(model.parts_of(x, features, key=key))
    weights = mixture_weights(parts)
    keep = weights[:-1] >= _SMALLEST_WEIGHT
    if not keep.any():
        keep[np.argmax(weights[:-1])] = True
    weights = mixture_weights(parts[:, np.append(keep, True)])
    stops = tuple(np.asarray(model.stops)[keep].tolist())
    return dataclasses.replace(model, stops=stops, weights=tuple(weights.tolist()))
