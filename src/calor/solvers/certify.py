"""The certificate of a solution of the heat equation, at points that training never saw."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..core.types import Key
from ..heat.certificate import FURTHER, TIMES, Certificate, assembled, column
from ..heat.kernel import AbstractHeatKernel
from .forms.base import AbstractSolution
from .forms.collocation import trusted_radius


def certify_solution(
    solution: AbstractSolution,
    law: AbstractHeatKernel,
    interval: tuple[float, float],
    *,
    points: int,
    key: Key,
) -> Certificate:
    """Measure a solution at points of Brownian motion.

    Args:
        solution: what to certify.
        law: the short-time law that it takes over from at t0.
        interval: t0 and t1, the ends of the solved interval; t0 = 0 if it is exact there.
        points: the number of points at each time.
        key: a random key.
    """
    manifold, (t0, t1) = solution.manifold, interval
    key_source, key_initial, key_inside = jr.split(key, 3)
    sources = manifold.sources(points, key_source)
    error, mean_error, log_mass = 0.0, None, 0.0
    if t0 > 0:
        many = jnp.tile(sources, (4,) + (1,) * (sources.ndim - 1))
        differ = _at_draws if law.is_costly() else _at_steps
        differences, mean_error = differ(solution, law, t0, many, jr.split(key_initial, len(many)))
        error = float(np.max(np.abs(differences)))
        log_mass = float(np.log(np.mean(np.exp(differences))))
    earlier = law.certified(t0, rounded=False)
    if earlier is not None:  # the solution starts from the law, and inherits its error
        error, log_mass = error + earlier.bound(t0), log_mass + earlier.log_mass[-1]
        mean_error = (mean_error or 0.0) + earlier.estimate(t0)

    factors = jnp.where(jnp.arange(points) % 2 == 0, 1.0, FURTHER)

    # Three compiled functions, not one: eigendecompositions of batches that XLA runs side by side
    # on a CPU wait for each other's threads, for ever.
    @jax.jit
    def walk(t, key):
        one = lambda x0, factor, key: manifold.walk(t * factor, x0, key)
        return jax.vmap(one)(sources, factors, jr.split(key, points))

    @jax.jit
    def measure(t, x):
        terms = jax.vmap(lambda x, x0: solution.terms(t, x, x0))(x, sources)
        return jax.vmap(lambda terms: (terms.residual(), terms.normalized_residual()))(terms)

    reach = jax.jit(jax.vmap(manifold.reach))
    times = np.geomspace(t0 or t1 / 50, t1, TIMES)
    columns = []
    for t, key_time in zip(times, jr.split(key_inside, TIMES), strict=True):
        x = walk(jnp.asarray(t), key_time)
        residual, normalized = map(np.asarray, measure(jnp.asarray(t), x))
        columns.append(column(residual, normalized, reach(x, sources)))
    parts = {"initial_error": error, "initial_mean": mean_error, "earlier": earlier}
    return assembled(manifold, t0, times, columns, points, log_mass=log_mass, **parts)


def _at_draws(solution, law, t0, sources, keys):
    """The differences of log p from the law at its own draws, and the mean of their sizes.

    The law knows log p there without a boundary value problem.
    """
    t = jnp.asarray(t0)

    @jax.jit
    @jax.vmap
    def differ(x0, key):
        x, value, _ = law.known_draw(t, x0, key)
        return solution.log_prob(t, x, x0) - value

    differences = np.asarray(differ(sources, keys))
    return differences, float(np.mean(np.abs(differences)))


def _at_steps(solution, law, t0, sources, keys):
    """The differences of log p from the law at Gaussian steps from the sources.

    Those so near the cut locus that the law misses another geodesic are left out; the mean is not
    asked for.
    """
    manifold, t = solution.manifold, jnp.asarray(t0)

    # Three compiled functions, not one, for the reason above.
    @jax.jit
    @jax.vmap
    def step(x0, key):
        return manifold.exp_at(x0, jnp.sqrt(2 * t) * manifold.draw_tangent(key, x0))

    @jax.jit
    @jax.vmap
    def differ(x, x0):
        return solution.log_prob(t, x, x0) - law.log_prob_at(t, x, x0)

    x = step(sources, keys)
    distances = np.asarray(jax.jit(jax.vmap(manifold.dist_at))(x, sources))
    return np.asarray(differ(x, sources))[distances < trusted_radius(manifold, t0)], None
