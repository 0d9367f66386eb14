r"""Solutions of the log heat equation: how log p is written in terms of a network.

Everything a solution does not know is in its network; all else is exact.  Three ways to write it:

* `Spreading`, for spaces without cut locus.  The short-time law of first order is taken out,

      log p = log G_t - (1/2) log D + t u_1/u_0 + t^2/(1 + t) N(t, y),

  so the initial error is zero at t = 0, not small at some t0.

* `Settling`, for compact spaces, where p tends to the uniform law at the rate of the first
  eigenvalue lambda,

      log p = -log vol + w(t) N(t, y),     w = lambda / (4 (e^(lambda t) - 1)).

  w makes N of order one at all times: w N ~ -dist^2/4t early, ~ e^(-lambda t) late.

* `DirectSolution`, the paper's: log p = N(t, x), the network of its appendix B.

The first two are written in kernel coordinates y, and their network may change from one window of
time to the next.
"""

from abc import abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from . import calculus
from ._types import Key, Point, Scalar, Tangent
from .manifolds import AbstractManifold, AbstractQuotient, AbstractSymmetricSpace
from .networks import FourierEmbedding, ModifiedMLP, PowerEmbedding, SetNetwork, set_network
from .shorttime import FirstOrder


class Terms(eqx.Module):
    """The three terms of the log heat equation at one point."""

    change: Scalar
    """d phi / dt"""
    laplacian: Scalar
    """Delta phi"""
    squared_slope: Scalar
    """|grad phi|^2"""

    def residual(self) -> Scalar:
        """How far the equation is from being solved."""
        return self.change - self.laplacian - self.squared_slope

    def normalized_residual(self) -> Scalar:
        """|residual| over the largest term, as the paper's table has it."""
        terms = jnp.stack([self.change, self.laplacian, self.squared_slope])
        return jnp.abs(self.residual()) / jnp.max(jnp.abs(terms))


