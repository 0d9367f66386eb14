r"""Exact draws from the heat kernel of an isotropic space, from a Gaussian tangent vector.

Let z be a standard Gaussian in the tangent space at x0.  The map

    x = exp_x0( sqrt(2t) m(t, |z|) z )

draws from the heat kernel when m matches the two radial laws, quantile by quantile: the fraction
of Brownian paths within distance r = sqrt(2t) m |z| equals the fraction of Gaussian vectors shorter
than |z|.  In flat space m = 1.  log m is smooth in log t and |z| and is kept as a Chebyshev series.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.integrate import cumulative_simpson
from scipy.interpolate import PchipInterpolator
from scipy.special import gammainc, gammaincc

from ...core.numerics import safe_sqrt
from ...core.types import Key, Point, Scalar
from ...manifolds import AbstractManifold
from .chebyshev import ChebyshevTable, chebyshev_nodes

_TIME_NODES, _LENGTH_NODES, _GRID = 40, 48, 3001
# Standard deviations of the Gaussian beyond its typical length sqrt(n) that are tabulated; single
# precision normal variates do not reach further.
_REACH = 6.0


class RadialSampler:
    """The factor m(t, |z|), tabulated for times between `t_min` and `t_max`; a constant.

    Below `t_min` m - 1 is proportional to t.  Above `t_max` the law on a compact space is uniform;
    on a non-compact one the distance is asymptotically Gaussian, of mean `growth` t and variance
    2t, and its law at `t_max` is carried on accordingly.
    """

    def __init__(
        self,
        dim: int,
        log_density: Callable[[np.ndarray, np.ndarray], np.ndarray],
        radius: float,
        t_min: float,
        t_max: float,
        growth: float = 0.0,
    ):
        """Tabulate the radial law of a kernel.

        Args:
            dim: dimension n of the space.
            log_density: log of the law of the distance r at time t, up to a constant, on arrays.
            radius: the largest distance there is (infinite on a non-compact space).
            t_min: smallest tabulated time.
            t_max: largest tabulated time.
            growth: speed at which the distance of Brownian motion grows at late times.
        """
        self.t_min: float = t_min
        self.t_max: float = t_max
        self.growth: float = growth
        self.length_max: float = float(np.sqrt(dim)) + _REACH
        lengths = self.length_max * (chebyshev_nodes(_LENGTH_NODES) + 1) / 2
        span = np.log(t_max / t_min)
        times = t_min * np.exp(span * (chebyshev_nodes(_TIME_NODES) + 1) / 2)
        lower, upper = gammainc(dim / 2, lengths**2 / 2), gammaincc(dim / 2, lengths**2 / 2)
        # Clustered at both ends, where the law vanishes like a power of the distance.
        fraction = (1 - np.cos(np.pi * np.linspace(0, 1, _GRID))) / 2
        reach = growth * times + np.sqrt(2 * times) * (self.length_max + 2)
        r = np.minimum(radius, reach)[:, None] * fraction
        log_densities = log_density(np.broadcast_to(times[:, None], r.shape), r)
        distances = [_match(*row, lower, upper) for row in zip(r, log_densities, strict=True)]
        flat = np.sqrt(2 * times)[:, None] * lengths
        self.table: ChebyshevTable = ChebyshevTable(np.log(np.stack(distances) / flat)[None])

    def __call__(self, t: Scalar, length: Scalar) -> Float[Array, ""]:
        """m(t, length)."""
        clipped = jnp.clip(t, self.t_min, self.t_max)
        x = 2 * jnp.log(clipped / self.t_min) / np.log(self.t_max / self.t_min) - 1
        y = 2 * jnp.minimum(length, self.length_max) / self.length_max - 1
        factor = jnp.exp(self.table(x, y)[0])
        early = 1 + (factor - 1) * (t / self.t_min)
        # sqrt(2t) m |z| = growth t + sqrt(t / t_max) (distance at t_max - growth t_max)
        after = jnp.maximum(t, self.t_max)
        spread = self.t_max if self.growth == 0 else after
        flat = jnp.sqrt(2 * after) * jnp.maximum(length, 1e-6)
        drift = self.growth * (after - jnp.sqrt(after * self.t_max)) / flat
        late = factor * jnp.sqrt(spread / after) + drift
        return jnp.where(t < self.t_min, early, late)

    def draw(self, manifold: AbstractManifold, t: Scalar, x0: Point, key: Key) -> Point:
        """A draw from the kernel around x0."""
        z = manifold.draw_tangent(key, x0)
        length = safe_sqrt(manifold.inner_at(x0, z, z))
        return manifold.exp_at(x0, jnp.sqrt(2 * t) * self(t, length) * z)


def _match(r, log_density, lower, upper):
    """Distances whose lower and upper tail probabilities are the given ones."""
    density = np.exp(log_density - np.max(log_density))
    below = cumulative_simpson(density, x=r, initial=0)
    above = cumulative_simpson(density[::-1], x=r[-1] - r[::-1], initial=0)[::-1]
    total = below[-1]
    below, above = below / total, above / total
    # Each tail is inverted where it is small, on logarithmic scales: both are powers at the ends.
    rising = (below > 1e-300) & (below < 0.7) & (r > 0)
    falling = (above > 1e-300) & (above < 0.7)
    first = np.exp(
        PchipInterpolator(*_strictly(np.log(below[rising]), np.log(r[rising])))(
            np.log(np.minimum(lower, 0.65))
        )
    )
    tail, distance = np.log(above[falling])[::-1], r[falling][::-1]
    second = PchipInterpolator(*_strictly(tail, distance))(np.log(np.minimum(upper, 0.65)))
    return np.where(lower < 0.5, first, second)


def _strictly(x, y):
    """Drop points where x does not increase (rounding in a far tail)."""
    keep = np.concatenate([[True], np.diff(np.maximum.accumulate(x)) > 0])
    return x[keep], y[keep]


def concrete(function: Callable[..., Any], *arguments: np.ndarray) -> np.ndarray:
    """Evaluate a JAX function of numbers on arrays, to NumPy, even while something is traced."""
    with jax.ensure_compile_time_eval():
        arrays = [jnp.asarray(argument).ravel() for argument in arguments]
        values = jax.jit(jax.vmap(function))(*arrays)
        return np.asarray(values, dtype=np.float64).reshape(arguments[0].shape)
