r"""Log-likelihoods by following a flow: d log p / d tau = -div v along dx / d tau = v(tau, x).

For a diffusion the flow is the probability flow, v = -grad log p_t; for flow matching it is the
learned velocity.  The density is with respect to the Riemannian volume, and so is the divergence.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..core.types import Key, Point, Scalar, Tangent
from ..manifolds import AbstractManifold, calculus

Velocity = Callable[[Scalar, Point], Tangent]
# Above this dimension the divergence is estimated (Hutchinson).
EXACT_DIVERGENCE = 10
LARGEST_STEPS = 4096


def is_quick(manifold: AbstractManifold) -> bool:
    """Whether likelihoods are: in few dimensions, with few images that a field is averaged over."""
    point = jax.ShapeDtypeStruct(manifold.shape, float)
    images = jax.eval_shape(manifold.lookalikes, point).shape[0]
    return manifold.dim * images <= EXACT_DIVERGENCE


def _method(inner, outer, error) -> dict[str, np.ndarray]:
    """The arrays of a method with at most seven stages."""
    matrix = np.zeros((7, 7))
    for row, values in enumerate(inner, 1):
        matrix[row, : len(values)] = values
    padded = [np.pad(values, (0, 7 - len(values))) for values in (outer, error)]
    return {"nodes": matrix.sum(axis=1), "inner": matrix, "outer": padded[0], "error": padded[1]}


_OUTER = np.array(
    [
        0.09646076681806523,
        0.01,
        0.4798896504144996,
        1.379008574103742,
        -3.290069515436081,
        2.324710524099774,
        0.0,
    ]
)
_LOWER = np.array(
    [
        0.09468075576583945,
        0.009183565540343254,
        0.4877705284247616,
        1.234297566930479,
        -2.707712349983526,
        1.866628418170587,
        1 / 66,
    ]
)
_TSITOURAS = _method(
    [
        [0.161],
        [-0.008480655492356989, 0.335480655492357],
        [2.8971530571054935, -6.359448489975075, 4.3622954328695815],
        [5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525],
        [
            5.86145544294642,
            -12.92096931784711,
            8.159367898576159,
            -0.071584973281401,
            -0.028269050394068383,
        ],
        _OUTER[:6],
    ],
    _OUTER,
    _OUTER - _LOWER,
)
_MIDPOINT = _method([[0.5]], [0.0, 1.0], [0.0])


class Trajectory(eqx.Module):
    """Where a point went along the flow."""

    end: Point
    divergence: Scalar
    """The integral of div v along the way."""
    steps: Scalar
    reached: Scalar
    """Whether the end was reached within the tolerance."""


class Pace(NamedTuple):
    """A Runge-Kutta method and the length of its steps; all arrays, so that paces are no shapes.

    With k_i the rate at time c_i h and state y + h sum_j a_ij k_j, a step goes to y + h sum b_i k_i
    and is off by about h sum e_i k_i.
    """

    nodes: Float[Array | np.ndarray, " s"]
    inner: Float[Array | np.ndarray, "s s"]
    outer: Float[Array | np.ndarray, " s"]
    error: Float[Array | np.ndarray, " s"]
    reused: Bool[Array | np.ndarray, ""]
    """Whether the last rate of a step is the first of the next."""
    stages: Int[Array | np.ndarray, ""]
    """Those that are not only there to fill the arrays."""
    tolerance: Float[Array | np.ndarray, ""]
    """Absolute and relative, for each step; unless they are of equal length."""
    steps: Int[Array | np.ndarray, ""]
    """Of equal length; zero if they follow from the tolerance."""


def by_tolerance(tolerance: float | Scalar) -> Pace:
    """Steps as long as their error allows, of the method of order five of Tsitouras (2011)."""
    given = {"stages": np.asarray(7), "tolerance": np.asarray(tolerance), "steps": np.asarray(0)}
    return Pace(**_TSITOURAS, reused=np.asarray(True), **given)


def by_steps(steps: int) -> Pace:
    """So many steps of equal length, of the midpoint rule."""
    given = {"stages": np.asarray(2), "tolerance": np.asarray(0.0), "steps": np.asarray(steps)}
    return Pace(**_MIDPOINT, reused=np.asarray(False), **given)


def follow(
    velocity: Velocity,
    manifold: AbstractManifold,
    x: Point,
    start: Scalar,
    end: Scalar,
    *,
    pace: Pace,
    probes: Float[Array, "p ..."] | None = None,
) -> Trajectory:
    """Follow the flow from one point with a Runge-Kutta method.

    The state is the point in ambient coordinates, put back on the manifold whenever the velocity
    is asked for, and the integral of the divergence.  The rate stands in the code once, in a loop
    over stages: it is most of what is compiled.

    Args:
        velocity: of time and point.
        manifold: where the point moves.
        x: the start.
        start: the time of the start.
        end: the time of the end, later or earlier.
        pace: the method, and how long its steps are.
        probes: random signs, as vectors in coefficients of the basis, to estimate the divergence
            with; None computes it exactly.
    """
    pace = jax.tree.map(lambda a: jnp.asarray(a, x.dtype if a.dtype.kind == "f" else None), pace)
    is_fixed, size = pace.steps > 0, x.size

    def rate(tau: Scalar, state: Float[Array, " d"]) -> Float[Array, " d"]:
        moved, grown = _rate(velocity, manifold, probes, tau, state[:size].reshape(x.shape))
        return jnp.append(jnp.ravel(moved), grown)

    def go_on(carry):
        _, tau, h, *_, count = carry
        return (tau != end) & (tau + h != tau) & (count < LARGEST_STEPS)

    def step(carry):
        state, tau, h, rates, count = carry
        # What would be left after the last step but for rounding is not worth another one.
        is_last = jnp.abs(end - tau) <= jnp.abs(h) * (1 + 1e-5)
        is_last = jnp.where(is_fixed, count + 1 == pace.steps, is_last)
        h = jnp.where(is_last, end - tau, h)

        def stage(i, rates):
            return rates.at[i].set(rate(tau + pace.nodes[i] * h, state + h * pace.inner[i] @ rates))

        first = jnp.where(pace.reused & (count > 0), 1, 0)
        rates = jax.lax.fori_loop(first, pace.stages, stage, rates)
        new, error = state + h * pace.outer @ rates, h * pace.error @ rates
        scale = pace.tolerance * (1 + jnp.maximum(jnp.abs(state), jnp.abs(new)))
        off = jnp.sqrt(jnp.mean((error / scale) ** 2))
        off = jnp.where(jnp.isnan(off), jnp.inf, off)
        is_kept = is_fixed | (off < 1)
        # The error of a step is of order h^5.
        bounds = jnp.where(is_kept, 1.0, 0.2), jnp.where(is_kept, 10.0, 0.9)
        factor = jnp.where(is_fixed, 1.0, jnp.clip(0.9 * off**-0.2, *bounds))
        reached = jnp.where(is_last, end, tau + h)
        state, tau = jnp.where(is_kept, new, state), jnp.where(is_kept, reached, tau)
        again = jnp.where(is_kept & pace.reused, rates[-1], rates[0])
        return state, tau, h * factor, rates.at[0].set(again), count + 1

    begun = jnp.append(jnp.ravel(x), jnp.zeros((), x.dtype))
    h = (end - start) / jnp.where(is_fixed, pace.steps, 100)
    rates = jnp.zeros((len(pace.nodes), size + 1), x.dtype)
    carry = begun, start, h.astype(x.dtype), rates, jnp.zeros((), int)
    state, tau, _, _, count = jax.lax.while_loop(go_on, step, carry)
    place = manifold.project_at(state[:size].reshape(x.shape))
    return Trajectory(place, state[size], count, tau == end)


@eqx.filter_jit
def _rate(velocity, manifold, probes, tau, x):
    """The velocity and its divergence; if it is a value, traced once for all flows."""
    place = manifold.project_at(x)
    frame = manifold.basis(place)
    if probes is not None:
        frame = jnp.tensordot(probes, frame, axes=1) / jnp.sqrt(len(probes))
    return calculus.value_and_divergence(
        lambda y: velocity(tau, y), place, frame, manifold.inner_at
    )


def probes(key: Key, manifold: AbstractManifold, x: Point, count: int) -> Float[Array, "p m"]:
    """Random signs for Hutchinson's estimator, in coefficients of the basis."""
    size = jax.eval_shape(manifold.basis, x).shape[0]
    return jr.rademacher(key, (count, size), dtype=x.dtype)
