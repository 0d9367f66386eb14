r"""Recipes: how a network is made to solve the heat equation.

A recipe is a frozen value that cuts the work into stages of small steps.  A stage starts from what
the stages before it found, `begin`, and its data, `data`, do not change; `calor.solve` runs the
steps, shows progress, saves and resumes.

* `default`: calor's own.  A set network of some hundred parameters in float64 and
  Levenberg-Marquardt; on compact spaces in windows of time, on others in rounds of fresh points.
* `paper`: the paper's appendix B, a modified multilayer perceptron trained by Adam.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from . import calculus, collocation, levenberg
from ._checks import positive_integer
from ._types import Key
from .exact.combined import QuotientKernel
from .heat import AbstractHeatKernel
from .manifolds import AbstractManifold, AbstractQuotient, AbstractSymmetricSpace
from .networks import FourierEmbedding, PowerEmbedding, modified_mlp
from .shorttime import ZerothOrder, geodesic_random_walk, short_time_law
from .solutions import (
    AbstractSolution,
    DirectSolution,
    RadialSolution,
    Settling,
    Spreading,
    coordinate_count,
    normalized,
)


class Done(eqx.Module):
    """What the finished stages found."""

    parameters: Float[Array, "s p"]
    losses: Float[Array, " s"]


class AbstractRecipe(eqx.Module):
    """How to train; to write a new recipe, supply these methods."""

    precision: eqx.AbstractVar[str]
    """The floating point type to train in."""
    by_cover: eqx.AbstractVar[bool]
    """Whether a quotient is solved on its cover, by summing images, or itself."""

    @abstractmethod
    def check(self, manifold: AbstractManifold) -> None:
        """Raise if the recipe cannot solve on this manifold."""

    @abstractmethod
    def interval(self, manifold: Any) -> tuple[float, float]:
        """t0 and t1: below t0 the short-time law is used, beyond t1 nothing is promised."""

    @abstractmethod
    def law(self, manifold: Any) -> AbstractHeatKernel:
        """The short-time law at t0 and below."""

    @abstractmethod
    def stages(self, manifold: Any) -> list[int]:
        """The number of steps in each stage."""

    @abstractmethod
    def begin(self, manifold: Any, stage: int, done: Done, key: Key) -> Any:
        """The state at the beginning of a stage, a pytree of arrays."""

    @abstractmethod
    def data(self, manifold: Any, stage: int, done: Done, key: Key) -> Any:
        """The data of a stage."""

    @abstractmethod
    def advance(self, manifold: Any) -> Callable[[Any, Any], Any]:
        """A function that takes state and data of a stage to the state after one step."""

    @abstractmethod
    def parameters(self, state: Any) -> Float[Array, " p"]:
        """What to keep of a stage."""

    @abstractmethod
    def losses(self, state: Any) -> dict[str, Array]:
        """The terms of the loss."""

    @abstractmethod
    def solution(self, manifold: Any, done: Done) -> AbstractSolution:
        """What was learned."""


class Default(AbstractRecipe):
    """Small float64 networks and Levenberg-Marquardt; see `default` for the settings."""

    t0: float | None = eqx.field(static=True)
    t1: float | None = eqx.field(static=True)
    points: int = eqx.field(static=True)
    steps: int | None = eqx.field(static=True)
    rounds: int = eqx.field(static=True)
    starts: int = eqx.field(static=True)
    precision: str = eqx.field(static=True, default="float64")
    by_cover: bool = eqx.field(static=True, default=True)

    def check(self, manifold):
        """It needs kernel coordinates and, to set the mass to one, few of them if compact."""
        _check_space(manifold)
        if _has_cut_locus(manifold) and coordinate_count(manifold) > _MOST_COORDINATES:
            raise ValueError(
                f"solve: the kernel of {manifold} has {coordinate_count(manifold)} coordinates, "
                f"too many for a quadrature of its mass (at most {_MOST_COORDINATES}); a torus can "
                "be solved as a Product of circles, Torus(1)."
            )

    def interval(self, manifold):
        """From t0 on compact spaces, from zero on others."""
        t1 = self.t1 or (5.0 if len(manifold.grouping()) == 1 else 1.0)
        return (self.t0 or 0.1, t1) if _has_cut_locus(manifold) else (0.0, t1)

    def law(self, manifold: Any) -> Any:
        """With enough orders that its error at t0 is far below the one of the network."""
        return short_time_law(manifold, order=6)

    def stages(self, manifold):
        """On compact spaces one for each random start, then one for each window; else rounds."""
        steps = self.steps or (200 if _has_cut_locus(manifold) else 20)
        if not _has_cut_locus(manifold):
            return [steps] * self.rounds
        windows = len(self._edges(manifold)) - 1
        # The kernel becomes smoother: later windows need fewer steps.
        later = [max(steps // 2, 1)] * (windows - 2)
        return [max(steps // 4, 1)] * self.starts + [steps] * min(windows, 2) + later

    def begin(self, manifold, stage, done, key):
        """Random weights, the best of the random starts, or what the stage before found."""
        blocks = 2 if _has_cut_locus(manifold) else 1
        if stage == 0 or (blocks == 2 and stage < self.starts):
            parameters, _ = self._network(manifold, key)
        elif blocks == 2 and stage == self.starts:
            parameters = done.parameters[jnp.argmin(done.losses[:stage])]
        else:
            parameters = done.parameters[stage - 1]
        return levenberg.start(parameters, blocks)

    def data(self, manifold, stage, done, key):
        """Rows of the equation at collocation points and, on compact spaces, of initial values."""
        form, window = self._form(manifold), self._window(manifold, stage)
        edges = jnp.asarray(self._edges(manifold))
        start, end = edges[window], edges[window + 1]
        key_inside, key_initial = jr.split(key)
        first = jnp.where(start > 0, start, end / 200)
        t, y = collocation.points(manifold, self.points, first, end, key_inside)
        rows = [collocation.interior(form, t, y, start, end)]
        if isinstance(form, Settling):
            count = max(self.points // 4, 100)
            _, y = collocation.points(manifold, count, start, start, key_initial)
            if window == 0:
                values = collocation.initial_law(form, self.law(manifold), y, start, end)
            else:
                _, unravel = self._network(manifold, jr.key(0))
                before = unravel(done.parameters[stage - 1])
                values = collocation.initial_window(form, before, y, edges[window - 1 : window + 2])
            rows.append(values)
        return rows

    def advance(self, manifold):
        """A step of Levenberg-Marquardt."""
        _, unravel = self._network(manifold, jr.key(0))
        form = self._form(manifold)

        def equation(parameters, row):
            network = unravel(parameters)

            def u(t, y):
                return form.correction(network, t, y, row["start"], row["end"])

            change, slope = jax.grad(u, (0, 1))(row["t"], row["y"])
            basis = jnp.eye(len(slope), dtype=slope.dtype)
            laplacian = calculus.laplacian(lambda y: u(row["t"], y), row["y"], basis, row["drift"])
            residual = change - laplacian - jnp.sum(slope * slope) + row["base"]
            return row["weight"] * residual

        def initial(parameters, row):
            start, end = row["start"], row["end"]
            value = form.correction(unravel(parameters), start, row["y"], start, end)
            error = value - row["value"]
            return row["weight"] * jnp.where(row["beyond"], jnp.maximum(error, 0.0), error)

        blocks = [equation, initial] if isinstance(form, Settling) else [equation]
        return jax.jit(lambda state, rows: levenberg.advance(blocks, rows, state))

    def parameters(self, state):
        """The weights."""
        return state.parameters

    def losses(self, state):
        """Mean squares of the weighted residuals."""
        return dict(zip(("equation", "initial"), state.losses, strict=False))

    def solution(self, manifold, done):
        """The networks of all windows, or of the last round."""
        return normalized(self._solution(manifold, done, len(self._edges(manifold)) - 1))

    def _solution(self, manifold, done, windows):
        _, unravel = self._network(manifold, jr.key(0))
        last = self.starts + windows if _has_cut_locus(manifold) else self.rounds
        edges = self._edges(manifold)[: windows + 1]
        networks = jax.vmap(unravel)(done.parameters[last - windows : last])
        return RadialSolution(
            manifold, self._form(manifold), edges, networks, jnp.zeros((windows, 2))
        )

    def _edges(self, manifold):
        """Ends of the windows of time: each twice as long as the one before, the last longer."""
        t0, t1 = self.interval(manifold)
        if t0 == 0:
            return (0.0, t1)
        edges = [t0]
        while 3 * edges[-1] < t1:
            edges.append(2 * edges[-1])
        return (*edges, t1)

    def _window(self, manifold, stage):
        return max(stage - self.starts, 0) if _has_cut_locus(manifold) else 0

    def _network(self, manifold, key):
        return ravel_pytree(self._form(manifold).network(key))

    def _form(self, manifold):
        if _has_cut_locus(manifold):
            return Settling(manifold)
        # The size of the second order in time: half of what the first leaves of the equation.
        t1 = self.interval(manifold)[1]
        t, y = collocation.points(manifold, 256, jnp.asarray(t1 / 200), jnp.asarray(t1), jr.key(0))
        left = collocation.interior(Spreading(manifold, 1.0), t, y, jnp.zeros(()), jnp.ones(()))
        size = float(np.mean(np.abs(left["base"] / t))) / 2
        return Spreading(manifold, float(f"{max(size, 1e-3):.2g}"))


# The quadrature of the total mass has 20 nodes or more in each of so many coordinates.
_MOST_COORDINATES = 4


def _has_cut_locus(manifold):
    return math.isfinite(manifold.injectivity_radius())


def _cover(manifold: Any) -> Any:
    return manifold.cover if isinstance(manifold, AbstractQuotient) else manifold


def _check_space(manifold):
    if not isinstance(manifold, AbstractSymmetricSpace):
        raise ValueError(
            f"solve: {manifold} has no kernel coordinates. The recipes solve on Sphere, Torus, "
            "Hyperbolic, SPD and Euclidean, and on finite quotients and products of them."
        )


def default(
    *,
    t0: float | None = None,
    t1: float | None = None,
    points: int = 1200,
    steps: int | None = None,
    rounds: int = 6,
    starts: int = 2,
) -> Default:
    """calor's own recipe.

    Args:
        t0: where the network takes over from the short-time law on compact spaces (default 0.1);
            other spaces have none, the network is exact as t -> 0.
        t1: end of the solved interval (default 5, on SPD(n) 1).
        points: collocation points of a stage.
        steps: Levenberg-Marquardt steps of a stage (default 200 on compact spaces, else 20).
        rounds: sets of points on spaces without cut locus.
        starts: random starts on compact spaces, of which the best is kept.
    """
    counts = {"points": points, "rounds": rounds, "starts": starts}
    for name, value in counts.items() if steps is None else {**counts, "steps": steps}.items():
        positive_integer(value, name, "recipes.default")
    _check_times(t0, t1, "recipes.default")
    return Default(t0=t0, t1=t1, points=points, steps=steps, rounds=rounds, starts=starts)


def _check_times(t0, t1, owner):
    for name, value in {"t0": t0, "t1": t1}.items():
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{owner}: {name} must be positive and finite, got {value}.")
    if (t0 or 0.1) >= (t1 or math.inf):
        raise ValueError(f"{owner}: t0 must be below t1, got t0 = {t0 or 0.1} and t1 = {t1}.")


# The paper's recipe.


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
        _check_space(_cover(manifold))

    def interval(self, manifold):
        """[0.1, 5] and, on SPD(n), [0.1, 1]."""
        return self.t0, self.t1 or (1.0 if _is_set(manifold) else 5.0)

    def law(self, manifold: Any) -> AbstractHeatKernel:
        """The parametrix of third order, summed over images; on SPD(n) the zeroth order."""
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
        """None: every step draws its own points."""
        return ()

    def advance(self, manifold):
        """Some steps of Adam."""
        optimizer = self._optimizer()
        _, unravel = self._network(manifold, jr.key(0))
        origin = _cover(manifold).origin()
        law, (t0, t1) = self.law(manifold), self.interval(manifold)

        def point(t, key):
            return geodesic_random_walk(manifold, t, origin, key)

        def losses(weights, count, key):
            solution = unravel(weights)
            key_t, key_x, key_initial = jr.split(key, 3)
            # Time curriculum: the interval grows from t0 to t1 in the first half of the training.
            grown = jnp.minimum(2 * count / self.steps, 1.0)
            end = t0 * (t1 / t0) ** jnp.maximum(grown, 0.05)
            fraction = (jnp.arange(self.batch) + jr.uniform(key_t, (self.batch,))) / self.batch
            t = t0 * (end / t0) ** fraction
            x = jax.vmap(point)(t, jr.split(key_x, self.batch))
            residual = jax.vmap(lambda t, x: solution.terms(t, x, origin).residual())(t, x)
            # Causal weights: a slice of time counts once those before it are solved.
            slices = jnp.mean((t * residual).reshape(self._SLICES, -1) ** 2, axis=1)
            before = jnp.cumsum(slices) - slices
            causal = jax.lax.stop_gradient(jnp.exp(-self._CAUSALITY * before))
            start = jnp.full(self.batch // 4, t0)
            x = jax.vmap(point)(start, jr.split(key_initial, len(start)))
            error = jax.vmap(
                lambda x: (
                    solution.log_prob(start[0], x, origin) - law._log_prob(start[0], x, origin)
                )
            )(x)
            return jnp.stack([jnp.mean(causal * slices), jnp.mean(error**2)])

        def balanced(weights, count, key, balance):
            terms = losses(weights, count, key)
            return jnp.sum(balance * terms), terms

        def rebalance(state, key):
            jacobian = jax.jacrev(losses)(state.weights, state.count, key)
            norms = jnp.linalg.norm(jacobian, axis=1) + 1e-12
            return self._MEMORY * state.balance + (1 - self._MEMORY) * jnp.sum(norms) / norms

        def step(state, _):
            key, key_step = jr.split(jr.wrap_key_data(state.key))
            balance = jax.lax.cond(
                state.count % self._BALANCE_EVERY == 0,
                lambda: rebalance(state, key_step),
                lambda: state.balance,
            )
            gradient, terms = jax.grad(balanced, has_aux=True)(
                state.weights, state.count, key_step, balance
            )
            change, optimizer_state = optimizer.update(gradient, state.optimizer)
            weights = state.weights + change
            return (
                AdamState(
                    state.count + 1, jr.key_data(key), weights, optimizer_state, balance, terms
                ),
                None,
            )

        return jax.jit(lambda state, data: jax.lax.scan(step, state, None, self._CHUNK)[0])

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
        t0: where the network takes over from the short-time law.
        t1: end of the solved interval (default 5, on SPD(n) 1).
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
    _check_times(t0, t1, "recipes.paper")
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
