"""The paper's recipe, appendix B: a modified multilayer perceptron trained by Adam.

A soft initial condition at t0, losses balanced by moving averages of their gradient norms, causal
weights, and an interval of time that grows during the training.  On point clouds a network of pairs
of points, its initial law that of points with labels.
"""

import dataclasses
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float

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
from ...training.loop import AbstractLoss
from ...training.perceptrons import FourierEmbedding, PowerEmbedding, modified_mlp
from ...training.settings import Training
from ..forms.base import AbstractSolution
from ..forms.clouds import CloudSolution, pair_graph
from ..forms.direct import DirectSolution
from .base import AbstractDescent, AbstractPlan, AbstractRecipe, check_space, check_times

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

    def __post_init__(self):
        counts = {"width": self.width, "depth": self.depth, "steps": self.steps}
        for name, value in counts.items():
            positive_integer(value, name, "recipes.paper")
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
        entry = _SETTINGS.find(manifold)
        if entry is None:
            check_space(manifold.covering())
        assert entry is not None
        setting: AbstractSetting = entry.made(manifold)
        t0, t1 = min(self.t0, setting.latest_start), self.t1 or setting.end
        if t0 >= t1:
            raise ValueError(f"solve: t0 must be below t1, got t0 = {t0} and t1 = {t1}.")
        return PaperPlan(manifold, setting.law(), (t0, t1), self, setting)


# The paper's settings.


class AbstractSetting(eqx.Module):
    """What the paper does on a family of manifolds; registered for it."""

    manifold: eqx.AbstractVar[AbstractManifold]
    end: ClassVar[float]
    """Where the solved interval ends by default."""
    latest_start: ClassVar[float]
    """Where it starts at the latest."""

    @abstractmethod
    def law(self) -> AbstractHeatKernel:
        """The short-time law."""

    @abstractmethod
    def start(self, recipe: Paper, interval: tuple[float, float], key: Key) -> Any:
        """A solution with a random network."""

    @abstractmethod
    def part(self, solution: Any, /) -> Any:
        """What of it is trained."""


@_SETTINGS.register(PointCloud, covers=False)
class OfClouds(AbstractSetting):
    """A network of pairs of points."""

    manifold: PointCloud
    end: ClassVar[float] = 0.5
    latest_start: ClassVar[float] = 0.01

    def law(self):
        """That of points with labels."""
        return CloudKernel(self.manifold, Labelled())

    def start(self, recipe, interval, key):
        """A random graph."""
        _, _, key_network = jr.split(key, 3)
        return CloudSolution(self.manifold, pair_graph(key_network, _CLOUD_WIDTH, interval))

    def part(self, solution):
        """The matching."""
        return solution.matching


@_SETTINGS.register(
    AbstractSymmetricSpace, when=lambda space: space.has_unordered_coordinates(), covers=True
)
class OfSets(AbstractSetting):
    """The powers S_k and A_k of unordered coordinates."""

    manifold: AbstractSymmetricSpace
    end: ClassVar[float] = 1.0
    latest_start: ClassVar[float] = float("inf")

    def law(self):
        """The zeroth order."""
        return ZerothOrder(self.manifold)

    def start(self, recipe, interval, key):
        """Random exponents."""
        key_embedding, *keys = jr.split(key, 3)
        exponents = jr.uniform(key_embedding, (recipe.frequencies,), minval=1.0, maxval=5.0)
        return _direct(recipe, self.manifold, PowerEmbedding(exponents), interval, *keys)

    def part(self, solution):
        """All of it but the manifold."""
        return _direct_part(solution)


def _is_covered(manifold: AbstractManifold) -> bool:
    """Whether the law of the cover is known, to be summed over images."""
    entry = _SETTINGS.find(manifold.covering())
    return entry is not None and entry.facts["covers"]


@_SETTINGS.register(AbstractSymmetricSpace, covers=True)
class OfSpaces(AbstractSetting):
    """Fourier's embedding of a space in the flat one around it."""

    manifold: AbstractSymmetricSpace
    end: ClassVar[float] = 5.0
    latest_start: ClassVar[float] = float("inf")

    def law(self):
        """The parametrix of third order."""
        return short_time_law(self.manifold, order=3)

    def start(self, recipe, interval, key):
        """Random frequencies."""
        return _fourier(recipe, self.manifold, self.manifold, interval, key)

    def part(self, solution):
        """All of it but the manifold."""
        return _direct_part(solution)


