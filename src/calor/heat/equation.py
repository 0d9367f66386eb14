"""The log heat equation: its terms, and how far a function is from solving it.

dphi/dt = Delta phi + |grad phi|^2,     phi = log p.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.types import Point, Scalar
from ..manifolds import AbstractSymmetricSpace, calculus
from .kernel import AbstractHeatKernel


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


def log_heat_residual(kernel: AbstractHeatKernel, t: Scalar, x: Point, x0: Point) -> Scalar:
    """How far log p is from solving its equation: dphi/dt - Delta phi - |grad phi|^2."""
    manifold = kernel.manifold
    t, x, x0 = kernel.checked(t, x=x, x0=x0)
    time_derivative = jax.grad(kernel.log_prob)(t, x, x0)

    def phi(y):
        return kernel.log_prob(t, y, x0)

    slope = manifold.gradient(phi, x)
    return time_derivative - manifold.laplacian(phi, x) - manifold.inner(x, slope, slope)
