"""The paper's recipe, appendix B: a modified multilayer perceptron trained by Adam.

A soft initial condition at t0, losses balanced by moving averages of their gradient norms, causal
weights, and an interval of time that grows during the training.  On point clouds a network of pairs
of points, its initial law that of points with labels.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int

from ...core.checks import positive_integer
from ...core.registry import Registry
from ...core.types import Key, Point, Scalar
from ...heat.clouds.kernel import CloudKernel
from ...heat.clouds.matchings import Labelled
from ...heat.combined import QuotientKernel
from ...heat.early.laws import ZerothOrder, short_time_law
from ...heat.kernel import AbstractHeatKernel
from ...manifolds import (
    AbstractManifold,
    AbstractQuotient,
    AbstractSymmetricSpace,
    PointCloud,
)
from ...training.fixed import trainable
from ...training.perceptrons import FourierEmbedding, PowerEmbedding, modified_mlp
from ...training.settings import Training
from ...training.steps import AbstractLoss
from ..forms.base import AbstractSolution
from ..forms.clouds import CloudSolution, pair_graph
from ..forms.direct import direct_solution
from ..forms.rows import times_between
from .base import AbstractDescent, AbstractPlan, AbstractRecipe, check_space, check_times, descent

# Clouds to start from, and units of a hidden layer of the network of pairs.
_SOURCES, _CLOUD_WIDTH = 1000, 64
# Steps between two balancings of the losses, the weight of the past in them, slices of time for the
# causal weights, and their steepness.
_BALANCE_EVERY, _MEMORY, _SLICES, _CAUSALITY = 100, 0.9, 16, 1.0

_SETTINGS = Registry("setting of the paper")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paper(AbstractRecipe):
    """The paper's recipe, appendix B; for a smaller budget lower width, steps and batch."""

    name: ClassVar[str] = "paper"
    by_cover: ClassVar[bool] = False

    t0: float = 0.1
    """Where the network takes over from the short-time law (on point clouds at most 0.01)."""
    t1: float | None = None
    """End of the solved interval (default 5, on SPD(n) 1, on point clouds 0.5)."""
    width: int = 256
    """Hidden units of a layer."""
    depth: int = 4
    """Number of hidden layers."""
    frequencies: int = 32
    """Number of Fourier frequencies, or of exponents k of S_k and A_k."""
    steps: int = 100_000
    """Steps of Adam."""
    batch: int = 1024
    """Collocation points of a step; a quarter as many initial points."""
    learning_rate: float = 1e-3
    """At the start of a cosine schedule."""
    factorize: bool = False
    """Whether to use random weight factorization."""

    def __post_init__(self) -> None:
        self.check_counts("width", "depth", "steps")
        positive_integer(self.frequencies, "frequencies", "recipes.paper", at_least=2)
        if positive_integer(self.batch, "batch", "recipes.paper", at_least=64) % _SLICES:
            raise ValueError(
                f"recipes.paper: batch must be a multiple of {_SLICES}, got {self.batch}."
            )
        check_times(self.t0, self.t1, "recipes.paper")
        object.__setattr__(self, "learning_rate", float(self.learning_rate))
        object.__setattr__(self, "factorize", bool(self.factorize))

    def plan(self, manifold: Any) -> AbstractPlan:
        """[0.1, 5], on SPD(n) [0.1, 1], on point clouds [0.01, 0.5].

        It embeds what is seen from x0, on a symmetric space or a quotient of one.
        """
        setting = _setting(manifold)
        t0, t1 = min(self.t0, setting.latest_start), self.t1 or setting.end
        if t0 >= t1:
            raise ValueError(f"solve: t0 must be below t1, got t0 = {t0} and t1 = {t1}.")
        return PaperPlan(manifold, setting.law, (t0, t1), self, setting.start)


# The paper's settings, by family of manifolds.


class Setting(NamedTuple):
    """What the paper does on a manifold."""

    law: AbstractHeatKernel
    """For short times."""
    start: Callable[[Paper, tuple[float, float], Key], AbstractSolution]
    """A solution with a random network, for a recipe and an interval."""
    end: float = 5.0
    """Where the solved interval ends by default."""
    latest_start: float = math.inf
    """Where it starts at the latest."""


