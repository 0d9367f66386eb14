r"""The heat kernel of a compact manifold from its equations, without a mesh.

    p(t, x | x0) = sum_k exp(-lambda_k t) f_k(x) f_k(x0)

The eigenfunctions f_k of the Laplacian are sought among polynomials of the ambient coordinates
(`polynomials`), by Galerkin's method: with the matrices of <f, g> and <grad f, grad g> it is
an eigenvalue problem.  Integrals are sums over random points with weights.  Equal weights would
give eigenvalues that are wrong by per cents.  The cure needs nothing but the operator: on a closed
manifold the integral of a Laplacian vanishes, and the volume is the only measure with that
property.  So the weights are changed, as little as possible, until

    sum_i w_i (Delta f)(x_i) = 0        for all polynomials f up to a degree.

That leaves one number, the volume.  Near the diagonal the kernel is known for small t,

    log p(t, x | x) = -(n/2) log 4 pi t + t R(x) / 6 + O(t^2),

which is matched to the series at times where both hold, the rest being a polynomial in t.

The series is symmetric and has unit mass at every t.  At small t it needs too many terms: below a
time t0, where the two agree best, the law of `heat.early.geodesics` speaks.
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.linalg

from ...core.bar import bar
from ...core.checks import positive_integer, random_key
from ...core.types import Key
from ...heat.certificate import TIMES
from ...heat.early.geodesics import GeodesicLaw, last_of_law, shortest_length
from ...heat.kernel import UnsolvedError
from ...manifolds import Submanifold
from .polynomials import derivatives, orthonormal_polynomials
from .series import SpectralKernel

# Random points for each polynomial that the weights are exact for.
_POINTS_EACH = 5
# The degree of the eigenfunctions, as a fraction of the degree that the weights are exact for.
_FRACTION = 0.65
# Eigenvalues of functions up to this fraction of the degree are accurate.
_ACCURATE = 0.8
# Terms of the series below this, relative to the first, are left out.
_SMALLEST_TERM = 1e-7
# Law and series agree if their scores do to this, relative to them.
_AGREED = 1e-3
LARGEST_DIMENSION = 3
_PAIRS = 256
# Points of which the values of all polynomials are computed at a time.
_BATCH = 100


def solve_spectral(
    manifold: Submanifold,
    *,
    key: Key,
    functions: int = 2400,
    degree: int = 48,
    progress: bool | None = None,
) -> SpectralKernel:
    """The heat kernel of a compact manifold of at most three dimensions.

    Args:
        manifold: given by its equations.
        key: a random key.
        functions: the largest number of polynomials that integrals are made exact for; the cost
            grows with its third power.
        degree: their largest degree.
        progress: whether to show a progress bar; by default on a terminal only.
    """
    if not isinstance(manifold, Submanifold):
        raise TypeError(f"solve_spectral: needs a Submanifold, got {manifold!r:.80}.")
    functions = positive_integer(functions, "functions", "solve_spectral", at_least=16)
    degree = positive_integer(degree, "degree", "solve_spectral", at_least=3)
    key = random_key(key, "solve_spectral")
    if not manifold.is_compact():
        raise ValueError(
            f"solve_spectral: {manifold} is not known to be compact; the spectral method is for "
            "compact manifolds, `recipes.pairs` for others."
        )
    if manifold.dim > LARGEST_DIMENSION:
        raise ValueError(
            f"solve_spectral: the spectral method is for dimensions up to {LARGEST_DIMENSION}, "
            f"{manifold} has {manifold.dim}; use 'short-time'."
        )
    with jax.enable_x64(True), bar(6, f"solving {manifold}", progress=progress) as shown:
        solved = _solve(manifold, key, functions, degree, shown)
    return jax.tree.map(lambda a: a.astype(jnp.float32) if eqx.is_inexact_array(a) else a, solved)


def _solve(manifold, key, most, degree, shown):
    def say(stage):
        shown.set_postfix_str(stage)
        shown.update()

    say("random points")
    key_points, key_pairs, key_check = jr.split(key, 3)
    draw = jax.jit(jax.vmap(manifold.draw_point))
    points = draw(jr.split(key_points, _POINTS_EACH * most)).astype(float)
    start = np.full(len(points), 1 / len(points))
    say("polynomials")
    functions = orthonormal_polynomials(np.asarray(points), start, degree, most)
    exact = len(functions.blocks)
    if exact < 3:
        raise UnsolvedError(
            f"solve_spectral: {most} functions on {manifold} reach degree {exact} only; allow more."
        )
    say("weights")
    weights = _weights(manifold, functions, points, start)
    chosen = functions.up_to(max(2, math.floor(_FRACTION * exact)))
    say("eigenfunctions")
    eigenvalues, coefficients = _eigenfunctions(manifold, chosen, points, weights)
    if not eigenvalues[1] > 1e-5 * eigenvalues[-1]:
        raise ValueError(
            f"solve_spectral: {manifold} has a second function with Laplacian zero: it is not "
            "connected, or not compact. Give the equations of one component."
        )
    accurate = chosen.sizes()[max(1, math.floor(_ACCURATE * len(chosen.blocks)))] - 1
    # The smallest time at which the series is complete.
    complete = -math.log(1e-5) / eigenvalues[accurate]
    few, law = points[:_PAIRS], GeodesicLaw(manifold)
    unfinished: Any = None
    kernel = SpectralKernel(
        manifold=manifold,
        law=law,
        functions=chosen,
        coefficients=jnp.asarray(coefficients),
        eigenvalues=jnp.asarray(eigenvalues),
        log_volume=jnp.zeros(()),
        t0=0.0,
        certificate=unfinished,
    )
    say("law for small times")
    log_volume = jnp.asarray(_log_volume(kernel, few, complete))
    kernel = dataclasses.replace(kernel, log_volume=log_volume)
    t0, largest, mean = _switch(kernel, few, complete, key_pairs)
    terms = max(2, int(np.sum(eigenvalues * t0 < -math.log(_SMALLEST_TERM))))
    coefficients, eigenvalues = kernel.coefficients[:, :terms], kernel.eigenvalues[:terms]
    kernel = dataclasses.replace(kernel, coefficients=coefficients, eigenvalues=eigenvalues, t0=t0)
    say("certificate")
    certificate = kernel.measured(
        np.geomspace(t0, max(6 / float(eigenvalues[1]), 4 * t0), TIMES),
        few,
        key_check,
        # One: all eigenfunctions but the first, a constant, have mean zero.
        log_mass=np.zeros(TIMES),
        initial_error=largest,
        initial_mean=mean,
        earlier=kernel.law.certified(t0),
    )
    return dataclasses.replace(kernel, certificate=certificate)


def _weights(manifold, functions, points, start):
    """The smallest change of the weights that makes integrals of Laplacians vanish."""

    def laplacians(x):
        return derivatives(functions, x, manifold.basis(x), manifold.coordinate_laplacian(x))[1]

    values = np.asarray(jax.jit(lambda p: jax.lax.map(laplacians, p, batch_size=_BATCH))(points))
    values = values[:, 1:] / np.linalg.norm(values[:, 1:], axis=0)
    squares, directions = np.linalg.eigh(values.T @ values)
    keep = squares > 1e-12 * squares[-1]
    across = values @ (directions[:, keep] / np.sqrt(squares[keep]))
    weights = start - across @ (across.T @ start)
    weights = weights - across @ (across.T @ weights)  # again, for rounding
    return weights / weights.sum()


def _eigenfunctions(manifold, functions, points, weights):
    """Eigenvalues in increasing order, eigenfunctions of mean square one."""

    def values_and_slopes(x):
        along = jax.vmap(lambda e: jax.jvp(functions, (x,), (e,))[1])
        return functions(x), along(manifold.basis(x))

    run = jax.jit(lambda p: jax.lax.map(values_and_slopes, p, batch_size=_BATCH))
    values, slopes = map(np.asarray, run(points))
    mass = values.T @ (weights[:, None] * values)
    stiffness = sum(
        slopes[:, j].T @ (weights[:, None] * slopes[:, j]) for j in range(slopes.shape[1])
    )
    try:
        eigenvalues, coefficients = scipy.linalg.eigh(stiffness, mass)
    except np.linalg.LinAlgError as error:
        raise UnsolvedError(
            f"solve_spectral: the weights of the random points on {manifold} do not give a "
            "positive measure; it may not be compact, or too rough for so few `functions`."
        ) from error
    return np.maximum(eigenvalues, 0.0), coefficients


def _log_volume(kernel, points, complete):
    """From the diagonal of the kernel at several times, extrapolated to t = 0."""
    manifold = kernel.manifold
    curvature = jax.jit(jax.vmap(manifold.scalar_curvature))(points)

    def rest(t):
        values = jax.vmap(lambda x: kernel.late_log_prob(t, x, x))(points)
        return jnp.mean(values - t * curvature / 6)

    run = jax.jit(lambda ts: jax.lax.map(rest, ts))
    fits = []
    for later in (1.0, 1.5, 2.0, 3.0):
        times = later * complete * np.geomspace(1.0, 3.0, 12)
        found = np.asarray(run(jnp.asarray(times)))
        found = found + manifold.dim / 2 * np.log(4 * np.pi * times)
        powers = np.stack([np.ones_like(times), times**2, times**3], axis=1)
        terms = np.linalg.lstsq(powers, found, rcond=None)[0]
        fits.append((float(np.max(np.abs(powers @ terms - found))), float(terms[0])))
    return min(fits)[1]  # too early the series is not complete, too late it is no polynomial


def _switch(kernel, points, complete, key):
    """The time at which law and series agree best; the largest and mean difference there.

    They are compared by their scores, whose error is the larger one when the series is short of
    terms; the differences returned are those of log p.
    """
    manifold = kernel.manifold
    square = jax.vmap(lambda x, v: manifold.inner_at(x, v, v))

    def differ(t):
        x, value, score = jax.vmap(lambda x0, k: kernel.law.known_draw(t, x0, k))(
            points, jr.split(key, len(points))
        )
        series, slope = jax.vmap(lambda x, x0: kernel.late_both(t, x, x0))(x, points)
        relative = jnp.mean(square(x, score - slope)) / jnp.mean(square(x, score))
        return jnp.abs(value - series), relative

    times = complete * np.geomspace(0.25, 4.0, 14)
    run = jax.jit(lambda ts: jax.lax.map(differ, ts))
    found, relative = map(np.asarray, run(jnp.asarray(times)))
    relative = np.nan_to_num(relative, nan=np.inf)
    # The law may be so good that they agree best where draws already reach what is behind the
    # last shortest geodesics: not that late, if they agree before.
    within = times <= last_of_law(shortest_length(manifold))
    agreed = np.flatnonzero(within & (relative < _AGREED**2))
    # A little later than where they agree best: the rare points far out, where the series has
    # lost its digits, are hardly seen among so few.
    best = min(int(np.argmin(relative)) + 1, agreed[-1] if len(agreed) else len(times) - 1)
    return float(times[best]), float(found[best].max()), float(found[best].mean())
