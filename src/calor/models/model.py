r"""Generative models: what diffusion models and flows have in common.

A model moves draws of a prior along a flow on the manifold.  The flow sharpens them as it goes, and
it may be left early, at a *stop*: the noise that is left there is that of Brownian motion after the
time t_k.  Which stop fits data best depends on the data, so a model is a mixture over a few stops
and the prior, its weights found on validation data:

    p(x) = sum_k w_k p_{t_k}(x) + w_0 prior(x).
"""

import json
import warnings
from abc import abstractmethod
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ..core.checks import positive_integer, random_key
from ..core.types import Key, Point, Points, Scalar, Tangent
from ..data.conditions import Condition
from ..data.points import checked_points, uncentred
from ..data.prepare import Prepared
from ..manifolds import AbstractManifold
from ..store.stored import save
from ..training.loop import History
from . import likelihood
from .fields import AbstractScore
from .prior import AbstractPrior

# Stops of a smaller weight are left out.
_SMALLEST_WEIGHT = 2e-3
# How many held out points the weights are found on.
_POINTS = 1024
_BATCH = 512


class AbstractModel(eqx.Module):
    """A generative model on a manifold: `sample` draws from it, `log_prob` is its density."""

    manifold: eqx.AbstractVar[AbstractManifold]
    field: eqx.AbstractVar[AbstractScore]
    prior: eqx.AbstractVar[AbstractPrior]
    condition: eqx.AbstractVar[Condition | None]
    centre: eqx.AbstractVar[np.ndarray | None]
    """The point that an isometry takes to the origin; the rest of the model lives around there."""
    stops: eqx.AbstractVar[tuple[float, ...]]
    weights: eqx.AbstractVar[tuple[float, ...]]
    """Of the stops, and of the prior."""
    t1: eqx.AbstractVar[float]
    history: eqx.AbstractVar[History]
    record: eqx.AbstractVar[str]
    """How it was made: settings, seed, version, as JSON."""

    @abstractmethod
    def sample(self, n: int, *, condition: Any = None, key: Key, steps: int = 200) -> Array:
        """Draw n points."""

    @abstractmethod
    def velocity(self, tau: Scalar, x: Point, features: Float[Array, " c"]) -> Tangent:
        """The velocity of the flow in a time tau of its own."""

    @abstractmethod
    def span(self, stop: Scalar) -> tuple[Scalar, Scalar]:
        """The time tau at a stop, and the one at the prior."""

    def log_prob(
        self,
        x: Points,
        *,
        condition: Any = None,
        key: Key | None = None,
        tolerance: float = 1e-4,
        probes: int | None = None,
    ) -> Float[Array, " n"]:
        """The log-density at points, in the Riemannian volume.

        Args:
            x: points along the first axis.
            condition: of each point, or one for all.
            key: for the random vectors that estimate the divergence in high dimension.
            tolerance: of the solver of the probability flow.
            probes: how many random vectors; by default the divergence is exact up to dimension
                10, and estimated with 8 beyond.
        """
        x = checked_points(self.manifold, x, "log_prob", "x", centre=self.centre)
        features = self._features(condition, len(x), "log_prob")
        key = jr.key(0) if key is None else random_key(key, "log_prob")
        parts = self._parts(x, features, key, tolerance, probes, None)
        lost = int(jnp.sum(jnp.any(jnp.isnan(parts), axis=1)))
        if lost:
            warnings.warn(
                f"log_prob: the flow of {lost} points did not reach its end within "
                f"{likelihood.LARGEST_STEPS} steps; their log-densities are NaN. Raise tolerance.",
                stacklevel=2,
            )
        with np.errstate(divide="ignore"):
            weights = jnp.asarray(np.log(self.weights), parts.dtype)
        return logsumexp(parts + weights, axis=1)

    def _parts(self, x, features, key, tolerance, probes, steps):
        """log-densities (n, k + 1) at the stops and of the prior; NaN where the flow was lost."""
        if probes is None:
            probes = 0 if self.manifold.dim <= likelihood.EXACT_DIVERGENCE else 8
        run, keys = _Density(self._bare(), probes, steps), jr.split(key, len(x))
        columns = []
        for stop in self.stops:
            numbers = jnp.asarray(stop, x.dtype), jnp.asarray(tolerance, x.dtype)
            values, reached = in_batches(run, x, features, keys, shared=numbers)
            columns.append(jnp.where(reached, values, jnp.nan))
        columns.append(in_batches(self.prior.log_prob, x, features))
        return jnp.stack(columns, axis=1)

    def _bare(self):
        """The model without what only describes it: equal ones share their compiled functions."""
        nothing: dict = {"stops": (), "weights": (), "record": "", "centre": None}
        return changed(self, **nothing, condition=None, history=History.empty(0))

    def _drawn(self, n, condition, key, steps, run):
        """n draws by `run`, a function of times, key, stop and features, each to its own stop."""
        n = positive_integer(n, "n", "sample")
        steps = positive_integer(steps, "steps", "sample")
        features = self._features(condition, n, "sample")
        key_part, key_run = jr.split(random_key(key, "sample"))
        parts = jr.choice(key_part, len(self.weights), (n,), p=jnp.asarray(self.weights))
        stops = jnp.asarray([*self.stops, self.t1])[parts]
        times = jnp.geomspace(self.t1, self.stops[0], steps + 1)
        points = in_batches(run, jr.split(key_run, n), stops, features, shared=(times,))
        return points if self.centre is None else uncentred(self.manifold, points, self.centre)

    def _features(self, condition, n, owner):
        if self.condition is None:
            if condition is not None:
                raise ValueError(f"{owner}: the model was fitted without conditions; leave it out.")
            return jnp.zeros((n, 0))
        if condition is None:
            raise ValueError(f"{owner}: the model was fitted with conditions; give condition=...")
        return self.condition(condition, n, owner)

    @property
    def about(self) -> dict:
        """How it was made: settings, seed, version."""
        return json.loads(self.record)

    def save(self, path: str | Path) -> None:
        """Save the model in one file; `calor.load` reads it."""
        save(path, self)

    def __str__(self) -> str:
        stops = ", ".join(f"{stop:.2g}" for stop in self.stops)
        return f"{type(self).__name__}({self.manifold}, stops at t = {stops}, t1 = {self.t1:g})"