@_SETTINGS.register(AbstractQuotient, when=_is_covered, covers=False)
class OfQuotients(AbstractSetting):
    """The mean of Fourier's embedding over the images of a point."""

    manifold: AbstractQuotient
    end: ClassVar[float] = 5.0
    latest_start: ClassVar[float] = float("inf")

    def law(self):
        """The one of the cover, summed over images."""
        entry = _SETTINGS.find(self.manifold.cover)
        assert entry is not None
        return QuotientKernel(self.manifold, entry.made(self.manifold.cover).law())

    def start(self, recipe, interval, key):
        """Random frequencies."""
        return _fourier(recipe, self.manifold, self.manifold.cover, interval, key)

    def part(self, solution):
        """All of it but the manifold."""
        return _direct_part(solution)


def _fourier(recipe, manifold, space, interval, key):
    """A random network of what is seen in the flat space around a manifold or its cover."""
    key_embedding, *keys = jr.split(key, 3)
    size = jax.eval_shape(lambda x: space.relative(x, x), space.origin()).size
    frequencies = 2.0 * jr.normal(key_embedding, (size, recipe.frequencies))
    return _direct(recipe, manifold, FourierEmbedding(frequencies), interval, *keys)


def _direct(recipe, manifold, embedding, interval, key_time, key_network):
    count = recipe.frequencies
    times = FourierEmbedding(2.0 * jr.normal(key_time, (1, count // 2)))
    inputs = 2 * count + 1 + 2 * (count // 2)
    network = modified_mlp(key_network, inputs, recipe.width, recipe.depth, recipe.factorize)
    return DirectSolution(manifold, embedding, times, network, *interval)


def _direct_part(solution):
    return solution.embedding, solution.time_embedding, solution.network


# The training.


class PaperPlan(AbstractDescent):
    """Adam with the losses of the paper."""

    manifold: AbstractManifold
    law: AbstractHeatKernel
    interval: tuple[float, float] = eqx.field(static=True)
    recipe: Paper = eqx.field(static=True)
    setting: AbstractSetting

    def start(self, key: Key) -> AbstractSolution:
        """A random network."""
        return self.setting.start(self.recipe, self.interval, key)

    def part(self, solution: Any, /) -> Any:
        """What of a solution is trained."""
        return self.setting.part(solution)

    def loss(self, key: Key) -> "PaperLoss":
        """The losses, from sources that are drawn once: the origin, or many clouds."""
        sources = self.manifold.sources(_SOURCES, key)
        setting, recipe = self.setting, self.recipe
        return PaperLoss(self.manifold, self.law, setting, sources, self.interval, recipe.steps)

    def training(self) -> Training:
        """Plain Adam, of which the last weights are kept."""
        recipe = self.recipe
        return Training(
            steps=recipe.steps,
            batch=recipe.batch,
            learning_rate=recipe.learning_rate,
            average=0.0,
            validate_every=recipe.steps,
            optimizer=_adam,
            # A point that float32 cannot hold, one in many thousands on SPD(10), is passed over.
            skip_nonfinite=True,
        )


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
    setting: AbstractSetting
    sources: Float[Array, "s ..."]
    interval: tuple[float, float] = eqx.field(static=True)
    steps: int = eqx.field(static=True)

    def names(self) -> tuple[str, ...]:
        """Both terms."""
        return "equation", "initial"

    def draw(self, count, step, key):
        """Ends of walks; the interval grows from t0 to t1 in the first half of the training."""
        key_t, key_x, key_initial = jr.split(key, 3)
        t0, t1 = self.interval
        end = t0 * (t1 / t0) ** jnp.clip(2 * step / self.steps, 0.05, 1.0)
        u = (jnp.arange(count) + jr.uniform(key_t, (count,))) / count
        t = t0 * (end / t0) ** u
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

    def begin(self):
        """Both count the same."""
        return jnp.ones(2)

    def adapt(self, state, model, examples, step):
        """Now and then a term counts more, the smaller its gradient is."""
        parameters, rest = trainable(model, self.setting.part)

        def balanced():
            slopes = jax.jacrev(lambda p: self._terms(eqx.combine(p, rest), examples))(parameters)
            squares = [jnp.sum(s.reshape(2, -1) ** 2, axis=1) for s in jax.tree.leaves(slopes)]
            norms = jnp.sqrt(sum(squares)) + 1e-12
            new = _MEMORY * state + (1 - _MEMORY) * jnp.sum(norms) / norms
            return jnp.where(jnp.all(jnp.isfinite(norms)), new, state)

        return jax.lax.cond(step % _BALANCE_EVERY == 0, balanced, lambda: state)

    def __call__(self, model, examples, state):
        """The balanced sum."""
        terms = self._terms(model, examples)
        return jnp.sum(state * terms), dict(zip(self.names(), terms, strict=True))
