"""The paper's recipe, appendix B: a modified multilayer perceptron trained by Adam.

A soft initial condition at t0, losses balanced by moving averages of their gradient norms, causal
weights, and an interval of time that grows during the training.  On point clouds a network of pairs
of points, its initial law that of points with labels.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from ...core.checks import positive_integer
from ...core.types import Key
from ...heat.clouds.kernel import CloudKernel
from ...heat.clouds.matchings import Labelled
from ...heat.combined import QuotientKernel
from ...heat.early.laws import ZerothOrder, short_time_law
from ...heat.kernel import AbstractHeatKernel
from ...manifolds import AbstractQuotient, AbstractSymmetricSpace, PointCloud
from ...training.perceptrons import FourierEmbedding, PowerEmbedding, modified_mlp
from ..forms.clouds import CloudSolution, pair_graph
from ..forms.direct import DirectSolution
from .base import AbstractRecipe, check_space, check_times

# Clouds to start from, and units of a hidden layer of the network of pairs.
_SOURCES, _CLOUD_WIDTH = 1000, 64


class AdamState(eqx.Module):
    """The state of the paper's recipe."""

    count: Int[Array, ""]
    key: Key
    weights: Float[Array, " p"]
    optimizer: Any
    balance: Float[Array, " 2"]
    """Factors of the two losses, moving averages of ratios of gradient norms."""
    terms: Float[Array, " 2"]
    """The losses of the last step."""


