r"""`calor.fit`: a diffusion model of data on a manifold, from any heat kernel.

The model is the score of the noised data for times from t_min to t1, learned by denoising score
matching.  The probability flow dx/dt = -s carries the law of the noised data from time to time.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.checks import positive_time
from ..core.doors import door
from ..core.types import Key, Point, Points, Scalar, Tangent
from ..data.prepare import Given
from ..heat.kernel import AbstractHeatKernel
from ..store.stored import stored
from ..training.run import Run
from ..training.settings import Training
from .fields import AbstractField, TangentScore
from .fit import fit_model
from .flow_model import AbstractFlowModel
from .generate import STEPS
from .network import AbstractNetwork
from .objectives import Denoising
from .specification import Choices, Kind


@stored("Diffusion", root="model", arrays={"centre": np.asarray})
class Diffusion(AbstractFlowModel):
    """A diffusion model; `calor.fit` makes it."""

    def methods(self) -> tuple[str, ...]:
        return tuple(STEPS)

    @door("score")
    def score(self, t: Scalar, x: Point, *, condition: Any = None) -> Tangent:
        """The score of the noised data at one point."""
        x = self.manifold.check_point(x)
        features = self.features(condition, 1)[0]
        t = positive_time(t).astype(x.dtype)
        if self.centre is None:
            return self.field(t, x, features)
        centre, manifold = jnp.asarray(self.centre, x.dtype), self.manifold
        inside = manifold.to_origin(x, centre)
        out = lambda y: manifold.from_origin(y, centre)
        return jax.jvp(out, (inside,), (self.field(t, inside, features),))[1]

    # The model's own time is log t, so that every scale takes about equally long.

    def velocity(self, tau: Scalar, x: Point, features: Float[Array, " c"]) -> Tangent:
        t = jnp.exp(tau)
        return -t * self.field(t, x, features)

    def span(self, stop: Scalar) -> tuple[Scalar, Scalar]:
        return jnp.log(stop), jnp.log(jnp.asarray(self.t1, stop.dtype))

    def generator(self, method: str) -> Callable[..., Point]:
        return eqx.Partial(self.bare()._draw_one, STEPS[method])

    def _draw_one(self, move, times, key, stop, features):
        """A draw of the prior that is moved down the times until the stop."""
        key_start, key_run = jr.split(key)
        start = self.prior.sample(key_start, features)
        times, stop = times.astype(start.dtype), stop.astype(start.dtype)

        def score(t: Scalar, x: Point) -> Tangent:
            return self.field(t, x, features)

        def step(x: Point, inputs: tuple[Scalar, Scalar, Key]) -> tuple[Point, None]:
            t, after, key = inputs
            moved = move(score, self.manifold, t, jnp.maximum(after, stop), x, key)
            return jnp.where(t > stop, moved, x), None

        inputs = times[:-1], times[1:], jr.split(key_run, len(times) - 1)
        return jax.lax.scan(step, start, inputs)[0]


@door("fit")
def fit(
    kernel: AbstractHeatKernel,
    data: Points,
    *,
    condition: Any = None,
    groups: Any = None,
    key: Key,
    validation: float | Any = 0.1,
    score: type[AbstractField] = TangentScore,
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
) -> Diffusion:
    """Fit a diffusion model to data.

    Args:
        kernel: a heat kernel, from `calor.heat_kernel` or `calor.solve`; it gives the noise.
        data: points of its manifold along the first axis.
        condition: numbers (n,) or (n, c), or labels (n,), that come with each point.
        groups: names of what points belong to, such as a recording or a place, if new points will
            come from others: whole groups are put aside, and on SPD(n) the first guess for a group
            comes from all other groups.
        key: a random key.
        validation: the fraction of the data to put aside for early stopping and for the weights of
            the stops; or a pair (points, conditions), or points alone.
        score: the class of the score, `TangentScore` or `DenoisedScore`; on a `PointCloud` it is
            always `CloudScore`.
        network: its size; on a `PointCloud` a `CloudNetwork`.
        training: the budget.
        t_min: the smallest time; by default the squared distance of neighbours in the data, by
            its lower quartile, over twice the dimension; on SPD(n) a twentieth of the smallest
            variance of the logarithms, given the condition.
        t1: the last time; by default six over the first eigenvalue on compact manifolds, and four
            times the variance of the data on others; on SPD(n) the largest variance of the
            logarithms, given the condition.
        time_power: the law of the times in training, see `times.Times`.
        centres: of the prior on a manifold that is not compact: 1 is the Frechet mean of the data,
            more are so many of the data points.
        stops: times at which the density is read off; by default multiples of t_min.
        centred: whether an isometry takes the Frechet mean of the data to the origin first, where
            there is one (SPD(n)).
        progress: whether to show a progress bar; by default on a terminal only.
        resume: a file for the state of an unfinished training, which goes on from it if it exists.
    """
    choices = Choices(network, training, t_min, t1, time_power, centres, stops, centred)
    kind = Kind(
        Diffusion,
        lambda family: family.score or score,
        lambda times, kernel, prior: Denoising(times, kernel),
    )
    run = Run("fit", progress=progress, resume=resume)
    given = Given(data, condition, groups, validation)
    return fit_model(kind, kernel, given, choices, key=key, run=run)
