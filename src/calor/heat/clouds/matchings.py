r"""Which point became which: the posterior over matchings of two clouds, exact or approximate.

The heat kernel of clouds of n points modulo permutations is a permanent,

    p(t, x | x0) = (4 pi t)^(-d/2) perm(e^L),   L_ij = -|x_i - x0_j|^2 / 4t,

(equation heat-perm of the paper), and its score is that of every point alone, pulled toward the
mean of where it may have come from, (sum_j P_ij x0_j - x_i) / 2t with P_ij = d log perm / d L_ij.
A matching is a way to compute log perm and P from the squared distances and t.

`Learned` is calor's own.  Scaling rows and columns of e^L changes perm by known factors, so what
is left to learn is a function of one doubly stochastic matrix, Sinkhorn's P:

    log perm = -sum f - sum g + log perm(P).

log perm(P) is zero for a permutation (t -> 0) and log(n!/n^n) for the uniform matrix (t -> inf);
both are kept by construction,

    log perm(P) = mean over rows and columns of  sum_i h(s_i) + (1 - s_i)(s_i - 1/n) N_i,

with s_i = sum_j P_ij^2, h(1/m) = log(m!)/m - log m as if every point were confused with 1/s_i
others equally, and N a network of P that rows and columns pass messages through.  Nothing is said
of space: translations, rotations, relabelings of either cloud and their exchange change nothing.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ...core.types import Key, Point, Scalar, Tangent
from ...manifolds import PointCloud
from ...store.stored import stored
from ...training.dense import Dense, dense
from . import permanents

Matrix = Float[Array, "n n"]


class AbstractMatching(eqx.Module):
    """How to sum over permutations; a new way supplies both methods, for one pair of clouds."""

    @abstractmethod
    def log_permanent(self, t: Scalar, squared: Matrix, count: Scalar) -> Scalar:
        """log perm(e^L).

        Args:
            t: the time.
            squared: the squared distances of the points of x (rows) and x0 (columns); those of
                absent points are zero to themselves and huge to all others.
            count: the number of points that are present.
        """

    @abstractmethod
    def posterior(self, t: Scalar, squared: Matrix, count: Scalar) -> Matrix:
        """P: the probability that point i of x was point j of x0."""

    def join(self, manifold: PointCloud, x: Point, y: Point) -> Tangent:
        """The velocity at x of the path to y: points go where they match best."""
        return manifold.log_at(x, y)


@stored("Labelled")
class Labelled(AbstractMatching):
    """Points keep their labels: no quotient at all, plain Brownian motion of all coordinates.

    The initial law of the paper's network, and the noise of EDM.
    """

    def log_permanent(self, t: Scalar, squared: Matrix, count: Scalar) -> Scalar:
        """The trace of L."""
        return jnp.trace(_logits(t, squared))

    def posterior(self, t: Scalar, squared: Matrix, count: Scalar) -> Matrix:
        """The identity."""
        return jnp.eye(len(squared), dtype=squared.dtype)

    def join(self, manifold: PointCloud, x: Point, y: Point) -> Tangent:
        """Points go to those in the same place of the list."""
        return y - x


@stored("Exact")
class Exact(AbstractMatching):
    """Dynamic programming over subsets."""

    def log_permanent(self, t: Scalar, squared: Matrix, count: Scalar) -> Scalar:
        """Exact."""
        return permanents.exact(_logits(t, squared))

    def posterior(self, t: Scalar, squared: Matrix, count: Scalar) -> Matrix:
        """Exact."""
        return permanents.exact_posterior(_logits(t, squared))


@stored("Sinkhorn")
class Sinkhorn(AbstractMatching):
    """The doubly stochastic matrix that e^L is scaled to; log perm is an upper bound."""

    def log_permanent(self, t: Scalar, squared: Matrix, count: Scalar) -> Scalar:
        """An upper bound, exact as t -> 0."""
        return permanents.sinkhorn(_logits(t, squared))[0]

    def posterior(self, t: Scalar, squared: Matrix, count: Scalar) -> Matrix:
        """Sinkhorn's matrix."""
        return permanents.sinkhorn(_logits(t, squared))[1]


@stored("Bethe")
class Bethe(AbstractMatching):
    """Belief propagation; log perm is a lower bound."""

    iterations: int = eqx.field(static=True, default=100)

    def log_permanent(self, t: Scalar, squared: Matrix, count: Scalar) -> Scalar:
        """A lower bound, exact as t -> 0."""
        return permanents.bethe(_logits(t, squared), self.iterations)[0]

    def posterior(self, t: Scalar, squared: Matrix, count: Scalar) -> Matrix:
        """The beliefs."""
        return permanents.bethe(_logits(t, squared), self.iterations)[1]


