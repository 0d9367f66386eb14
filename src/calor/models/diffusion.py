r"""`calor.fit`: a diffusion model of data on a manifold, from any heat kernel.

The model is the score of the noised data for times from t_min to t1, learned by denoising score
matching.  The probability flow dx/dt = -s carries the law of the noised data from time to time.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.checks import positive_time
from ..core.types import Key, Point, Points, Scalar, Tangent
from ..data.conditions import Condition
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import AbstractManifold
from ..store.stored import stored
from ..training.loop import History
from ..training.settings import Training
from . import generate as reverse
from .clouds import CloudNetwork, CloudScore
from .fields import AbstractScore, TangentScore
from .fit import Choices, fit_model, is_cloud
from .model import AbstractModel
from .network import Network
from .objectives import Denoising
from .prior import AbstractPrior


@stored("Diffusion", root="model", arrays={"centre": np.asarray})
class Diffusion(AbstractModel):
    """A diffusion model; `calor.fit` makes it."""

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
        return self._drawn(
            n, condition, key, steps, _Generate(self._bare(), reverse.METHODS[method])
        )

    def score(self, t: Scalar, x: Point, *, condition: Any = None) -> Tangent:
        """The score of the noised data at one point."""
        x = self.manifold.check_point(x)
        features = self._features(condition, 1, "score")[0]
        t = positive_time(t, "score").astype(x.dtype)
        if self.centre is None:
            return self.field(t, x, features)
        centre, manifold = jnp.asarray(self.centre, x.dtype), self.manifold
        inside = manifold.to_origin(x, centre)  # pyright: ignore
        out = lambda y: manifold.from_origin(y, centre)  # pyright: ignore
        return jax.jvp(out, (inside,), (self.field(t, inside, features),))[1]

    def velocity(self, tau, x, features):
        t = jnp.exp(tau)  # tau = log t: every scale takes about equally long
        return -t * self.field(t, x, features)

    def span(self, stop):
        return jnp.log(stop), jnp.log(jnp.asarray(self.t1, stop.dtype))


class _Generate(eqx.Module):
    """One draw of a model; a value, so that it is compiled once."""

    model: Diffusion
    method: Any = eqx.field(static=True)

    def __call__(self, times, key, stop, features):
        key_start, key_run = jr.split(key)
        x = self.model.prior.sample(key_start, features)

        def score(t, x):
            return self.model.field(t, x, features)

        times, stop = times.astype(x.dtype), stop.astype(x.dtype)
        manifold = self.model.manifold
        return reverse.generate(score, manifold, self.method, times, stop, x, key_run)


def fit(
    kernel: AbstractHeatKernel,
    data: Points,
    *,
    condition: Any = None,
    groups: Any = None,
    key: Key,
    validation: float | Any = 0.1,
    score: type[AbstractScore] = TangentScore,
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
        time_power: the law of the times in training, see `TimeLaw`.
        centres: of the prior on a manifold that is not compact: 1 is the Frechet mean of the data,
            more are so many of the data points.
        stops: times at which the density is read off; by default multiples of t_min.
        centred: whether an isometry takes the Frechet mean of the data to the origin first, where
            there is one (SPD(n)).
        progress: whether to show a progress bar; by default on a terminal only.
        resume: a file for the state of an unfinished training, which goes on from it if it exists.
    """
    given = t_min, t1, time_power, centres, stops, centred, progress, resume
    choices = Choices(network, training, *given)
    field = CloudScore if is_cloud(kernel) else score
    return fit_model(
        Diffusion,
        field,
        lambda prior, law: Denoising(law, kernel),
        kernel,
        data,
        condition,
        groups,
        validation,
        choices,
        key,
        "fit",
    )