@_SETTINGS.register(PointCloud, covers=False)
def _of_clouds(manifold: PointCloud) -> Setting:
    """A network of pairs of points; at first they have labels."""

    def start(recipe, interval, key):
        _, _, key_network = jr.split(key, 3)
        return CloudSolution(manifold, pair_graph(key_network, _CLOUD_WIDTH, interval))

    return Setting(CloudKernel(manifold, Labelled()), start, end=0.5, latest_start=0.01)


@_SETTINGS.register(
    AbstractSymmetricSpace, when=lambda space: space.has_unordered_coordinates(), covers=True
)
def _of_sets(manifold: AbstractSymmetricSpace) -> Setting:
    """The powers S_k and A_k of unordered coordinates; at first the zeroth order."""

    def embedding(count, key):
        return PowerEmbedding(jr.uniform(key, (count,), minval=1.0, maxval=5.0))

    return Setting(ZerothOrder(manifold), _direct(manifold, embedding), end=1.0)


@_SETTINGS.register(AbstractSymmetricSpace, covers=True)
def _of_spaces(manifold: AbstractSymmetricSpace) -> Setting:
    """Fourier's embedding of a space in the flat one around it; at first the third order."""
    return Setting(short_time_law(manifold, order=3), _direct(manifold, _fourier(manifold)))


def _is_covered(manifold: AbstractManifold) -> bool:
    """Whether the law of the cover is known, to be summed over images."""
    entry = _SETTINGS.find(manifold.covering())
    return entry is not None and entry.facts["covers"]


@_SETTINGS.register(AbstractQuotient, when=_is_covered, covers=False)
def _of_quotients(manifold: AbstractQuotient) -> Setting:
    """The mean of Fourier's embedding over the images of a point; at first the law of the cover."""
    law = _setting(manifold.cover).law
    start = _direct(manifold, _fourier(manifold.cover))
    return Setting(QuotientKernel(manifold, law), start)


def _setting(manifold: AbstractManifold) -> Setting:
    entry = _SETTINGS.find(manifold)
    if entry is None:
        check_space(manifold.covering())
    assert entry is not None
    return entry.made(manifold)


def _fourier(space):
    """Makes random frequencies of what is seen in the flat space around a space."""

    def embedding(count, key):
        size = jax.eval_shape(lambda x: space.relative(x, x), space.origin()).size
        return FourierEmbedding(2.0 * jr.normal(key, (size, count)))

    return embedding


