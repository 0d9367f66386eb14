r"""`calor.fit`: a diffusion model of data on a manifold, from any heat kernel.

The model is the score of the noised data for times from t_min to t1, learned by denoising score
matching.  The probability flow dx/dt = -s carries the law of the noised data from time to time.
"""

import hashlib
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from . import reverse
from ._checks import positive_integer, random_key
from ._types import Key, Point, Points, Scalar, Tangent
from .data import Prepared, build_network, find_scales, prepare
from .forward import TimeLaw, denoising_loss
from .heat import AbstractHeatKernel
from .manifolds import AbstractManifold
from .models import STOPS, AbstractModel, with_weights
from .networks import Network
from .prior import (
    AbstractPrior,
    KernelPrior,
    Uniform,
    distance_from_uniform,
    frechet_mean,
    is_compact,
)
from .score import AbstractScore, Condition, TangentScore
from .training import History, Training, train

# Noised points at which a score is validated.
_VALIDATION_DRAWS = 4096


class PriorWarning(UserWarning):
    """The law of the noised data at the last time is not close to the prior."""


class Diffusion(AbstractModel):
    """A diffusion model; `calor.fit` makes it."""

    manifold: AbstractManifold
    field: AbstractScore
    prior: AbstractPrior
    condition: Condition | None
    stops: tuple[float, ...] = eqx.field(static=True)
    weights: tuple[float, ...] = eqx.field(static=True)
    t1: float = eqx.field(static=True)
    history: History
    record: str = eqx.field(static=True)

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
        if method not in reverse.METHODS:
            known = ", ".join(repr(name) for name in reverse.METHODS)
            raise ValueError(f"sample: method must be one of {known}, got {method!r}.")
        return self._drawn(n, condition, key, steps, _Generate(self, reverse.METHODS[method]))

    def score(self, t: Scalar, x: Point, features: Float[Array, " c"] | None = None) -> Tangent:
        """The score of the noised data at one point."""
        return self.field(t, x, jnp.zeros(0) if features is None else features)

    def _velocity(self, tau, x, features):
        t = jnp.exp(tau)  # tau = log t: every scale takes about equally long
        return -t * self.field(t, x, features)

    def _span(self, stop):
        return jnp.log(stop), jnp.log(jnp.asarray(self.t1, stop.dtype))


class _Generate(eqx.Module):
    """One draw of a model; a value, so that it is compiled once."""

    model: Diffusion
    method: Any = eqx.field(static=True)

    def __call__(self, times, key, stop, features):
        key_start, key_run = jr.split(key)
        x = self.model.prior.sample(key_start)

        def score(t, x):
            return self.model.field(t.astype(x.dtype), x, features)

        manifold = self.model.manifold
        return reverse.generate(score, manifold, self.method, times, stop, x, key_run)


def fit(
    kernel: AbstractHeatKernel,
    data: Points,
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
    scales = find_scales(kernel.manifold, prepared.points, t_min, t1, "fit")
    prior = make_prior(kernel, prepared.points, scales.t1, centres, key_check)
    model = score(
        kernel.manifold,
        build_network(network, kernel.manifold, prepared, scales, score.outputs, key_start),
    )
    law = TimeLaw(scales.t_min, scales.t1, float(time_power))
    record = make_record(kernel, network, training, score, law, prepared, key)
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
    tried = tuple(stops or (s * scales.t_min for s in STOPS if s * scales.t_min < scales.t1 / 10))
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
    return with_weights(diffusion, prepared, key_check)


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


def make_prior(
    kernel: AbstractHeatKernel, points: Float[Array, "n ..."], t1: float, centres: int, key: Key
) -> AbstractPrior:
    """The law that generation starts from; warns if the noised data are far from it."""
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


def make_record(
    kernel: AbstractHeatKernel,
    network: Network,
    training: Training,
    field: type[AbstractScore],
    law: TimeLaw,
    prepared: Prepared,
    key: Key,
) -> dict:
    """What a model was made of, as JSON; an unfinished training goes on only from the same."""
    from . import __version__

    digest = hashlib.sha256()
    for array in (prepared.points, prepared.held_out, prepared.features):
        digest.update(np.ascontiguousarray(array).tobytes())
    data = jr.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    return {
        "manifold": str(kernel.manifold),
        "kernel": str(kernel),
        "field": field.__name__,
        "network": vars(network),
        "training": vars(training),
        "times": [law.t_min, law.t1, law.power],
        "data": digest.hexdigest()[:16],
        "key": np.asarray(data).tolist(),
        "calor": __version__,
    }