class Paper(AbstractRecipe):
    """The recipe of the paper's appendix B; see `paper` for the settings."""

    t0: float = eqx.field(static=True)
    t1: float | None = eqx.field(static=True)
    width: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    frequencies: int = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    batch: int = eqx.field(static=True)
    learning_rate: float = eqx.field(static=True)
    factorize: bool = eqx.field(static=True)
    precision: str = eqx.field(static=True, default="float32")
    by_cover: bool = eqx.field(static=True, default=False)

    # Steps of Adam in one compiled call, steps between two balancings of the losses, the weight of
    # the past in them, slices of time for the causal weights, and their steepness.
    _CHUNK, _BALANCE_EVERY, _MEMORY, _SLICES, _CAUSALITY = 50, 100, 0.9, 16, 1.0

    def check(self, manifold):
        """It embeds what is seen from x0, on a symmetric space or a quotient of one."""
        if not isinstance(manifold, PointCloud):
            check_space(_cover(manifold))
        t0, t1 = self.interval(manifold)
        if t0 >= t1:
            raise ValueError(f"solve: t0 must be below t1, got t0 = {t0} and t1 = {t1}.")

    def interval(self, manifold):
        """[0.1, 5], on SPD(n) [0.1, 1], on point clouds [0.01, 0.5]."""
        if isinstance(manifold, PointCloud):
            return min(self.t0, 0.01), self.t1 or 0.5
        return self.t0, self.t1 or (1.0 if _is_set(manifold) else 5.0)

    def law(self, manifold: Any) -> AbstractHeatKernel:
        """The parametrix of third order, summed over images; on SPD(n) the zeroth order."""
        if isinstance(manifold, PointCloud):
            return CloudKernel(manifold, Labelled())
        if isinstance(manifold, AbstractQuotient):
            return QuotientKernel(manifold, self.law(manifold.cover))
        return ZerothOrder(manifold) if _is_set(manifold) else short_time_law(manifold, order=3)

    def stages(self, manifold):
        """One stage."""
        return [-(-self.steps // self._CHUNK)]

    def begin(self, manifold, stage, done, key):
        """Random weights."""
        key_network, key_steps = jr.split(key)
        weights, _ = self._network(manifold, key_network)
        optimizer = self._optimizer().init(weights)
        ones = jnp.ones(2)
        return AdamState(jnp.asarray(0), jr.key_data(key_steps), weights, optimizer, ones, ones)

    def data(self, manifold, stage, done, key):
        """The sources: the origin, or many clouds.  Points are drawn at every step."""
        if isinstance(manifold, PointCloud):
            return jnp.asarray(manifold.grown(_SOURCES, key), jnp.float32)
        return _cover(manifold).origin()[None]

    def advance(self, manifold):
        """Some steps of Adam."""
        optimizer = self._optimizer()
        _, unravel = self._network(manifold, jr.key(0))
        law, (t0, t1) = self.law(manifold), self.interval(manifold)

        def pair(sources, t, key):
            key_source, key_walk = jr.split(key)
            x0 = sources[jr.randint(key_source, (), 0, len(sources))]
            return manifold.walk(t, x0, key_walk), x0

        def losses(weights, sources, count, key):
            solution = unravel(weights)
            key_t, key_x, key_initial = jr.split(key, 3)
            # Time curriculum: the interval grows from t0 to t1 in the first half of the training.
            grown = jnp.minimum(2 * count / self.steps, 1.0)
            end = t0 * (t1 / t0) ** jnp.maximum(grown, 0.05)
            fraction = (jnp.arange(self.batch) + jr.uniform(key_t, (self.batch,))) / self.batch
            t = t0 * (end / t0) ** fraction
            pairs = jax.vmap(lambda t, key: pair(sources, t, key))
            x, x0 = pairs(t, jr.split(key_x, self.batch))
            residual = jax.vmap(lambda t, x, x0: solution.terms(t, x, x0).residual())(t, x, x0)
            # Causal weights: a slice of time counts once those before it are solved.
            slices = jnp.mean((t * residual).reshape(self._SLICES, -1) ** 2, axis=1)
            before = jnp.cumsum(slices) - slices
            causal = jax.lax.stop_gradient(jnp.exp(-self._CAUSALITY * before))
            start = jnp.full(self.batch // 4, t0)
            x, x0 = pairs(start, jr.split(key_initial, len(start)))
            error = jax.vmap(
                lambda x, x0: solution.log_prob(start[0], x, x0) - law.log_prob_at(start[0], x, x0)
            )(x, x0)
            return jnp.stack([jnp.mean(causal * slices), jnp.mean(error**2)])

        def balanced(weights, sources, count, key, balance):
            terms = losses(weights, sources, count, key)
            return jnp.sum(balance * terms), terms

        def rebalance(state, sources, key):
            jacobian = jax.jacrev(losses)(state.weights, sources, state.count, key)
            norms = jnp.linalg.norm(jacobian, axis=1) + 1e-12
            new = self._MEMORY * state.balance + (1 - self._MEMORY) * jnp.sum(norms) / norms
            return jnp.where(jnp.all(jnp.isfinite(norms)), new, state.balance)

        def step(state, sources):
            key, key_step = jr.split(jr.wrap_key_data(state.key))
            balance = jax.lax.cond(
                state.count % self._BALANCE_EVERY == 0,
                lambda: rebalance(state, sources, key_step),
                lambda: state.balance,
            )
            gradient, terms = jax.grad(balanced, has_aux=True)(
                state.weights, sources, state.count, key_step, balance
            )
            # A point that float32 cannot hold, one in many thousands on SPD(10), is passed over.
            gradient = jnp.where(jnp.all(jnp.isfinite(gradient)), gradient, 0.0)
            terms = jnp.where(jnp.isfinite(terms), terms, state.terms)
            change, optimizer_state = optimizer.update(gradient, state.optimizer)
            weights = state.weights + change
            return (
                AdamState(
                    state.count + 1, jr.key_data(key), weights, optimizer_state, balance, terms
                ),
                None,
            )

        @jax.jit
        def chunk(state, sources):
            return jax.lax.scan(lambda state, _: step(state, sources), state, None, self._CHUNK)[0]

        return chunk

    def parameters(self, state):
        """The weights."""
        return state.weights

    def losses(self, state):
        """Mean squares."""
        return {"equation": state.terms[0], "initial": state.terms[1]}

    def solution(self, manifold, done):
        """The network."""
        _, unravel = self._network(manifold, jr.key(0))
        return unravel(done.parameters[0])

    def _optimizer(self):
        return optax.adam(optax.cosine_decay_schedule(self.learning_rate, self.steps))

    def _network(self, manifold, key):
        key_embedding, key_time, key_network = jr.split(key, 3)
        if isinstance(manifold, PointCloud):
            graph = pair_graph(key_network, _CLOUD_WIDTH, self.interval(manifold))
            return ravel_pytree(CloudSolution(manifold, graph))
        count = self.frequencies
        if _is_set(manifold):
            embedding = PowerEmbedding(jr.uniform(key_embedding, (count,), minval=1.0, maxval=5.0))
        else:
            space = _cover(manifold)
            size = jax.eval_shape(lambda x: space.relative(x, x), space.origin()).size
            embedding = FourierEmbedding(2.0 * jr.normal(key_embedding, (size, count)))
        time_embedding = FourierEmbedding(2.0 * jr.normal(key_time, (1, count // 2)))
        inputs = 2 * count + 1 + 2 * (count // 2)
        network = modified_mlp(key_network, inputs, self.width, self.depth, self.factorize)
        solution = DirectSolution(
            manifold, embedding, time_embedding, network, *self.interval(manifold)
        )
        return ravel_pytree(solution)


def _cover(manifold: Any) -> Any:
    return manifold.cover if isinstance(manifold, AbstractQuotient) else manifold


def _is_set(manifold):
    """Whether kernel coordinates are unordered and more than the angles of a torus."""
    return isinstance(manifold, AbstractSymmetricSpace) and len(manifold.grouping()) > 1


def paper(
    *,
    t0: float = 0.1,
    t1: float | None = None,
    width: int = 256,
    depth: int = 4,
    frequencies: int = 32,
    steps: int = 100_000,
    batch: int = 1024,
    learning_rate: float = 1e-3,
    factorize: bool = False,
) -> Paper:
    """The paper's recipe, appendix B; for a smaller budget lower width, steps and batch.

    Args:
        t0: where the network takes over from the short-time law (on point clouds at most 0.01).
        t1: end of the solved interval (default 5, on SPD(n) 1, on point clouds 0.5).
        width: hidden units of a layer.
        depth: number of hidden layers.
        frequencies: number of Fourier frequencies, or of exponents k of S_k and A_k.
        steps: steps of Adam.
        batch: collocation points of a step; a quarter as many initial points.
        learning_rate: at the start of a cosine schedule.
        factorize: whether to use random weight factorization.
    """
    counts = {"width": width, "depth": depth, "steps": steps}
    for name, value in counts.items():
        positive_integer(value, name, "recipes.paper")
    positive_integer(frequencies, "frequencies", "recipes.paper", at_least=2)
    if positive_integer(batch, "batch", "recipes.paper", at_least=64) % 16:
        raise ValueError(f"recipes.paper: batch must be a multiple of 16, got {batch}.")
    check_times(t0, t1, "recipes.paper")
    return Paper(
        t0=t0,
        t1=t1,
        width=width,
        depth=depth,
        frequencies=frequencies,
        steps=steps,
        batch=batch,
        learning_rate=float(learning_rate),
        factorize=bool(factorize),
    )