class AbstractSolution(eqx.Module):
    """log p(t, x | x0) as learned, for t between the ends of the solved interval."""

    manifold: eqx.AbstractVar[AbstractManifold]

    @abstractmethod
    def log_prob(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        """log p."""

    @abstractmethod
    def log_prob_and_score(self, t: Scalar, x: Point, x0: Point) -> tuple[Scalar, Tangent]:
        """log p, and its Riemannian gradient in x."""

    def score(self, t: Scalar, x: Point, x0: Point) -> Tangent:
        """The Riemannian gradient of log p in x."""
        return self.log_prob_and_score(t, x, x0)[1]

    def terms(self, t: Scalar, x: Point, x0: Point) -> Terms:
        """The terms of the log heat equation, by automatic differentiation."""
        phi, frame = lambda x: self.log_prob(t, x, x0), self.manifold.frame(x)
        slope = calculus.gradient(phi, x, frame)
        drift = self.manifold.coordinate_laplacian(x)
        return Terms(
            jax.grad(self.log_prob)(t, x, x0),
            calculus.laplacian(phi, x, frame, drift),
            self.manifold._inner(x, slope, slope),
        )


# Solutions in kernel coordinates.


class AbstractForm(eqx.Module):
    """log p = base + correction, the correction being written in terms of a set network."""

    manifold: eqx.AbstractVar[AbstractSymmetricSpace]

    @abstractmethod
    def network(self, key: Key) -> SetNetwork:
        """A random network of the size that this form needs."""

    @abstractmethod
    def log_mass(self, phi: Callable[[Scalar, Float[Array, " k"]], Scalar], t: Scalar) -> Scalar:
        """How much to take off phi for exp(phi) to have unit mass.

        The equation does not see a constant added to log p.
        """

    @abstractmethod
    def base(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """The part that is known."""

    @abstractmethod
    def correction(
        self, network: SetNetwork, t: Scalar, y: Float[Array, " k"], start: Scalar, end: Scalar
    ) -> Scalar:
        """The part that is learned, in the window of time from `start` to `end`."""


class Spreading(AbstractForm):
    """Brownian motion that never settles; exact as t -> 0."""

    manifold: AbstractSymmetricSpace
    scale: float = eqx.field(static=True)
    """The size of the second order in time, so that N is of order one."""

    def network(self, key):
        """Two layers are enough: the correction is smooth."""
        return _set_network(self.manifold, (16,), (16,), key)

    def log_mass(self, phi, t):
        """Zero: the initial value is exact, and the equation keeps the mass."""
        return jnp.zeros_like(t)

    def base(self, t, y):
        """The law of first order."""
        gaussian = -jnp.sum(y * y) / (4 * t) - self.manifold.dim / 2 * jnp.log(4 * jnp.pi * t)
        return gaussian + FirstOrder(self.manifold)._correction(t, y)

    def correction(self, network, t, y, start, end):
        """scale t^2/(1 + t) N(t, y)."""
        bounded = t / (t + end / 4)  # N is smooth at t = 0
        value = network(*_items(self.manifold, y), (2.5 * bounded - 1)[None])
        return self.scale * t**2 / (1 + t) * value


class Settling(AbstractForm):
    """Brownian motion that becomes uniform on a compact space."""

    manifold: AbstractSymmetricSpace

    def network(self, key):
        """Three layers, for the sharp bend at the cut locus early on."""
        return _set_network(self.manifold, (16, 16), (16,), key)

    def log_mass(self, phi, t):
        """log of the integral of exp(phi), by quadrature in kernel coordinates."""
        y, weights = _uniform_quadrature(self.manifold)
        values = jax.vmap(lambda y: phi(t, y))(jnp.asarray(y, t.dtype))
        vanishing = values - self.base(t, jnp.zeros(1, t.dtype))
        return logsumexp(vanishing, b=jnp.asarray(weights, t.dtype))

    def base(self, t, y):
        """The uniform law."""
        return -self.manifold.log_volume().astype(t.dtype)  # pyright: ignore

    def correction(self, network, t, y, start, end):
        """w(t) N(t, y)."""
        inside = 2 * jnp.log(jnp.minimum(t, end) / start) / jnp.log(end / start) - 1
        value = network(*_items(self.manifold, y), inside[None])
        return self.weight(t) * value

    def weight(self, t: Scalar) -> Scalar:
        """w(t)."""
        rate = self.manifold.spectral_gap()
        return rate / (4 * jnp.expm1(rate * t))


def coordinate_count(manifold: AbstractSymmetricSpace) -> int:
    """The number k of kernel coordinates."""
    origin = jax.eval_shape(manifold.origin)
    return jax.eval_shape(lambda x: manifold.kernel_coordinates(x, x), origin).size


def _set_network(manifold, item_widths, group_widths, key):
    y = jax.ShapeDtypeStruct((coordinate_count(manifold),), float)
    features = jax.eval_shape(manifold.invariants, y).shape[1]
    return set_network(key, features, len(manifold.grouping()), 1, item_widths, group_widths)


def _uniform_quadrature(manifold):
    """Gauss-Legendre points y and weights of the uniform law, for even functions of few y."""
    count = coordinate_count(manifold)
    nodes = min(64, int(2e5 ** (1 / count)))
    x, weights = np.polynomial.legendre.leggauss(nodes)
    axis = (x + 1) / 2 * manifold.injectivity_radius()
    y = np.stack(np.meshgrid(*[axis] * count, indexing="ij"), -1).reshape(-1, count)
    product = np.prod(np.stack(np.meshgrid(*[weights] * count)), axis=0).ravel()
    area = np.asarray(jax.vmap(lambda y: jnp.exp(manifold.log_area(y)))(jnp.asarray(y)))
    return y, product * area / np.sum(product * area)


def _items(manifold, y):
    return manifold.invariants(y), jnp.asarray(manifold.grouping(), y.dtype)


def in_window(
    edges: tuple[float, ...], stacked: Any, t: Scalar
) -> tuple[Any, tuple[Scalar, Scalar]]:
    """Of arrays with a row for each window of time those of the window of t, and its ends."""
    ends = jnp.asarray(edges, t.dtype)
    index = jnp.sum(t > ends[1:-1]) if len(edges) > 2 else 0
    chosen = jax.tree.map(lambda a: a[index].astype(t.dtype), stacked)
    return chosen, (ends[index], ends[index + 1])


class RadialSolution(AbstractSolution):
    """A solution in kernel coordinates y, with one network for each window of time."""

    manifold: AbstractSymmetricSpace
    form: AbstractForm
    edges: tuple[float, ...] = eqx.field(static=True)
    """The ends of the windows of time, increasing."""
    networks: SetNetwork
    """Their networks, stacked along the first axis."""
    log_masses: Float[Array, "w 2"]
    """What is taken off at both ends of each window, so that the mass is one."""

    def phi(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """log p in kernel coordinates."""
        return self.form.base(t, y) + self._correction(t, y)

    def _correction(self, t, y):
        (network, log_masses), (start, end) = in_window(
            self.edges, (self.networks, self.log_masses), t
        )
        correction = self.form.correction(network, t, y, start, end)
        first, last = log_masses
        fraction = jnp.clip((t - start) / (end - start), 0.0, 1.0)
        return correction - (first + fraction * (last - first))

    def log_prob(self, t, x, x0):
        """log p."""
        return self.phi(t, self.manifold.kernel_coordinates(x, x0))

    def log_prob_and_score(self, t, x, x0):
        """The gradient in y, which the manifold carries to x in closed form."""
        y, lift = self.manifold.lifted_coordinates(x, x0)
        value, slope = jax.value_and_grad(self.phi, 1)(t, y)
        return value, lift(slope)

    def terms(self, t, x, x0):
        """The terms of the equation, in kernel coordinates."""
        return radial_terms(self.phi, self.manifold, t, self.manifold.kernel_coordinates(x, x0))


def normalized(solution: RadialSolution) -> RadialSolution:
    """The solution with its mass at the ends of its windows set to one."""
    form = solution.form

    def log_masses(network, ends):
        def phi(t, y):
            return form.base(t, y) + form.correction(network, t, y, *ends)

        return jnp.stack([form.log_mass(phi, t) for t in ends])

    ends = jnp.asarray(list(pairwise(solution.edges)))
    masses = jax.vmap(log_masses)(solution.networks, ends)
    return eqx.tree_at(lambda s: s.log_masses, solution, masses)


def radial_terms(
    phi: Callable[[Scalar, Float[Array, " k"]], Scalar],
    manifold: AbstractSymmetricSpace,
    t: Scalar,
    y: Float[Array, " k"],
) -> Terms:
    """The terms of the log heat equation for a function of kernel coordinates."""
    basis, drift = jnp.eye(len(y), dtype=y.dtype), jax.grad(manifold.log_area)(y)
    slope = jax.grad(phi, 1)(t, y)
    laplacian = calculus.laplacian(lambda y: phi(t, y), y, basis, drift)
    return Terms(jax.grad(phi)(t, y), laplacian, jnp.sum(slope * slope))


# The paper's solution.


class DirectSolution(AbstractSolution):
    """log p = N(embedding of x as seen from x0, embedding of t).

    The embedding is Fourier's in the flat space around the manifold, averaged over the images of
    x0 on a quotient, or, for unordered kernel coordinates, the powers S_k and A_k.
    """

    manifold: AbstractManifold
    embedding: FourierEmbedding | PowerEmbedding
    time_embedding: FourierEmbedding
    network: ModifiedMLP
    t0: float = eqx.field(static=True)
    t1: float = eqx.field(static=True)

    def phi(self, t: Scalar, features: Float[Array, " f"]) -> Scalar:
        """log p as a function of time and embedded coordinates."""
        inside = jnp.log(t / self.t0) / jnp.log(self.t1 / self.t0)
        times = self.time_embedding(inside[None])
        return self.network(jnp.concatenate([features, inside[None], times]))

    def log_prob(self, t, x, x0):
        """log p."""
        if isinstance(self.embedding, PowerEmbedding):
            return self._radial(t, self.manifold.kernel_coordinates(x, x0))  # pyright: ignore
        sources, space = x0[None], self.manifold
        if isinstance(self.manifold, AbstractQuotient):
            sources, space = self.manifold.orbit(x0), self.manifold.cover

        def features(source):
            return self.embedding(space.relative(x, source))  # pyright: ignore

        return self.phi(t, jnp.mean(jax.vmap(features)(sources), axis=0))

    def _radial(self, t, y):
        return self.phi(t, self.embedding(y))

    def log_prob_and_score(self, t, x, x0):
        """By automatic differentiation, in kernel coordinates where the embedding uses them."""
        if isinstance(self.embedding, PowerEmbedding):
            y, lift = self.manifold.lifted_coordinates(x, x0)  # pyright: ignore
            value, slope = jax.value_and_grad(self._radial, 1)(t, y)
            return value, lift(slope)
        frame, value = self.manifold.frame(x), lambda x: self.log_prob(t, x, x0)
        return value(x), calculus.gradient(value, x, frame)

    def terms(self, t, x, x0):
        """The terms of the equation."""
        if isinstance(self.embedding, PowerEmbedding):
            y = self.manifold.kernel_coordinates(x, x0)  # pyright: ignore
            return radial_terms(self._radial, self.manifold, t, y)  # pyright: ignore
        return super().terms(t, x, x0)