@stored("Learned")
class Learned(AbstractMatching):
    """Sinkhorn's matrix and a learned function of it; see the module."""

    network: "MatchingNetwork"

    def log_permanent(self, t: Scalar, squared: Matrix, count: Scalar) -> Scalar:
        """Exact as t -> 0 and as t -> infinity."""
        return self.of_logits(_logits(t, squared), count)

    def posterior(self, t: Scalar, squared: Matrix, count: Scalar) -> Matrix:
        """The derivative."""
        return jax.grad(self.of_logits)(_logits(t, squared), count)

    def of_logits(self, logits: Matrix, count: Scalar) -> Scalar:
        """log perm(e^L)."""
        bound, matching = permanents.sinkhorn(logits)
        network = jax.tree.map(lambda a: a.astype(logits.dtype), self.network)
        return bound + _known(matching) + network(matching, count)


def _logits(t, squared):
    return jnp.maximum(-squared / (4 * t), permanents.NEVER)


def _known(matching):
    """The sum of h over rows and columns, halved."""
    squares = matching**2
    both = jnp.concatenate([jnp.sum(squares, axis=0), jnp.sum(squares, axis=1)])
    return jnp.sum(_confusion(both)) / 2


def _confusion(s):
    """h: log(m!)/m - log m at s = 1/m, by Stirling's series; zero at one, -log(2)/2 at a half.

    The last two coefficients, -1/360 and 1/1260 in the series, make these two values exact.
    """
    return -1 + s / 2 * jnp.log(2 * jnp.pi / s) + s**2 / 12 - 0.0026921 * s**4 + 0.0004202 * s**6


@stored("MatchingNetwork")
class MatchingNetwork(eqx.Module):
    """A function of a doubly stochastic matrix: rows and columns exchange messages.

    Rows and columns are treated alike, so that a matrix and its transpose have the same value.
    Messages are weighted by P: points that nothing is confused with neither send nor change.
    """

    start: Dense
    messages: tuple[Dense, ...]
    updates: tuple[Dense, ...]
    out: Dense

    def __call__(self, matching: Matrix, count: Scalar) -> Scalar:
        """The sum over rows and columns, halved."""
        powers = matching, matching**2, matching @ matching.T @ matching
        rows = self._begin(powers, count)
        columns = self._begin([power.T for power in powers], count)
        edges = jnp.stack(powers, axis=-1)
        for message, update in zip(self.messages, self.updates, strict=True):
            rows, columns = (
                self._pass(message, update, matching, edges, rows, columns),
                self._pass(message, update, matching.T, edges.swapaxes(0, 1), columns, rows),
            )
        squares = matching**2
        return (
            self._total(rows, jnp.sum(squares, axis=1), count)
            + self._total(columns, jnp.sum(squares, axis=0), count)
        ) / 2

    def _begin(self, powers, count):
        matching, squares, triple = powers
        features = [
            jnp.sum(squares, axis=1),
            jnp.sum(matching * squares, axis=1),
            jnp.sum(matching * triple, axis=1),
            -jnp.sum(matching * jnp.log(matching + 1e-8), axis=1),
            jnp.broadcast_to(1 / count, (len(matching),)).astype(matching.dtype),
        ]
        return jnp.tanh(self.start(jnp.stack(features, axis=-1)))

    def _pass(self, message, update, matching, edges, here, there):
        size = here.shape[-1]
        own, other, edge = jnp.split(message.weight, [size, 2 * size])
        inner = (here @ own + message.bias)[:, None] + there @ other + edges @ edge
        received = jnp.einsum("ij,ijd->id", matching, jnp.tanh(inner))
        return here + jnp.tanh(update(jnp.concatenate([here, received], axis=-1)))

    def _total(self, states, squares, count):
        return jnp.sum((1 - squares) * (squares - 1 / count) * self.out(states)[:, 0])


def matching_network(key: Key, width: int = 32, depth: int = 2) -> MatchingNetwork:
    """A random network; its output starts small."""
    keys = jr.split(key, 2 * depth + 2)
    out = dense(keys[1], width, 1, spread=0.0)
    return MatchingNetwork(
        dense(keys[0], 5, width),
        tuple(dense(k, 2 * width + 3, width) for k in keys[2 : 2 + depth]),
        tuple(dense(k, 2 * width, width) for k in keys[2 + depth :]),
        Dense(0.1 * out.weight, out.bias),
    )