Model = TypeVar("Model", bound=AbstractModel)


class _Density(eqx.Module):
    """The log-density of one point at one stop; a value, so that it is compiled once."""

    model: AbstractModel
    probes: int = eqx.field(static=True)
    steps: int | None = eqx.field(static=True)

    def __call__(self, stop, tolerance, x, features, key):
        model = self.model
        vectors = None
        if self.probes:
            vectors = likelihood.probes(key, model.manifold, x, self.probes)
        way = likelihood.follow(
            lambda tau, x: model.velocity(tau, x, features),
            model.manifold,
            x,
            *model.span(stop),
            tolerance=tolerance,
            probes=vectors,
            steps=self.steps,
        )
        return model.prior.log_prob(way.end, features) + way.divergence, way.reached


@eqx.filter_jit
def _run_batch(function, shared, arrays):
    return jax.vmap(lambda *one: function(*shared, *one))(*arrays)


def in_batches(function: Any, *arrays: Array, shared: tuple = (), size: int = _BATCH) -> Any:
    """Apply a function of one point to many, a fixed number at a time.

    The last batch is filled up, so that everything is compiled once for large arrays, and once for
    each power of two of small ones.
    """
    count = len(arrays[0])
    size = min(size, 1 << max(count - 1, 0).bit_length())
    results = []
    for start in range(0, count, size):
        part = [array[start : start + size] for array in arrays]
        missing = size - len(part[0])
        if missing:
            part = [jnp.concatenate([a, jnp.repeat(a[:1], missing, axis=0)]) for a in part]
        results.append(_run_batch(function, shared, tuple(part)))
    return jax.tree.map(lambda *rows: jnp.concatenate(rows)[:count], *results)


def with_weights(
    model: Model, field: AbstractScore, history: History, prepared: Prepared, key: Key
) -> Model:
    """The model with a trained field, the weights of its stops by the likelihood of held out data.

    Args:
        model: everything but the field and its history.
        field: the trained field.
        history: of its training.
        prepared: the data.
        key: a random key.
    """
    model = changed(model, field=field, history=history)
    if len(model.stops) == 1:
        return changed(model, weights=(1.0, 0.0))
    chosen = jr.permutation(key, len(prepared.held_out))[:_POINTS]
    x, features = prepared.held_out[chosen], prepared.held_features[chosen]
    parts = finite(model._parts(x, features, key, 1e-4, None, None))
    weights = mixture_weights(parts)
    keep = weights[:-1] >= _SMALLEST_WEIGHT
    if not keep.any():
        keep[np.argmax(weights[:-1])] = True
    weights = mixture_weights(parts[:, np.append(keep, True)])
    stops = tuple(np.asarray(model.stops)[keep].tolist())
    return changed(model, stops=stops, weights=tuple(weights.tolist()))


def changed(model: Model, **changes: Any) -> Model:
    """The model with other fields."""
    fields = {name: getattr(model, name) for name in type(model).__dataclass_fields__}
    return type(model)(**{**fields, **changes})


def finite(parts):
    """In double precision, with points that the flow lost as points of no density."""
    parts = np.asarray(parts, np.float64)
    return np.where(np.isnan(parts), -1e3, parts)


def mixture_weights(parts: Float[np.ndarray, "n k"], steps: int = 400) -> Float[np.ndarray, " k"]:
    """The weights of a mixture of given densities with the largest likelihood, by EM.

    One more observation is shared among the parts, so that none has the weight zero.
    """
    weights = np.full(parts.shape[1], 1 / parts.shape[1])
    for _ in range(steps):
        joint = parts + np.log(weights)
        share = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))
        weights = (share.sum(axis=0) + 1 / parts.shape[1]) / (len(parts) + 1)
    return weights
