r"""`calor.fit`: a diffusion model of data on a manifold, from any heat kernel.

The model is the score of the noised data for times from t_min to t1.  Its density at the data is
the density of the noised data at a small time, a *stop*.  Which stop is best depends on the data,
so the model is a mixture over a few stops and the prior, its weights found on validation data:

    p(x) = sum_k w_k p_{t_k}(x) + w_0 prior(x).
"""

import hashlib
import json
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float
from scipy.spatial import cKDTree

from . import likelihood, reverse
from ._checks import positive_integer, random_key
from ._types import Key
from .data import checked_points, split
from .forward import TimeLaw, denoising_loss
from .heat import AbstractHeatKernel
from .manifolds import AbstractManifold
from .networks import Network
from .prior import (
    AbstractPrior,
    KernelPrior,
    Uniform,
    distance_from_uniform,
    frechet_mean,
    is_compact,
)
from .score import AbstractScore, Condition, TangentScore, learn_condition
from .training import History, Training, train

# Stops that are tried, in units of t_min, and the weight below which one is left out.
_STOPS, _SMALLEST_WEIGHT = (1.0, 5.0, 50.0, 1000.0), 2e-3
_VALIDATION_POINTS, _VALIDATION_DRAWS = 512, 4096
_BATCH = 512


class PriorWarning(UserWarning):
    """The law of the noised data at the last time is not close to the prior."""


