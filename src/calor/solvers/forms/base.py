"""What a solution of the log heat equation is."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.types import Point, Scalar, Tangent
from ...heat.equation import Terms, radial_terms
from ...heat.kernel import phi_by_points
from ...manifolds import AbstractManifold, AbstractSymmetricSpace, calculus
from ..draws import AbstractDraws, Phi, draws_in_coordinates

Ends = tuple[Scalar, Scalar]
"""The first and the last time of a window."""


class AbstractSolution(eqx.Module):
    """log p(t, x | x0) as learned, for t between the ends of the solved interval."""

    manifold: eqx.AbstractVar[AbstractManifold]

    @abstractmethod
    def log_prob(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        """log p."""

    def log_prob_and_score(self, t: Scalar, x: Point, x0: Point) -> tuple[Scalar, Tangent]:
        """log p, and its Riemannian gradient in x, by automatic differentiation."""
        frame, value = self.manifold.frame(x), lambda x: self.log_prob(t, x, x0)
        return value(x), calculus.gradient(value, x, frame)

    def terms(self, t: Scalar, x: Point, x0: Point) -> Terms:
        """The terms of the log heat equation, by automatic differentiation."""
        phi, frame = lambda x: self.log_prob(t, x, x0), self.manifold.frame(x)
        slope = calculus.gradient(phi, x, frame)
        drift = self.manifold.coordinate_laplacian(x)
        return Terms(
            jax.grad(self.log_prob)(t, x, x0),
            calculus.laplacian(phi, x, frame, drift),
            self.manifold.inner_at(x, slope, slope),
        )

    def phi(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """log p as a function of kernel coordinates, on a symmetric space."""
        return phi_by_points(self.manifold, self.log_prob, t, y)

    def draws(self, phi: Phi, last: float) -> AbstractDraws:
        """How a kernel with this solution draws.

        Args:
            phi: log p of the kernel in kernel coordinates, if there are any.
            last: the end of the solved interval.
        """
        return draws_in_coordinates(self.manifold, phi, last)

    def trained(self) -> Any:
        """What of it is trained, if it is by stochastic gradients."""
        return self

    def settles(self) -> bool:
        """Whether it knows log p beyond the solved interval too."""
        return True


class AbstractRadialSolution(AbstractSolution):
    """A solution on a symmetric space, written in kernel coordinates y."""

    manifold: eqx.AbstractVar[AbstractSymmetricSpace]

    @abstractmethod
    def phi(self, t: Scalar, y: Float[Array, " k"]) -> Scalar:
        """log p in kernel coordinates."""

    def log_prob(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        """log p."""
        return self.phi(t, self.manifold.kernel_coordinates(x, x0))

    def log_prob_and_score(self, t: Scalar, x: Point, x0: Point) -> tuple[Scalar, Tangent]:
        """The gradient in y, which the manifold carries to x in closed form."""
        y, lift = self.manifold.lifted_coordinates(x, x0)
        value, slope = jax.value_and_grad(self.phi, 1)(t, y)
        return value, lift(slope)

    def terms(self, t: Scalar, x: Point, x0: Point) -> Terms:
        """The terms of the equation, in kernel coordinates."""
        return radial_terms(self.phi, self.manifold, t, self.manifold.kernel_coordinates(x, x0))


def in_window(edges: tuple[float, ...], stacked: Any, t: Scalar) -> tuple[Any, Ends]:
    """Of arrays with a row for each window of time those of the window of t, and its ends."""
    ends = jnp.asarray(edges, t.dtype)
    index = jnp.sum(t > ends[1:-1]) if len(edges) > 2 else 0
    chosen = jax.tree.map(lambda a: a[index].astype(t.dtype), stacked)
    return chosen, (ends[index], ends[index + 1])


def settling(rate: float, t: Scalar) -> Scalar:
    """w(t), with which log(vol p) = w(t) N at the rate of the first eigenvalue; 1/4t if it is 0."""
    return rate / (4 * jnp.expm1(rate * t)) if rate > 0 else 1 / (4 * t)


def remaining(rate: float, t: Scalar) -> Scalar:
    """How small log(vol p) = w(t) N has become, one until about 1/rate.

    Late log p itself is small, and its equation counts relative to it.
    """
    if rate == 0:
        return jnp.ones_like(t)
    return jnp.clip(settling(rate, t) / settling(rate, jnp.asarray(1 / rate, t.dtype)), 1e-3, 1.0)
