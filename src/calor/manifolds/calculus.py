r"""Gradient, divergence and Laplacian on a manifold: the one home of second derivatives.

At a point x let e_1, ..., e_m be tangent vectors with sum_j e_j e_j^T = g^{-1} (an orthonormal
basis, or more vectors than that: a Parseval frame), and let b = Delta x be the Laplacian of the
coordinate functions. For any function f of the ambient coordinates that extends the function on
the manifold,

    grad f  = sum_j  df(e_j) e_j,
    Delta f = sum_j  d^2 f(e_j, e_j)  +  df(b),
    div V   = sum_j  g(dV(e_j), e_j)  +  1/2 (d_V g)(e_j, e_j).

These equal the paper's tr(P nabla(P g^{-1} df) P), equation (fp-coords): the values of f off the
manifold drop out.  All curvature and all Christoffel symbols sit in b, which does not depend on f.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.types import Point, Scalar, ScalarField, Tangent, VectorField


def gradient(f: ScalarField, x: Point, frame: Float[Array, "m ..."]) -> Tangent:
    """The Riemannian gradient of f at x."""
    df = jax.grad(f)(x)
    along = jnp.tensordot(frame, df, axes=df.ndim)
    return jnp.tensordot(along, frame, axes=1)


def laplacian(f: ScalarField, x: Point, frame: Float[Array, "m ..."], drift: Tangent) -> Scalar:
    """The Laplace-Beltrami operator of f at x.

    Second derivatives are taken along the frame only, forward over forward (as fast as any of the
    ways compared in `benchmarks/laplacian.py` in three dimensions, and the fastest in many).
    """

    def second(e):
        def first(y):
            return jax.jvp(f, (y,), (e,))[1]

        return jax.jvp(first, (x,), (e,))[1]

    return jnp.sum(jax.vmap(second)(frame)) + jax.jvp(f, (x,), (drift,))[1]


def divergence(
    field: VectorField,
    x: Point,
    frame: Float[Array, "m ..."],
    inner: Callable[[Point, Tangent, Tangent], Scalar],
) -> Scalar:
    """The Riemannian divergence of a tangent vector field at x."""
    return value_and_divergence(field, x, frame, inner)[1]


def value_and_divergence(
    field: VectorField,
    x: Point,
    frame: Float[Array, "m ..."],
    inner: Callable[[Point, Tangent, Tangent], Scalar],
) -> tuple[Tangent, Scalar]:
    """A tangent vector field at x, and its divergence there."""
    value, differential = jax.linearize(field, x)
    change = jax.vmap(lambda e: inner(x, differential(e), e))(frame)

    def squared_lengths(y):
        return jnp.sum(jax.vmap(lambda e: inner(y, e, e))(frame))

    _, metric_change = jax.jvp(squared_lengths, (x,), (value,))
    return value, jnp.sum(change) + metric_change / 2