class Diffusion(eqx.Module):
    """A generative model on a manifold: `sample` draws from it, `log_prob` is its density."""

    manifold: AbstractManifold
    score: AbstractScore
    prior: AbstractPrior
    condition: Condition | None
    stops: tuple[float, ...] = eqx.field(static=True)
    weights: tuple[float, ...] = eqx.field(static=True)
    """Of the stops, and of the prior."""
    t1: float = eqx.field(static=True)
    history: History
    record: str = eqx.field(static=True)
    """How it was made: settings, seed, version, as JSON."""

    def sample(
        self,
        n: int,
        *,
        condition: Any = None,
        key: Key,
        method: str = "walk",
        steps: int = 200,
    ) -> Float[Array, "n ..."]:
        """Draw points.

        Args:
            n: how many.
            condition: of each point, or one for all, if the model was fitted with conditions.
            key: a random key.
            method: `"walk"`, a geodesic random walk of the reverse SDE; `"flow"`, the probability
                flow; or `"corrected"`, the walk with Langevin corrections.
            steps: of the walk or flow.
        """
        n = positive_integer(n, "n", "sample")
        steps = positive_integer(steps, "steps", "sample")
        if method not in reverse.METHODS:
            known = ", ".join(repr(name) for name in reverse.METHODS)
            raise ValueError(f"sample: method must be one of {known}, got {method!r}.")
        features = self._features(condition, n, "sample")
        key_part, key_run = jr.split(random_key(key, "sample"))
        parts = jr.choice(key_part, len(self.weights), (n,), p=jnp.asarray(self.weights))
        stops = jnp.asarray([*self.stops, self.t1])[parts]
        times = jnp.geomspace(self.t1, self.stops[0], steps + 1)
        run = _generate(self, reverse.METHODS[method])
        return in_batches(run, jr.split(key_run, n), stops, features, shared=(times,))

    def log_prob(
        self,
        x: Float[Array, "n ..."],
        *,
        condition: Any = None,
        key: Key | None = None,
        tolerance: float = 1e-3,
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
        x = checked_points(self.manifold, x, "log_prob", "x")
        parts = self._parts(x, condition, self.stops, key, tolerance, probes, "log_prob")
        with np.errstate(divide="ignore"):
            weights = jnp.asarray(np.log(self.weights), parts.dtype)
        return logsumexp(parts + weights, axis=1)

    def _parts(self, x, condition, stops, key, tolerance, probes, owner):
        """log-densities (n, k + 1) at the stops, and of the prior."""
        features = self._features(condition, len(x), owner)
        if probes is None:
            probes = 0 if self.manifold.dim <= likelihood.EXACT_DIVERGENCE else 8
        keys = jr.split(jr.key(0) if key is None else random_key(key, owner), len(x))
        run = _density(self, probes)
        columns = []
        for stop in stops:
            numbers = jnp.asarray(stop, x.dtype), jnp.asarray(tolerance, x.dtype)
            values, reached = in_batches(run, x, features, keys, shared=numbers)
            if not bool(jnp.all(reached)):
                count = int(jnp.sum(~reached))
                warnings.warn(
                    f"{owner}: the probability flow of {count} points did not reach its end; "
                    "their log-densities are NaN.",
                    stacklevel=3,
                )
                values = jnp.where(reached, values, jnp.nan)
            columns.append(values)
        columns.append(in_batches(_prior_density(self.prior), x))
        return jnp.stack(columns, axis=1)

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
        from . import checkpoint

        checkpoint.save(path, self)

    def __str__(self) -> str:
        stops = ", ".join(f"{stop:.2g}" for stop in self.stops)
        return f"Diffusion({self.manifold}, stops at t = {stops}, t1 = {self.t1:g})"


@eqx.filter_jit
def _run_batch(function, shared, arrays):
    return jax.vmap(lambda *one: function(*shared, *one))(*arrays)


class _generate(eqx.Module):
    """One draw of a model, as a value, so that it is compiled once."""

    model: Diffusion
    method: Any = eqx.field(static=True)

    def __call__(self, times, key, stop, features):
        key_start, key_run = jr.split(key)
        x = self.model.prior.sample(key_start)

        def score(t, x):
            return self.model.score(t.astype(x.dtype), x, features)

        manifold = self.model.manifold
        return reverse.generate(score, manifold, self.method, times, stop, x, key_run)


class _density(eqx.Module):
    """The log-density of one point at one stop."""

    model: Diffusion
    probes: int = eqx.field(static=True)

    def __call__(self, stop, tolerance, x, features, key):
        model = self.model

        def velocity(log_t, x):
            t = jnp.exp(log_t)
            return -t * model.score(t, x, features)

        vectors = None
        if self.probes:
            vectors = likelihood.probes(key, model.manifold, x, self.probes)
        way = likelihood.follow(
            velocity,
            model.manifold,
            x,
            jnp.log(stop),
            jnp.log(jnp.asarray(model.t1, x.dtype)),
            tolerance=tolerance,
            probes=vectors,
        )
        return model.prior.log_prob(way.end) + way.divergence, way.reached


class _prior_density(eqx.Module):
    prior: AbstractPrior

    def __call__(self, x):
        return self.prior.log_prob(x)


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


def fit(
    kernel: AbstractHeatKernel,
    data: Float[Array, "n ..."],
    *,
    condition: Any = None,
    key: Key,
    validation: float | Any = 0.1,
    score: type[AbstractScore] = TangentScore,
    network: Network | None = None,
    training: Training | None = None,
    t_min: float | None = None,
    t1: float | None = None,
    time_power: float = 0.0,
    centres: int = 1,
    stops: Sequence[float] | None = None,
    progress: bool | None = None,
    resume: str | Path | None = None,
) -> Diffusion:
    """Fit a diffusion model to data.

    Args:
        kernel: a heat kernel, from `calor.heat_kernel` or `calor.solve`; it gives the noise.
        data: points of its manifold along the first axis.
        condition: numbers (n,) or (n, c), or labels (n,), that come with each point.
        key: a random key.
        validation: the fraction of the data to put aside for early stopping and for the weights of
            the stops; or a pair (points, conditions), or points alone.
        score: the class of the score, `TangentScore` or `DenoisedScore`.
        network: its size.
        training: the budget.
        t_min: the smallest time; by default a quarter of the squared distance of neighbours in the
            data, by its lower quartile.
        t1: the last time; by default six over the first eigenvalue on compact manifolds, and four
            times the variance of the data on others.
        time_power: the law of the times in training, see `TimeLaw`.
        centres: of the prior on a manifold that is not compact: 1 is the Frechet mean of the data,
            more are so many of the data points.
        stops: times at which the density is read off; by default multiples of t_min.
        progress: whether to show a progress bar; by default on a terminal only.
        resume: a file for the state of an unfinished training, which goes on from it if it exists.
    """
    if not isinstance(kernel, AbstractHeatKernel):
        raise TypeError(
            f"fit: kernel must come from calor.heat_kernel or calor.solve, got {kernel!r:.80}."
        )
    network, training = network or Network(), training or Training()
    key_split, key_start, key_train, key_check = jr.split(random_key(key, "fit"), 4)
    prepared = prepare(kernel.manifold, data, condition, validation, key_split, "fit")
    scales = Scales(kernel.manifold, prepared.points, t_min, t1, "fit")
    prior = _prior(kernel, prepared.points, scales.t1, centres, key_check)
    model = score(
        kernel.manifold,
        build_network(network, kernel.manifold, prepared, scales, score.outputs, key_start),
    )
    law = TimeLaw(scales.t_min, scales.t1, float(time_power))
    record = _record(kernel, network, training, score, law, prepared, key)
    model, history = train(
        model,
        _Loss(kernel, law, training.batch),
        _Validation(kernel, law),
        prepared.arrays(),
        training,
        key_train,
        title=f"fitting {kernel.manifold}",
        identity=record,
        progress=progress,
        resume=resume,
    )
    tried = tuple(stops or (s * scales.t_min for s in _STOPS if s * scales.t_min < scales.t1 / 10))
    diffusion = Diffusion(
        kernel.manifold,
        model,
        prior,
        prepared.encoder,
        tried,
        (1.0,) + (0.0,) * len(tried),
        scales.t1,
        history,
        json.dumps(record),
    )
    return _weighted(diffusion, prepared, key_check)


class Prepared(eqx.Module):
    """Checked data, split into a training and a validation part."""

    points: Float[Array, "n ..."]
    features: Float[Array, "n c"]
    held_out: Float[Array, "m ..."]
    held_features: Float[Array, "m c"]
    encoder: Condition | None

    def arrays(self):
        """The data that a loss sees."""
        return self.points, self.features, self.held_out, self.held_features


def prepare(manifold, data, condition, validation, key, owner) -> Prepared:
    """Check the data once, encode the conditions, and put a validation part aside."""
    points = checked_points(manifold, data, owner, "data", at_least=2)
    encoder = None
    features = jnp.zeros((len(points), 0))
    if condition is not None:
        encoder = learn_condition(condition, owner)
        if len(np.asarray(condition)) != len(points):
            raise ValueError(
                f"{owner}: got {len(np.asarray(condition))} conditions for {len(points)} points."
            )
        features = encoder(condition, len(points), owner)
    if isinstance(validation, int | float):
        if not 0 < validation < 1:
            raise ValueError(
                f"{owner}: validation must be a fraction between 0 and 1, or points, got "
                f"{validation!r}."
            )
        first, second = split(key, len(points), float(validation))
        return Prepared(points[first], features[first], points[second], features[second], encoder)
    held_condition = None
    if isinstance(validation, tuple) and len(validation) == 2 and encoder is not None:
        validation, held_condition = validation
    held = checked_points(manifold, validation, owner, "validation")
    held_features = jnp.zeros((len(held), 0))
    if encoder is not None:
        if held_condition is None:
            raise ValueError(
                f"{owner}: with conditions, validation must be a pair (points, conditions)."
            )
        held_features = encoder(held_condition, len(held), owner)
    return Prepared(points, features, held, held_features, encoder)


class Scales:
    """The smallest and the last time, and the lengths that a network resolves."""

    def __init__(self, manifold, points, t_min, t1, owner):
        """Take what is given and find the rest from the data."""
        places = np.asarray(jax.vmap(manifold.embedding)(points), np.float64)
        spread = float(np.sqrt(np.mean(np.sum((places - places.mean(0)) ** 2, axis=1))))
        # What float32 resolves: neighbours closer than this are one point to it.
        floor = 4e-7 * max(1.0, float(np.max(np.abs(places)))) ** 2
        self.t_min, self.t1 = t_min, t1
        if t_min is None:
            unique = np.unique(places, axis=0)
            squared = floor
            if len(unique) > 1:
                sample = np.random.default_rng(0).permutation(unique)[:20000]
                near = cKDTree(unique).query(sample, 2)[0][:, 1]
                squared = max(floor, float(np.quantile(near, 0.25)) ** 2)
            self.t_min = squared / 4
        if t1 is None:
            gap = manifold.spectral_gap()
            self.t1 = 6 / gap if gap > 0 else max(4 * spread**2 / manifold.dim, 20 * self.t_min)
            if gap == 0 and is_compact(manifold):
                self.t1 = max(self.t1, 3.0 * spread**2)
        if not 0 < self.t_min < self.t1 < math.inf:
            raise ValueError(
                f"{owner}: times must satisfy 0 < t_min < t1, got t_min = {self.t_min:g}, "
                f"t1 = {self.t1:g}."
            )
        self.finest = 2.5 * math.sqrt(2 * self.t_min)
        self.coarsest = max(spread, 2 * self.finest)


def build_network(network, manifold, prepared, scales, outputs, key):
    """A network for the embedded points of a manifold."""
    places = jax.vmap(manifold.embedding)(prepared.points)
    lengths, times = (scales.finest, scales.coarsest), (scales.t_min, scales.t1)
    conditions = prepared.features.shape[1]
    return network.build(key, places, lengths, times, conditions, outputs(manifold))


class _Loss(eqx.Module):
    kernel: AbstractHeatKernel
    law: TimeLaw
    batch: int = eqx.field(static=True)

    def __call__(self, score, data, key):
        points, features, *_ = data
        key_batch, key_noise = jr.split(key)
        chosen = jr.randint(key_batch, (self.batch,), 0, len(points))
        x0, condition = points[chosen], features[chosen]
        return denoising_loss(score, self.kernel, self.law, x0, condition, key_noise)


class _Validation(eqx.Module):
    """The same loss on the held out points, repeated, with noise that never changes."""

    kernel: AbstractHeatKernel
    law: TimeLaw

    def __call__(self, score, data):
        *_, points, features = data
        repeats = max(1, _VALIDATION_DRAWS // len(points))
        x0, condition = (jnp.concatenate([array] * repeats) for array in (points, features))
        order = jr.permutation(jr.key(1), len(x0))  # times are stratified in order
        x0, condition = x0[order], condition[order]
        return denoising_loss(score, self.kernel, self.law, x0, condition, jr.key(2))


def _prior(kernel, points, t1, centres, key):
    manifold = kernel.manifold
    if is_compact(manifold):
        distance = distance_from_uniform(kernel, t1, points, key)
        if not distance < 0.05:
            warnings.warn(
                f"fit: at the last time t1 = {t1:g} the noised data are still {distance:.2g} away "
                "from the uniform law (mean of |vol p - 1|); raise t1.",
                PriorWarning,
                stacklevel=3,
            )
        return Uniform(manifold)
    centres = positive_integer(centres, "centres", "fit")
    if centres == 1:
        return KernelPrior(kernel, t1, frechet_mean(manifold, points)[None])
    chosen = jr.choice(key, len(points), (min(centres, len(points)),), replace=False)
    return KernelPrior(kernel, t1, points[chosen])


def _record(kernel, network, training, score, law, prepared, key):
    from . import __version__

    digest = hashlib.sha256()
    for array in (prepared.points, prepared.held_out, prepared.features):
        digest.update(np.ascontiguousarray(array).tobytes())
    data = jr.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    return {
        "manifold": str(kernel.manifold),
        "kernel": str(kernel),
        "score": score.__name__,
        "network": vars(network),
        "training": vars(training),
        "times": [law.t_min, law.t1, law.power],
        "data": digest.hexdigest()[:16],
        "key": np.asarray(data).tolist(),
        "calor": __version__,
    }


def _weighted(model, prepared, key):
    """The model with weights of its stops by expectation maximization on held out points."""
    count = min(_VALIDATION_POINTS, len(prepared.held_out))
    x, features = prepared.held_out[:count], prepared.held_features[:count]
    raw = eqx.tree_at(lambda m: m.condition, model, None, is_leaf=lambda node: node is None)
    parts = np.asarray(_parts_of(raw, x, features, key), np.float64)
    weights = mixture_weights(parts)
    keep = weights[:-1] >= _SMALLEST_WEIGHT
    if not keep.any():
        keep[np.argmax(weights[:-1])] = True
    kept = np.append(keep, True)
    weights = mixture_weights(parts[:, kept])
    stops = tuple(np.asarray(model.stops)[keep].tolist())
    fields = {name: getattr(model, name) for name in Diffusion.__dataclass_fields__}
    return Diffusion(**{**fields, "stops": stops, "weights": tuple(weights.tolist())})


def _parts_of(model, x, features, key):
    run = _density(model, 0 if model.manifold.dim <= likelihood.EXACT_DIVERGENCE else 8)
    keys, tolerance = jr.split(key, len(x)), jnp.asarray(1e-3, x.dtype)
    columns = []
    for stop in model.stops:
        shared = jnp.asarray(stop, x.dtype), tolerance
        values, reached = in_batches(run, x, features, keys, shared=shared)
        columns.append(jnp.where(reached, values, -1e3))
    return jnp.stack([*columns, in_batches(_prior_density(model.prior), x)], axis=1)


def mixture_weights(parts: Float[np.ndarray, "n k"], steps: int = 400) -> Float[np.ndarray, " k"]:
    """The weights of a mixture of given densities with the largest likelihood, by EM.

    One observation is added to each part, so that none has the weight zero.
    """
    weights = np.full(parts.shape[1], 1 / parts.shape[1])
    for _ in range(steps):
        joint = parts + np.log(weights)
        share = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))
        weights = (share.sum(axis=0) + 1 / parts.shape[1]) / (len(parts) + 1)
    return weights
