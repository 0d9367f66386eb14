r"""Scalar curvature of a manifold that is given by equations f = 0 and an ambient metric g.

By Gauss' equation, with S = P g^{-1} the inverse metric of the tangent space, Rm the curvature of
the ambient metric, J = df and H_a = d^2 f_a - J_a Gamma the covariant second derivatives,

    R = S S : Rm + sum_ab G_ab [ tr(S H_a) tr(S H_b) - tr(S H_a S H_b) ],   G = (J g^{-1} J^T)^{-1},

    Rm^k_lij = d_i Gamma^k_jl - d_j Gamma^k_il + Gamma^k_im Gamma^m_jl - Gamma^k_jm Gamma^m_il.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.numerics import solve_positive
from ..core.types import Point, Scalar

_Metric = Callable[[Point], Float[Array, "N N"]]


def christoffel(metric: _Metric, x: Point) -> Float[Array, "N N N"]:
    """Gamma^k_ij, indexed in this order."""
    slopes = jax.jacfwd(metric)(x)  # d_k g_ij, indexed i, j, k
    lowered = (slopes + slopes.transpose(0, 2, 1) - slopes.transpose(2, 0, 1)) / 2
    raised = jax.vmap(lambda w: solve_positive(metric(x), w), 1, 1)(lowered.reshape(x.size, -1))
    return raised.reshape(lowered.shape)


def ambient_curvature(metric: _Metric, x: Point, inverse: Float[Array, "N N"]) -> Scalar:
    """S S : Rm, the sum of Rm(e_i, e_j, e_j, e_i) over an orthonormal tangent basis."""
    symbols = christoffel(metric, x)
    changes = jax.jacfwd(lambda x: christoffel(metric, x))(x)  # d_i Gamma^k_jl, indexed k, j, l, i
    products = jnp.einsum("kim,mjl->klij", symbols, symbols)
    half = jnp.einsum("kjli->klij", changes) + products
    curvature = half - half.transpose(0, 1, 3, 2)
    return jnp.einsum("klij,kn,ni,lj->", curvature, metric(x), inverse, inverse)


def bending(
    hessians: Float[Array, "k N N"],
    raised: Float[Array, "k k"],
    inverse: Float[Array, "N N"],
) -> Scalar:
    """The second term of R, from H, J g^{-1} J^T and S."""
    turned = jnp.einsum("ij,ajk->aik", inverse, hessians)
    traces = jnp.einsum("aii->a", turned)
    products = jnp.einsum("aij,bji->ab", turned, turned)
    solved = solve_positive(raised, jnp.outer(traces, traces) - products)
    return jnp.trace(solved)
