"""What a solution of the log heat equation is."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.types import Point, Scalar, Tangent
from ...heat.equation import Terms
from ...heat.kernel import phi_by_points
from ...manifolds import AbstractManifold, calculus
from ..draws import AbstractDraws, Phi, draws_in_coordinates


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

    def settles(self) -> bool:
        """Whether it knows log p beyond the solved interval too."""
        return True


def in_window(
    edges: tuple[float, ...], stacked: Any, t: Scalar
) -> tuple[Any, tuple[Scalar, Scalar]]:
    """Of arrays with a row for each window of time those of the window of t, and its ends."""
    ends = jnp.asarray(edges, t.dtype)
    index = jnp.sum(t > ends[1:-1]) if len(edges) > 2 else 0
    chosen = jax.tree.map(lambda a: a[index].astype(t.dtype), stacked)
    return chosen, (ends[index], ends[index + 1])


def remaining(weight: Callable[[Scalar], Scalar], rate: float, t: Scalar) -> Scalar:
    """How small log(vol p) = w(t) N has become on a compact manifold, one until about 1/rate.

    Late log p itself is small, and its equation counts relative to it.
    """
    return jnp.clip(weight(t) / weight(jnp.asarray(1 / rate, t.dtype)), 1e-3, 1.0)
