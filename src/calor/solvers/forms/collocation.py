r"""Where the heat equation is asked to hold: points, weights and initial values for a solver.

All points are pairs (t, y) with y the kernel coordinates of a point x relative to the origin.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ...core.types import Key, Scalar
from ...heat.early.laws import AbstractCorrectedGaussian
from ...heat.equation import radial_terms
from ...heat.kernel import log_gaussian
from ...manifolds import AbstractManifold, AbstractSymmetricSpace, calculus
from ...training.sets import SetNetwork
from .base import Ends
from .rows import EXCESS, Rows, initial_error, scaled, times_between
from .symmetric import AbstractForm, Settling

# The law at t0 lacks the second geodesic around the manifold, whose share at the distance r is
# exp(-R (R - r) / t0), R the injectivity radius.  Beyond where this share is reached the law is not
# fitted.
_SHARE = 1e-8
# Size of the law's own error (its residual times t0) that begins to count against it.
_LAW_ERROR = 1e-5


@eqx.filter_jit
def points_near_and_anywhere(
    manifold: AbstractSymmetricSpace, number: int, start: Scalar, end: Scalar, key: Key
) -> tuple[Float[Array, " n"], Float[Array, "n k"]]:
    """Times, log-uniform, and kernel coordinates to look at on a compact space.

    Half of the points are Gaussian steps from the origin and half are uniform.
    """
    key_t, key_x, key_u = jr.split(key, 3)
    t = times_between(start, end, number, key_t)
    origin = manifold.origin()

    def near(t, key):
        step = jnp.sqrt(2 * t) * manifold.draw_tangent(key, origin)
        return manifold.kernel_coordinates(manifold.exp_at(origin, step), origin)

    def anywhere(key):
        return manifold.kernel_coordinates(manifold.draw_point(key), origin)

    y = jax.vmap(near)(t, jr.split(key_x, number))
    uniform = jax.vmap(anywhere)(jr.split(key_u, number))
    return t, jnp.where((jnp.arange(number) % 2)[:, None] == 0, y, uniform)


@eqx.filter_jit
def points_of_walks(
    manifold: AbstractSymmetricSpace, number: int, start: Scalar, end: Scalar, key: Key
) -> tuple[Float[Array, " n"], Float[Array, "n k"]]:
    """Times, log-uniform, and kernel coordinates to look at on a space without cut locus.

    They come from Brownian motion, half of them a quarter further out.
    """
    key_t, key_x, _ = jr.split(key, 3)
    t = times_between(start, end, number, key_t)
    origin = manifold.origin()

    def walk(t, key):
        return manifold.kernel_coordinates(manifold.walk(t, origin, key), origin)

    y = jax.vmap(walk)(t, jr.split(key_x, number))
    return t, y * jnp.where(jnp.arange(number) % 2 == 0, 1.0, 1.25)[:, None]


@eqx.filter_jit
def interior(form: AbstractForm, t: Float[Array, " n"], y: Float[Array, "n k"], ends: Ends) -> Rows:
    """The rows of the equation itself.

    For phi = base + u, with b = grad log J the drift of the Laplacian,
    u_t - sum_a u_aa - <b + 2 grad base, grad u> - |grad u|^2 + (residual of base) = 0.
    """

    def row(t, y):
        base = radial_terms(form.base, form.manifold, t, y).residual()
        drift = jax.grad(form.manifold.log_area)(y) + 2 * jax.grad(form.base, 1)(t, y)
        weight = form.importance(t, y)
        return {"t": t, "y": y, "drift": drift, "base": base, "weight": weight, "ends": ends}

    return scaled(jax.vmap(row)(t, y), len(t))


def equation(form: AbstractForm, network: SetNetwork, row: Rows) -> Scalar:
    """The weighted residual of the equation."""

    def u(t, y):
        return form.correction(network, t, y, row["ends"])

    change, slope = jax.grad(u, (0, 1))(row["t"], row["y"])
    basis = jnp.eye(len(slope), dtype=slope.dtype)
    laplacian = calculus.laplacian(lambda y: u(row["t"], y), row["y"], basis, row["drift"])
    return row["weight"] * (change - laplacian - jnp.sum(slope * slope) + row["base"])


def initial(form: AbstractForm, network: SetNetwork, row: Rows) -> Scalar:
    """The weighted residual of an initial value."""
    start, _ = row["ends"]
    return initial_error(form.correction(network, start, row["y"], row["ends"]), row)


def trusted_radius(manifold: AbstractManifold, t0: Scalar | float) -> Scalar | float:
    """The distance up to which the short-time law at t0 does not miss another geodesic.

    On a quotient, which tells no radius, the law sums over images and misses none.
    """
    radius = manifold.injectivity_radius()
    return radius - t0 * np.log(1 / _SHARE) / radius


@eqx.filter_jit
def initial_law(
    form: Settling, law: AbstractCorrectedGaussian, y: Float[Array, "n k"], ends: Ends
) -> Rows:
    """The rows of the initial condition at t0, from a short-time law."""
    manifold, (t0, _) = form.manifold, ends
    trusted = trusted_radius(manifold, t0)

    def row(y):
        error = jnp.abs(radial_terms(law.phi, manifold, t0, y).residual()) * t0
        squared = jnp.sum(y * y)
        beyond = squared > trusted**2
        excess = log_gaussian(t0, squared, manifold.dim) + EXCESS
        value = jnp.where(beyond, excess, law.phi(t0, y)) - form.base(t0, y)
        weight = jnp.where(beyond, 0.03, 3 * form.tail(t0, y) / (1 + error / _LAW_ERROR))
        return {"y": y, "value": value, "weight": weight, "beyond": beyond, "ends": ends}

    return scaled(jax.vmap(row)(y), len(y))


@eqx.filter_jit
def initial_window(
    form: Settling, before: SetNetwork, y: Float[Array, "n k"], edges: Float[Array, " 3"]
) -> Rows:
    """The rows of the initial condition of a window: the values where the one before it ends.

    Args:
        form: how the solution is written.
        before: the network of the window before.
        y: kernel coordinates.
        edges: where the window before started, where this one starts, and where it ends.
    """
    earlier, t, end = edges

    def row(y):
        value = form.correction(before, t, y, (earlier, t))
        weight = 3 * form.tail(t, y) / form.late(t)
        common = {"beyond": jnp.asarray(False), "ends": (t, end)}
        return {"y": y, "value": value, "weight": weight, **common}

    return scaled(jax.vmap(row)(y), len(y))