def _direct(manifold, embedding):
    """Makes a random network of what is embedded, and of the time."""

    def start(recipe, interval, key):
        key_embedding, key_time, key_network = jr.split(key, 3)
        count = recipe.frequencies
        times = FourierEmbedding(2.0 * jr.normal(key_time, (1, count // 2)))
        inputs = 2 * count + 1 + 2 * (count // 2)
        network = modified_mlp(key_network, inputs, recipe.width, recipe.depth, recipe.factorize)
        return direct_solution(
            manifold,
            embedding=embedding(count, key_embedding),
            time_embedding=times,
            network=network,
            t0=interval[0],
            t1=interval[1],
        )

    return start


# The training.


class PaperPlan(AbstractDescent):
    """Adam with the losses of the paper."""

    manifold: AbstractManifold
    law: AbstractHeatKernel
    interval: tuple[float, float] = eqx.field(static=True)
    recipe: Paper = eqx.field(static=True)
    random: Callable[..., AbstractSolution] = eqx.field(static=True)
    """Makes a solution with a random network, see `Setting`."""

    def start(self, key: Key) -> AbstractSolution:
        """A random network."""
        return self.random(self.recipe, self.interval, key)

    def loss(self, key: Key) -> "PaperLoss":
        """The losses, from sources that are drawn once: the origin, or many clouds."""
        sources = self.manifold.sources(_SOURCES, key)
        return PaperLoss(self.manifold, self.law, sources, self.interval, self.recipe.steps)

    def training(self) -> Training:
        """Plain Adam, of which the last weights are kept."""
        return descent(self.recipe, average=0.0, optimizer=_adam)


def _adam(settings: Training) -> optax.GradientTransformation:
    return optax.adam(optax.cosine_decay_schedule(settings.learning_rate, settings.steps))


class Examples(NamedTuple):
    """Times, and pairs of points, where the equation and the initial value are looked at."""

    t: Float[Array, " n"]
    x: Float[Array, "n ..."]
    x0: Float[Array, "n ..."]
    x_initial: Float[Array, "m ..."]
    x0_initial: Float[Array, "m ..."]


class PaperLoss(AbstractLoss):
    """The equation with causal weights, and the initial value, balanced by their gradients.

    The balance holds the factors of both, moving averages of ratios of gradient norms.
    """

    manifold: AbstractManifold
    law: AbstractHeatKernel
    sources: Float[Array, "s ..."]
    interval: tuple[float, float] = eqx.field(static=True)
    steps: int = eqx.field(static=True)

    def names(self) -> tuple[str, ...]:
        """Both terms."""
        return "equation", "initial"

    def draw(self, count: int, step: Int[Array, ""], key: Key) -> Any:
        """Ends of walks; the interval grows from t0 to t1 in the first half of the training."""
        key_t, key_x, key_initial = jr.split(key, 3)
        t0, t1 = self.interval
        end = t0 * (t1 / t0) ** jnp.clip(2 * step / self.steps, 0.05, 1.0)
        t = times_between(t0, end, count, key_t)
        x, x0 = self._walks(t, key_x)
        return Examples(t, x, x0, *self._walks(jnp.full(count // 4, t0), key_initial))

    def _walks(self, t, key):
        def walk(t: Scalar, key: Key) -> tuple[Point, Point]:
            key_source, key_walk = jr.split(key)
            x0 = self.sources[jr.randint(key_source, (), 0, len(self.sources))]
            return self.manifold.walk(t, x0, key_walk), x0

        return jax.vmap(walk)(t, jr.split(key, len(t)))

    def _terms(self, solution, pairs):
        t, x, x0, *initial = pairs
        residual = jax.vmap(lambda *pair: solution.terms(*pair).residual())(t, x, x0)
        # Causal weights: a slice of time counts once those before it are solved.
        slices = jnp.mean((t * residual).reshape(_SLICES, -1) ** 2, axis=1)
        before = jnp.cumsum(slices) - slices
        causal = jax.lax.stop_gradient(jnp.exp(-_CAUSALITY * before))
        start = jnp.asarray(self.interval[0], t.dtype)

        def error(x, x0):
            return solution.log_prob(start, x, x0) - self.law.log_prob_at(start, x, x0)

        return jnp.stack([jnp.mean(causal * slices), jnp.mean(jax.vmap(error)(*initial) ** 2)])

    def begin(self) -> Any:
        """Both count the same."""
        return jnp.ones(2)

    def adapt(self, state: Any, model: Any, examples: Any, step: Int[Array, ""]) -> Any:
        """Now and then a term counts more, the smaller its gradient is."""
        parameters, rest = trainable(model, lambda solution: solution.trained())

        def balanced():
            slopes = jax.jacrev(lambda p: self._terms(eqx.combine(p, rest), examples))(parameters)
            squares = [jnp.sum(s.reshape(2, -1) ** 2, axis=1) for s in jax.tree.leaves(slopes)]
            norms = jnp.sqrt(sum(squares)) + 1e-12
            new = _MEMORY * state + (1 - _MEMORY) * jnp.sum(norms) / norms
            return jnp.where(jnp.all(jnp.isfinite(norms)), new, state)

        return jax.lax.cond(step % _BALANCE_EVERY == 0, balanced, lambda: state)

    def __call__(self, model: Any, examples: Any, state: Any) -> tuple[Scalar, dict[str, Scalar]]:
        """The balanced sum."""
        terms = self._terms(model, examples)
        return jnp.sum(state * terms), dict(zip(self.names(), terms, strict=True))
