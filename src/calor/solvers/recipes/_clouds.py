r"""calor's own recipe for point clouds: a network of Sinkhorn's matrix, `calor.matchings.Learned`.

The loss is, for clouds of up to nine points, where the permanent is at hand, the error of the score
relative to the score, and, with a weight, the heat equation of single points of clouds of sixteen
(`solvers.forms.clouds`) relative to its terms.  Adam; the average of the weights is kept.  The
network knows neither the number of points nor of coordinates, so that one serves all clouds; on
larger clouds the heat equation judges it.
"""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int

from ...core.types import Key, Scalar
from ...heat.clouds import permanents
from ...heat.clouds.kernel import CloudKernel
from ...heat.clouds.matchings import Labelled, Learned, matching_network
from ...heat.kernel import AbstractHeatKernel
from ...manifolds import PointCloud
from ...training.settings import Training
from ...training.steps import AbstractLoss
from ..forms.clouds import CloudSolution, row_residual
from ..forms.rows import times_between
from .base import RECIPES, AbstractDescent, AbstractPlan, AbstractRecipe, descent

# Clouds to draw from; the weight of the past in the average.
_POOL, _MEMORY = 1000, 0.995
# Sizes of clouds: those compared with permanents, those that only the equation judges.
_SMALL, _LARGE = 9, 16
# Times of the noise, up to the end of the solved interval.
_EARLIEST, _LATEST = 0.02, 5.0


@RECIPES.register(PointCloud)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Clouds(AbstractRecipe):
    """calor's recipe for point clouds."""

    name: ClassVar[str] = "clouds"
    by_cover: ClassVar[bool] = False

    width: int = 32
    """Of the network."""
    depth: int = 2
    """How often rows and columns exchange messages."""
    steps: int = 3000
    """Of Adam."""
    batch: int = 64
    """Clouds in a step."""
    learning_rate: float = 4e-3
    """At the start of a cosine schedule."""
    equation: float = 0.0
    """The weight of the heat equation, which costs more and teaches slower."""
    exact: float = 1.0
    """The weight of permanents of small clouds; zero learns from the equation alone."""

    def __post_init__(self) -> None:
        self.check_counts("width", "depth", "steps", "batch")
        for name in ("learning_rate", "equation", "exact"):
            object.__setattr__(self, name, float(vars(self)[name]))
        if self.equation < 0 or self.exact < 0 or self.equation + self.exact == 0:
            raise ValueError(
                f"recipes.clouds: equation and exact must not be negative, nor both zero, got "
                f"{self.equation} and {self.exact}."
            )

    def plan(self, manifold: Any) -> AbstractPlan:
        """From zero, where it is exact."""
        if not isinstance(manifold, PointCloud):
            raise ValueError(f"solve: recipes.clouds solves on PointCloud, not on {manifold}.")
        # Every point its own, which is exact as t -> 0.
        return CloudPlan(manifold, CloudKernel(manifold, Labelled()), (0.0, _LATEST), self)


class CloudPlan(AbstractDescent):
    """Adam, of which the average of the weights is kept."""

    manifold: PointCloud
    law: AbstractHeatKernel
    interval: tuple[float, float] = eqx.field(static=True)
    recipe: Clouds = eqx.field(static=True)

    def start(self, key: Key) -> CloudSolution:
        """A random network."""
        network = matching_network(key, self.recipe.width, self.recipe.depth)
        return CloudSolution(self.manifold, Learned(network))

    def loss(self, key: Key) -> "CloudLoss":
        """Both terms, from clouds that are drawn once, small and large."""
        keys = jr.split(key)
        small, large = (
            PointCloud(n, 8).sources(_POOL, k) for n, k in zip((_SMALL, _LARGE), keys, strict=True)
        )
        return CloudLoss(small, large, self.recipe.exact, self.recipe.equation)

    def training(self) -> Training:
        """Adam after a warm-up."""
        return descent(self.recipe, average=_MEMORY, optimizer=_adam)


