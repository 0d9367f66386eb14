r"""`calor.fit_flow`: Riemannian flow matching, in the harness of diffusion models.

Chen and Lipman, "Flow matching on general geometries" (2024): a draw x_0 of the prior and a data
point x_1 are joined by a geodesic, x_tau = exp_{x_1}((1 - tau) log_{x_1}(x_0)), and the network
learns the mean velocity log_{x_tau}(x_1) / (1 - tau) of all geodesics through a point.

At tau a fraction 1 - tau of the way is left, and the network is told the time t = t1 (1 - tau)^2 at
which Brownian motion is as far from the data: it sees the same waves, damped in the same way.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.types import Key, Points
from ..data.conditions import Condition
from ..heat.clouds.matchings import Labelled
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import AbstractManifold
from ..store.stored import stored
from ..training.loop import History
from ..training.settings import Training
from .clouds import CloudNetwork, CloudVelocity
from .fields import AbstractScore, Guess, frame_size, network_output
from .fit import Choices, fit_model, is_cloud
from .generate import midpoint
from .model import AbstractModel
from .network import FieldNetwork, Network
from .objectives import Matching
from .prior import AbstractPrior


@stored("TangentVelocity")
class TangentVelocity(AbstractScore):
    """An ambient field of order one, projected to the tangent space."""

    manifold: AbstractManifold
    network: FieldNetwork
    guess: Guess | None = None

    outputs = staticmethod(frame_size)

    def vector_at(self, t, x, condition):
        coefficients, _ = network_output(self, t, x, condition)
        return jnp.tensordot(coefficients, self.manifold.frame(x), axes=1)


@stored("Flow", root="model", arrays={"centre": np.asarray})
class Flow(AbstractModel):
    """A flow model; `calor.fit_flow` makes it."""

    manifold: AbstractManifold
    field: AbstractScore
    prior: AbstractPrior
    condition: Condition | None
    centre: np.ndarray | None
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
        return self._drawn(n, condition, key, steps, _Generate(self._bare()))

    # The model's own time is log(1 - tau), so that every scale takes about equally long.

    def velocity(self, tau, x, features):
        left = jnp.exp(tau)
        return -left * self.field(self.t1 * left**2, x, features)

    def span(self, stop):
        return jnp.log(stop / self.t1) / 2, jnp.zeros((), stop.dtype)


class _Generate(eqx.Module):
    """One draw of a model; a value, so that it is compiled once."""

    model: Flow

    def __call__(self, times, key, stop, features):
        model, manifold = self.model, self.model.manifold

        def step(x, ends):
            start, end = jnp.sqrt(ends / model.t1)  # what is left of the way
            moved = midpoint(velocity, manifold, start, end, x)
            return jnp.where(ends[0] > stop, moved, x), None

        def velocity(left, x):
            return model.field(model.t1 * left**2, x, features)

        start = model.prior.sample(key, features)
        ends = jnp.stack([times[:-1], jnp.maximum(times[1:], stop)], axis=1).astype(start.dtype)
        return jax.lax.scan(step, start, ends)[0]


def fit_flow(
    kernel: AbstractHeatKernel,
    data: Points,
    *,
    condition: Any = None,
    groups: Any = None,
    key: Key,
    validation: float | Any = 0.1,
    network: Network | CloudNetwork | None = None,
    training: Training | None = None,
    t_min: float | None = None,
    t1: float | None = None,
    time_power: float = 0.0,
    centres: int = 1,
    stops: Sequence[float] | None = None,
    centred: bool = True,
    progress: bool | None = None,
    resume: str | Path | None = None,
) -> Flow:
    """Fit a flow to data by flow matching.

    The arguments are those of `calor.fit`.  The kernel only gives the prior where the manifold is
    not compact.  With `time_power=0.5` the times tau are uniform, as published; by default
    log(1 - tau) is, which sees every scale equally often.  Clouds are joined by shortest geodesics
    of the quotient, every point with its partner in the best matching, unless the kernel is
    `"labelled"`.
    """
    given = t_min, t1, time_power, centres, stops, centred, progress, resume
    choices = Choices(network, training, *given)
    labelled = isinstance(getattr(kernel, "matching", None), Labelled)
    return fit_model(
        Flow,
        CloudVelocity if is_cloud(kernel) else TangentVelocity,
        lambda prior, law: Matching(law, kernel.manifold, prior, labelled),
        kernel,
        data,
        condition,
        groups,
        validation,
        choices,
        key,
        "fit_flow",
    )
