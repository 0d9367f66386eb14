r"""`calor.fit_flow`: Riemannian flow matching, in the harness of diffusion models.

Chen and Lipman, "Flow matching on general geometries" (2024): a draw x_0 of the prior and a data
point x_1 are joined by a geodesic, x_tau = exp_{x_1}((1 - tau) log_{x_1}(x_0)), and the network
learns the mean velocity log_{x_tau}(x_1) / (1 - tau) of all geodesics through a point.

At tau a fraction 1 - tau of the way is left, and the network is told the time t = t1 (1 - tau)^2 at
which Brownian motion is as far from the data: it sees the same waves, damped in the same way.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ._checks import random_key
from ._types import Key, Points
from .data import build_network, find_scales, prepare
from .diffusion import make_prior, make_record
from .forward import TimeLaw
from .heat import AbstractHeatKernel
from .manifolds import AbstractManifold
from .models import STOPS, AbstractModel, with_weights
from .networks import FieldNetwork, Network
from .prior import AbstractPrior
from .score import AbstractScore, Condition
from .training import History, Training, train

_VALIDATION_DRAWS = 4096


class TangentVelocity(AbstractScore):
    """An ambient field of order one, projected to the tangent space."""

    manifold: AbstractManifold
    network: FieldNetwork

    @staticmethod
    def outputs(manifold):
        """One for each vector of the frame."""
        x = jax.eval_shape(manifold._random_point, jr.key(0))
        return jax.eval_shape(manifold.frame, x).shape[0]

    def _field(self, t, x, condition):
        coefficients = self.network(self.manifold.embedding(x), t, condition)
        return jnp.tensordot(coefficients, self.manifold.frame(x), axes=1)


class Flow(AbstractModel):
    """A flow model; `calor.fit_flow` makes it."""

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
        self, n: int, *, condition: Any = None, key: Key, steps: int = 200
    ) -> Float[Array, "n ..."]:
        """Draw points.

        Args:
            n: how many.
            condition: of each point, or one for all, if the model was fitted with conditions.
            key: a random key.
            steps: of the midpoint rule.
        """
        return self._drawn(n, condition, key, steps, _Generate(self))

    # The model's own time is log(1 - tau), so that every scale takes about equally long.

    def _velocity(self, tau, x, features):
        left = jnp.exp(tau)
        return -left * self.field(self.t1 * left**2, x, features)

    def _span(self, stop):
        return jnp.log(stop / self.t1) / 2, jnp.zeros((), stop.dtype)


class _Generate(eqx.Module):
    """One draw of a model; a value, so that it is compiled once."""

    model: Flow

    def __call__(self, times, key, stop, features):
        model, manifold = self.model, self.model.manifold

        def step(x, ends):
            start, end = jnp.sqrt(ends / model.t1)  # what is left of the way
            halfway = manifold._exp(x, (start - end) / 2 * velocity(start, x))
            move = (start - end) * velocity((start + end) / 2, halfway)
            moved = manifold._exp(halfway, manifold._log(halfway, x) + move)
            return jnp.where(ends[0] > stop, manifold._project(moved), x), None

        def velocity(left, x):
            return model.field(model.t1 * left**2, x, features)

        ends = jnp.stack([times[:-1], jnp.maximum(times[1:], stop)], axis=1)
        return jax.lax.scan(step, model.prior.sample(key), ends)[0]


def fit_flow(
    kernel: AbstractHeatKernel,
    data: Points,
    *,
    condition: Any = None,
    key: Key,
    validation: float | Any = 0.1,
    network: Network | None = None,
    training: Training | None = None,
    t_min: float | None = None,
    t1: float | None = None,
    time_power: float = 0.0,
    centres: int = 1,
    stops: Sequence[float] | None = None,
    progress: bool | None = None,
    resume: str | Path | None = None,
) -> Flow:
    """Fit a flow to data by flow matching.

    The arguments are those of `calor.fit`.  The kernel only gives the prior where the manifold is
    not compact.  With `time_power=0.5` the times tau are uniform, as published; by default
    log(1 - tau) is, which sees every scale equally often.
    """
    if not isinstance(kernel, AbstractHeatKernel):
        raise TypeError(
            f"fit_flow: kernel must come from calor.heat_kernel or calor.solve, got {kernel!r:.80}."
        )
    network, training = network or Network(), training or Training()
    key_split, key_start, key_train, key_check = jr.split(random_key(key, "fit_flow"), 4)
    prepared = prepare(kernel.manifold, data, condition, validation, key_split, "fit_flow")
    scales = find_scales(kernel.manifold, prepared.points, t_min, t1, "fit_flow")
    prior = make_prior(kernel, prepared.points, scales.t1, centres, key_check)
    outputs = TangentVelocity.outputs
    built = build_network(network, kernel.manifold, prepared, scales, outputs, key_start)
    law = TimeLaw(scales.t_min, scales.t1, float(time_power))
    record = make_record(kernel, network, training, TangentVelocity, law, prepared, key)
    field, history = train(
        TangentVelocity(kernel.manifold, built),
        _Loss(prior, law, training.batch),
        _Validation(prior, law),
        prepared.arrays(),
        training,
        key_train,
        title=f"fitting a flow on {kernel.manifold}",
        identity=record,
        progress=progress,
        resume=resume,
    )
    tried = tuple(stops or (s * scales.t_min for s in STOPS if s * scales.t_min < scales.t1 / 10))
    flow = Flow(
        kernel.manifold,
        field,
        prior,
        prepared.encoder,
        tried,
        (1.0,) + (0.0,) * len(tried),
        scales.t1,
        history,
        json.dumps(record),
    )
    return with_weights(flow, prepared, key_check)


def matching_loss(
    field: AbstractScore,
    prior: AbstractPrior,
    law: TimeLaw,
    x1: Float[Array, "n ..."],
    condition: Float[Array, "n c"],
    key: Key,
) -> Float[Array, ""]:
    """The mean squared difference to the velocities of single geodesics."""
    manifold = field.manifold
    key_time, key_start = jr.split(key)
    times = law.draw(key_time, len(x1))

    def one(t, x1, condition, key):
        left = jnp.sqrt(t / law.t1)
        x = manifold._exp(x1, left * manifold._log(x1, prior.sample(key).astype(x1.dtype)))
        target = jax.lax.stop_gradient(manifold._log(x, x1) / left)
        error = field(t, x, condition) - target
        return manifold._inner(x, error, error)

    return jnp.mean(jax.vmap(one)(times, x1, condition, jr.split(key_start, len(x1))))


class _Loss(eqx.Module):
    prior: AbstractPrior
    law: TimeLaw
    batch: int = eqx.field(static=True)

    def __call__(self, field, data, key):
        points, features, *_ = data
        key_batch, key_noise = jr.split(key)
        chosen = jr.randint(key_batch, (self.batch,), 0, len(points))
        x1, condition = points[chosen], features[chosen]
        return matching_loss(field, self.prior, self.law, x1, condition, key_noise)


class _Validation(eqx.Module):
    """The same loss on the held out points, repeated, with noise that never changes."""

    prior: AbstractPrior
    law: TimeLaw

    def __call__(self, field, data):
        *_, points, features = data
        repeats = max(1, _VALIDATION_DRAWS // len(points))
        x1, condition = (jnp.concatenate([array] * repeats) for array in (points, features))
        order = jr.permutation(jr.key(1), len(x1))
        x1, condition = x1[order], condition[order]
        return matching_loss(field, self.prior, self.law, x1, condition, jr.key(2))