def _adam(settings: Training) -> optax.GradientTransformation:
    rate, warm = settings.learning_rate, min(100, settings.steps // 4)
    schedule = optax.warmup_cosine_decay_schedule(0.0, rate, warm, settings.steps, 0.01 * rate)
    return optax.chain(optax.clip_by_global_norm(settings.clip), optax.adam(schedule))


class CloudLoss(AbstractLoss):
    """The error of the score of small clouds, and the equation of single points of large ones."""

    small: Float[Array, "s n k"]
    large: Float[Array, "s m k"]
    exact: float = eqx.field(static=True)
    equation: float = eqx.field(static=True)

    def names(self) -> tuple[str, ...]:
        """Both terms."""
        return "equation", "score"

    def draw(self, count: int, step: Int[Array, ""], key: Key) -> Any:
        """Noised clouds; of large ones a fourth as many, each with a row and a direction."""
        key_equation, key_exact = jr.split(key)
        key_pair, key_row, key_direction = jr.split(key_equation, 3)
        number = max(count // 4, 1)
        t, x, x0 = _noised(self.large, number, key_pair)
        rows = jr.randint(key_row, (number,), 0, x.shape[1])
        directions = jr.normal(key_direction, (number, x.shape[2]))
        key_pair, key_count = jr.split(key_exact)
        pairs = _noised(self.small, count, key_pair)
        # Half of the clouds are whole, the others lack points.
        counts = jnp.minimum(jr.randint(key_count, (count,), 2, 2 * _SMALL), _SMALL)
        return (t, x, x0, rows, directions), (*pairs, counts)

    def __call__(self, model: Any, examples: Any, state: Any) -> tuple[Scalar, dict[str, Scalar]]:
        """The weighted sum."""
        zero, (large, small) = jnp.zeros(()), examples
        equation = _by_equation(model.matching, *large) if self.equation else zero
        score = _by_permanent(model.matching, *small) if self.exact else zero
        loss = self.equation * equation + self.exact * score
        return loss, dict(zip(self.names(), (equation, score), strict=True))


def _noised(clouds, number, key):
    """Times, log-uniform, and clouds with noise and without."""
    key_cloud, key_time, key_noise = jr.split(key, 3)
    x0 = clouds[jr.randint(key_cloud, (number,), 0, len(clouds))]
    t = times_between(_EARLIEST, _LATEST, number, key_time)
    return t, x0 + jnp.sqrt(2 * t)[:, None, None] * jr.normal(key_noise, x0.shape), x0


def _by_equation(matching, t, x, x0, rows, directions):
    """The mean square of the equation's residual relative to its terms."""
    one = lambda *args: row_residual(matching, *args)
    residual, variance = jax.vmap(one)(t, x, x0, rows, directions)
    size = 0.1 + jax.lax.stop_gradient(jnp.abs(variance))
    return jnp.mean((residual / size) ** 2)


def _by_permanent(matching, t, x, x0, counts):
    """The mean square of the error of the score relative to it."""

    def one(t, x, x0, count):
        present = jnp.arange(_SMALL) < count
        both = present[:, None] & present
        logits = -jnp.sum((x[:, None] - x0) ** 2, axis=-1) / (4 * t)
        alone = jnp.where(jnp.eye(_SMALL, dtype=bool), 0.0, permanents.NEVER)
        logits = jnp.where(both, logits, alone)
        true = jax.lax.stop_gradient(permanents.exact_posterior(logits))
        found = jax.grad(matching.of_logits)(logits, count.astype(x.dtype))
        score = jnp.where(present[:, None], true @ x0 - x, 0.0)
        error = jnp.where(present[:, None], (found - true) @ x0, 0.0)
        return jnp.sum(error**2) / jnp.sum(score**2)

    return jnp.mean(jax.vmap(one)(t, x, x0, counts))
