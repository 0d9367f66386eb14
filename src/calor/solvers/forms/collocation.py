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
from ...manifolds import AbstractManifold, AbstractSymmetricSpace
from ...training.sets import SetNetwork
from .symmetric import AbstractForm, Settling, Spreading

# The law at t0 lacks the second geodesic around the manifold, whose share at the distance r is
# exp(-R (R - r) / t0), R the injectivity radius.  Beyond where this share is reached the law is not
# fitted.
_SHARE = 1e-8
# Beyond it log p may exceed the Gaussian of the distance by this much and no more: mass that
# hides there would not show in the loss.
_EXCESS = 1.5
# How fast an equation loses weight with the depth dist^2/4t in the tail: errors there flow outward
# along geodesics and do not come back.
_FALL = 2
# Size of the law's own error (its residual times t0) that begins to count against it.
_LAW_ERROR = 1e-5


@eqx.filter_jit
def points(
    manifold: AbstractSymmetricSpace, number: int, start: Scalar, end: Scalar, key: Key
) -> tuple[Float[Array, " n"], Float[Array, "n k"]]:
    """Times, log-uniform, and kernel coordinates at which a solver looks at the equation.

    On compact spaces half of the points are Gaussian steps from the origin and half are uniform;
    on others they come from Brownian motion, half of them a quarter further out.
    """
    key_t, key_x, key_u = jr.split(key, 3)
    t = start * (end / start) ** ((jnp.arange(number) + jr.uniform(key_t, (number,))) / number)
    origin, keys = manifold.origin(), jr.split(key_x, number)

    def coordinates(x):
        return manifold.kernel_coordinates(x, origin)

    if np.isfinite(manifold.injectivity_radius()):

        def near(t, key):
            step = jnp.sqrt(2 * t) * manifold.draw_tangent(key, origin)
            return coordinates(manifold.exp_at(origin, step))

        y = jax.vmap(near)(t, keys)
        uniform = jax.vmap(lambda k: coordinates(manifold.draw_point(k)))(jr.split(key_u, number))
        return t, jnp.where((jnp.arange(number) % 2)[:, None] == 0, y, uniform)

    def walk(t, key):
        return coordinates(manifold.walk(t, origin, key))

    y = jax.vmap(walk)(t, keys)
    return t, y * jnp.where(jnp.arange(number) % 2 == 0, 1.0, 1.25)[:, None]


@eqx.filter_jit
def interior(
    form: AbstractForm,
    t: Float[Array, " n"],
    y: Float[Array, "n k"],
    start: Scalar,
    end: Scalar,
):
    """The rows of the equation itself.

    For phi = base + u, with b = grad log J the drift of the Laplacian,
    u_t - sum_a u_aa - <b + 2 grad base, grad u> - |grad u|^2 + (residual of base) = 0.
    """
    number = len(t)

    def row(t, y):
        base = radial_terms(form.base, form.manifold, t, y).residual()
        drift = jax.grad(form.manifold.log_area)(y) + 2 * jax.grad(form.base, 1)(t, y)
        return {
            "t": t,
            "y": y,
            "drift": drift,
            "base": base,
            "weight": _importance(form, t, y) / np.sqrt(number),
            "start": start,
            "end": end,
        }

    return jax.vmap(row)(t, y)


def _importance(form, t, y):
    """The weight of an equation: errors count per unit of log t, less in the far tail.

    Late on a compact space log p itself is small, and its equation counts relative to it.
    """
    if isinstance(form, Spreading):
        return jnp.sqrt(t)
    depth = jnp.sum(y * y) / (4 * t)
    return t / (1 + depth) ** _FALL / late(form, t)


def late(form: Settling, t: Scalar) -> Scalar:
    """How small log(vol p) has become, one until about 1/lambda."""
    reference = form.weight(jnp.asarray(1 / form.manifold.spectral_gap(), t.dtype))
    return jnp.clip(form.weight(t) / reference, 1e-3, 1.0)


def trusted_radius(manifold: AbstractManifold, t0):
    """The distance up to which the short-time law at t0 does not miss another geodesic.

    On a quotient the law sums over images and misses none.
    """
    if not isinstance(manifold, AbstractSymmetricSpace):
        return np.inf
    radius = manifold.injectivity_radius()
    return radius - t0 * np.log(1 / _SHARE) / radius


@eqx.filter_jit
def initial_law(
    form: Settling,
    law: AbstractCorrectedGaussian,
    y: Float[Array, "n k"],
    t0: Scalar,
    end: Scalar,
):
    """The rows of the initial condition at t0, from a short-time law."""
    trusted = trusted_radius(form.manifold, t0)
    t, number = t0, len(y)

    def gaussian(t, y):
        return -jnp.sum(y * y) / (4 * t) - form.manifold.dim / 2 * jnp.log(4 * jnp.pi * t)

    def row(y):
        def phi(t, y):
            return gaussian(t, y) + law.correction(t, y)

        error = jnp.abs(radial_terms(phi, form.manifold, t, y).residual()) * t
        depth = jnp.sum(y * y) / (4 * t)
        beyond = jnp.sum(y * y) > trusted**2
        exact_weight = 3 / (1 + depth) ** _FALL / (1 + error / _LAW_ERROR)
        value = jnp.where(beyond, gaussian(t, y) + _EXCESS, phi(t, y))
        return {
            "y": y,
            "value": value - form.base(t, y),
            "weight": jnp.where(beyond, 0.03, exact_weight) / np.sqrt(number),
            "beyond": beyond,
            "start": t,
            "end": end,
        }

    return jax.vmap(row)(y)


@eqx.filter_jit
def initial_window(
    form: Settling, before: SetNetwork, y: Float[Array, "n k"], ends: Float[Array, " 3"]
):
    """The rows of the initial condition of a window: the values where the one before it ends.

    Args:
        form: how the solution is written.
        before: the network of the window before.
        y: kernel coordinates.
        ends: where the window before started, where this one starts, and where it ends.
    """
    earlier, t, end = ends
    number = len(y)

    def row(y):
        depth = jnp.sum(y * y) / (4 * t)
        return {
            "y": y,
            "value": form.correction(before, t, y, earlier, t),
            "weight": 3 / (1 + depth) ** _FALL / late(form, t) / np.sqrt(number),
            "beyond": jnp.asarray(False),
            "start": t,
            "end": end,
        }

    return jax.vmap(row)(y)
