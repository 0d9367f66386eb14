r"""`calor.fit_flow`: Riemannian flow matching, in the harness of diffusion models.

Chen and Lipman, "Flow matching on general geometries" (2024): a draw x_0 of the prior and a data
point x_1 are joined by a geodesic, x_tau = exp_{x_1}((1 - tau) log_{x_1}(x_0)), and the network
learns the mean velocity log_{x_tau}(x_1) / (1 - tau) of all geodesics through a point.

At tau a fraction 1 - tau of the way is left, and the network is told the time t = t1 (1 - tau)^2 at
which Brownian motion is as far from the data: it sees the same waves, damped in the same way.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.doors import door
from ..core.types import Key, Point, Points, Scalar, Tangent
from ..data.prepare import Given
from ..heat.kernel import AbstractHeatKernel
from ..store.stored import stored
from ..training.run import Run
from ..training.settings import Training
from .fit import fit_model
from .flow_model import AbstractFlowModel
from .generate import midpoint
from .network import AbstractNetwork
from .objectives import FlowMatching
from .specification import Choices, Kind


@stored("Flow", root="model", arrays={"centre": np.asarray})
class Flow(AbstractFlowModel):
    """A flow model; `calor.fit_flow` makes it."""

    def methods(self) -> tuple[str, ...]:
        return "flow", "multistep"

    # The model's own time is log(1 - tau), so that every scale takes about equally long.

    def velocity(self, tau: Scalar, x: Point, features: Float[Array, " c"]) -> Tangent:
        left = jnp.exp(tau)
        return -left * self.field(self.t1 * left**2, x, features)

    def span(self, stop: Scalar) -> tuple[Scalar, Scalar]:
        return jnp.log(stop / self.t1) / 2, jnp.zeros((), stop.dtype)

    # Its level is what is left of the way.

    def level(self, t: Scalar) -> Scalar:
        return jnp.sqrt(t / self.t1)

    def time(self, level: Scalar) -> Scalar:
        return self.t1 * level**2

    def reach(self, level: Scalar, x: Point, features: Float[Array, " c"]) -> Tangent:
        return level * self.field(self.time(level), x, features)

    def generator(self, method: str) -> Callable[..., Point]:
        return self.bare().run_few if method == "multistep" else self.bare()._draw_one

    def _draw_one(self, times, key, stop, features):
        """A draw of the prior that is moved down the times until the stop."""

        def velocity(left: Scalar, x: Point) -> Tangent:
            return self.field(self.t1 * left**2, x, features)

        def step(x: Point, ends: Float[Array, "2"]) -> tuple[Point, None]:
            start, end = jnp.sqrt(ends / self.t1)  # what is left of the way
            moved = midpoint(velocity, self.manifold, start, end, x)
            return jnp.where(ends[0] > stop, moved, x), None

        start = self.prior.sample(key, features)
        ends = jnp.stack([times[:-1], jnp.maximum(times[1:], stop)], axis=1).astype(start.dtype)
        return jax.lax.scan(step, start, ends)[0]


FLOW = Kind(Flow, lambda family: family.velocity, FlowMatching)


@door("fit_flow")
def fit_flow(
    kernel: AbstractHeatKernel,
    data: Points,
    *,
    condition: Any = None,
    groups: Any = None,
    weights: Any = None,
    key: Key,
    validation: float | Any = 0.1,
    network: AbstractNetwork | None = None,
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
    choices = Choices(network, training, t_min, t1, time_power, centres, stops, centred)
    run = Run("fit_flow", progress=progress, resume=resume)
    given = Given(data, condition, groups, validation, weights)
    return fit_model(FLOW, kernel, given, choices, key=key, run=run)
