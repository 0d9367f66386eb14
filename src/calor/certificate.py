r"""Certificates: how accurate a solved kernel is, measured at points that training never saw.

Let phi be a solution with residual R = dphi/dt - Delta phi - |grad phi|^2, and let e be its error
at t0.  By the Feynman-Kac formula its error at (t, x) is, exactly,

    phi - log p = log E exp( e(Y_t0) + int_t0^t R(s, Y_s) ds ),

Y being Brownian motion on its way from x0 to x.  So with e and R bounded by eps_B and eps_R(s),

    |phi - log p| <= eps_B + int_t0^t eps_R(s) ds,                                          (bound)

which is theorem C.3 of the paper with the residual resolved in time.  The mean of |R| over Brownian
motion in place of its maximum estimates the typical error.

What is measured is the largest residual among finitely many points: the bound speaks of the region
that they fill, not of what lies beyond it.

The law along shot geodesics is measured in the same way, as a solution that is exact as t -> 0.
"""

import dataclasses
from typing import Optional

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ._types import Key
from .cloud_solutions import grown_clouds
from .collocation import trusted_radius
from .geodesics import GeodesicLaw, geodesic_walk
from .heat import AbstractHeatKernel
from .manifolds import AbstractManifold, AbstractQuotient, PointCloud, Submanifold
from .shorttime import geodesic_random_walk
from .solutions import AbstractSolution

# Half of the points of a certificate are Brownian motion at time t, half at this multiple of t.
FURTHER = 1.5
# How many times, equally spaced on a logarithmic scale.
_TIMES = 12
# If rounding to single precision moves the score of the law by more than this, its use ends.
_ROUNDING = 1e-3
# A kernel whose typical error may exceed this, for each point of a cloud, is called poor.
POOR = 0.05


class Certificate(eqx.Module):
    """Initial error, residuals by time, and what follows from them."""

    manifold: AbstractManifold
    t0: float = eqx.field(static=True)
    initial_error: float = eqx.field(static=True)
    """The largest |phi - log p| at t0; zero if the solution is exact as t -> 0."""
    times: tuple[float, ...] = eqx.field(static=True)
    largest: tuple[float, ...] = eqx.field(static=True)
    """The largest |R| at each time."""
    mean: tuple[float, ...] = eqx.field(static=True)
    """The mean |R| over Brownian motion at each time."""
    normalized: tuple[float, ...] = eqx.field(static=True)
    """The mean of |R| over the largest term of the equation, as in the paper's table."""
    log_mass: tuple[float, ...] = eqx.field(static=True)
    """The logarithm of the total mass at each time."""
    radius: tuple[float, ...] = eqx.field(static=True)
    """The distance from x0 that the points reach at each time."""
    points: int = eqx.field(static=True)
    """The number of points at each time."""
    initial_mean: float | None = eqx.field(static=True, default=None)
    """The mean of |phi - log p| at t0, if it was measured."""
    earlier: Optional["Certificate"] = None
    """Of what speaks below t0, if that was measured too."""

    @property
    def law(self) -> str:
        """From what law the points were drawn."""
        return f"half Brownian motion at time t, half at time {FURTHER:g} t"

    @property
    def residual(self) -> float:
        """The largest residual at all times."""
        return float(np.max(self.largest))

    def bound(self, t: float) -> float:
        """The bound on |error of log p| at time t, for points as near as those of the certificate.

        Infinite beyond the last time; below t0 it is the one of the short-time law if that was
        measured, else the initial error.
        """
        if self.earlier is not None and t < self.t0:
            return self.earlier.bound(t)
        return self._accumulated(t, self.initial_error, self.largest)

    def estimate(self, t: float) -> float:
        """The typical error of log p at time t: the bound with mean residuals."""
        if self.earlier is not None and t < self.t0:
            return self.earlier.estimate(t)
        first = self.initial_error if self.initial_mean is None else self.initial_mean
        return self._accumulated(t, first, self.mean)

    def after(self, t: float, earlier: "Certificate") -> "Certificate":
        """The same solution from a later time on; below it, what another certificate says."""
        t = float(t)
        first = {"initial_error": self.bound(t), "initial_mean": self.estimate(t)}
        times = (t, *(time for time in self.times if time > t))
        return dataclasses.replace(self, t0=t, earlier=earlier, **first, **self._at(times))

    def until(self, t: float) -> "Certificate":
        """The same solution up to a time, or to its end."""
        t = min(float(t), self.times[-1])
        return dataclasses.replace(self, **self._at((*(s for s in self.times if s < t), t)))

    def _at(self, times):
        """What was measured, interpolated to other times."""
        rows = ("largest", "mean", "normalized", "log_mass", "radius")
        found = {
            row: tuple(np.interp(times, self.times, getattr(self, row)).tolist()) for row in rows
        }
        return {"times": times, **found}

    def _accumulated(self, t, first, residuals):
        t = float(t)
        if not t > 0:
            raise ValueError(f"Certificate: the time t must be positive, got t = {t:g}.")
        if t > self.times[-1] * (1 + 1e-6):
            return float("inf")
        # Piecewise linear between the times, constant before the first.
        grid = np.unique(np.clip([self.t0, *self.times, t], self.t0, max(t, self.t0)))
        values = np.interp(grid, self.times, residuals)
        return first + float(np.trapezoid(values, grid))

    @property
    def poor(self) -> str | None:
        """What is wrong with a kernel that should not be trusted, or nothing."""
        error = self.estimate(float(self.times[-1]))
        # The points of a cloud move like the factors of a product, whose errors add up.
        allowed = POOR * (self.manifold.size if isinstance(self.manifold, PointCloud) else 1)
        if error <= allowed:
            return None
        return (
            f"log p on {self.manifold} may be off by {error:.2g} (more than {allowed:g}) at "
            f"t = {self.times[-1]:g}: it was trained too little; see its certificate"
        )

    def __str__(self) -> str:
        lines = [
            f"Certificate of the heat kernel of {self.manifold}",
            f"initial error {self.initial_error:.1e} at t = {self.t0:g}; {self.points} points at "
            f"each time, {self.law}",
            "",
            f"{'t':>7} {'reach':>7} {'max |R|':>9} {'mean |R|':>9} {'normalized':>10} "
            f"{'mass - 1':>9} {'estimate':>9} {'bound':>9}",
        ]
        for i, t in enumerate(self.times):
            lines.append(
                f"{t:7.3g} {self.radius[i]:7.2f} {self.largest[i]:9.1e} {self.mean[i]:9.1e} "
                f"{self.normalized[i]:10.1e} {np.expm1(self.log_mass[i]):9.1e} "
                f"{self.estimate(t):9.1e} {self.bound(t):9.1e}"
            )
        if self.earlier is not None:
            t, law = self.earlier.times[-1], self.earlier
            lines += [
                "",
                f"below t = {self.t0:g} a law for small times speaks: estimate "
                f"{law.estimate(t / 2):.1e} at t = {t / 2:.3g}, {law.estimate(t):.1e} at "
                f"t = {t:.3g}",
            ]
        if self.poor:
            lines += ["", f"Poor: {self.poor}."]
        return "\n".join(lines)

    def plot(self, axes=None):
        """Draw residual, estimate and bound against time; returns the matplotlib figure."""
        from .plots import certificate

        return certificate(self, axes)


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
    sources = _sources(manifold, points, key_source)
    error, mean_error, log_mass, earlier = 0.0, None, 0.0, None
    if t0 > 0:
        many = jnp.tile(sources, (4,) + (1,) * (sources.ndim - 1))
        error, mean_error, log_mass = _initial_error(solution, law, t0, many, key_initial)
    if isinstance(law, GeodesicLaw):
        # The solution starts from the law, and inherits its error.
        earlier = certify_law(law, t0, key=jr.fold_in(key, 1), rounded=False)
        error, log_mass = error + earlier.bound(t0), log_mass + earlier.log_mass[-1]
        mean_error = (mean_error or 0.0) + earlier.estimate(t0)

    factors = jnp.where(jnp.arange(points) % 2 == 0, 1.0, FURTHER)

    # Three compiled functions, not one: eigendecompositions of batches that XLA runs side by side
    # on a CPU wait for each other's threads, for ever.
    @jax.jit
    def walk(t, key):
        one = lambda x0, factor, key: _walk(manifold, t * factor, x0, key)
        return jax.vmap(one)(sources, factors, jr.split(key, points))

    @jax.jit
    def measure(t, x):
        terms = jax.vmap(lambda x, x0: solution.terms(t, x, x0))(x, sources)
        return jax.vmap(lambda terms: (terms.residual(), terms.normalized_residual()))(terms)

    reach = jax.jit(jax.vmap(lambda x, x0: _distance(manifold, x, x0)))
    times = np.geomspace(t0 or t1 / 50, t1, _TIMES)
    columns = []
    for t, key_time in zip(times, jr.split(key_inside, _TIMES), strict=True):
        x = walk(jnp.asarray(t), key_time)
        residual, normalized = map(np.asarray, measure(jnp.asarray(t), x))
        columns.append(_column(residual, normalized, reach(x, sources)))
    parts = {"initial_error": error, "initial_mean": mean_error, "earlier": earlier}
    return _certificate(manifold, t0, times, columns, log_mass, points, **parts)


def _column(residual, normalized, reach):
    """What is kept of one time: every other point is Brownian motion at that time."""
    at_t = residual[::2]
    return (
        np.max(np.abs(residual)),
        np.mean(np.abs(at_t)),
        np.mean(normalized[::2]),
        np.mean(at_t),
        np.max(reach),
    )


def _certificate(manifold, t0, times, columns, log_mass, points, **parts):
    """From the columns of all times, and the logarithm of the mass at t0."""
    largest, mean, normalized, signed, radius = np.array(columns, dtype=float).T
    # The logarithm of the mass changes at the rate of the mean residual over the kernel.
    grid = np.concatenate([[t0], times])
    rates = np.interp(grid, times, signed)
    masses = log_mass + np.cumsum(np.diff(grid) * (rates[1:] + rates[:-1]) / 2)
    return Certificate(
        manifold=manifold,
        t0=t0,
        times=tuple(times.tolist()),
        largest=tuple(largest.tolist()),
        mean=tuple(mean.tolist()),
        normalized=tuple(normalized.tolist()),
        log_mass=tuple(masses.tolist()),
        radius=tuple(radius.tolist()),
        points=points,
        **parts,
    )


def certify_law(
    law: GeodesicLaw, last: float, *, key: Key, points: int = 128, rounded: bool = True
) -> Certificate:
    """Measure the law along shot geodesics, in float64, up to a time.

    It ends earlier where coordinates far away are so distorted that rounding to single precision
    decides about the score, unless it is not used `rounded`.
    """
    times, columns = np.geomspace(last / 50, last, _TIMES), []
    with jax.enable_x64(True):
        keys = jr.split(key, _TIMES + 1)
        sources = _sources(law.manifold, points, keys[0])
    for t, key_time in zip(times, keys[1:], strict=True):
        with jax.enable_x64(True):
            shots = _shots(law, jnp.asarray(t), sources, jr.split(key_time, points))
            shots = {name: np.asarray(values) for name, values in shots.items()}
        if rounded and not _survives_rounding(law, t, sources, shots) and len(columns) > 1:
            break
        residual = shots["residual"]
        columns.append(_column(residual, np.abs(residual) / shots["largest"], shots["length"]))
    parts = 0.0, times[: len(columns)], columns, 0.0, points
    return _certificate(law.manifold, *parts, initial_error=0.0)


def _survives_rounding(law, t, sources, shots):
    """Whether the scores are nearly the same in single precision."""
    with jax.enable_x64(False):
        start = t, sources, shots["basis"], shots["v"]
        rounded = _scores(law, *(jnp.asarray(a, jnp.float32) for a in start))
    with jax.enable_x64(True):
        gaps = np.asarray(rounded, float) - shots["score"]
        gap, size = (float(_mean_square(law, shots["x"], w)) for w in (gaps, shots["score"]))
    return gap < _ROUNDING**2 * size


@eqx.filter_jit
def _shots(law, t, sources, keys):
    """Draws of the law, and what it leaves of the equation there."""
    factors = jnp.where(jnp.arange(len(sources)) % 2 == 0, 1.0, FURTHER)

    def shoot(row):
        x0, factor, key = row
        basis = law.manifold.orthonormal(x0)
        v = law.velocity(factor * t, x0, basis, key)
        x, _, score = law._along(t, x0, basis, v)
        residual, largest = law.residual(t, x0, basis, v)
        found = {"residual": residual, "largest": largest, "length": jnp.sqrt(v @ v)}
        return {"basis": basis, "v": v, "x": x, "score": score, **found}

    return jax.lax.map(shoot, (sources, factors, keys), batch_size=64)


@eqx.filter_jit
def _scores(law, t, sources, bases, velocities):
    return jax.vmap(lambda *shot: law._along(t, *shot)[2])(sources, bases, velocities)


@eqx.filter_jit
def _mean_square(law, x, vectors):
    return jnp.mean(jax.vmap(lambda x, w: law.manifold._inner(x, w, w))(x, vectors)[::2])


# A symmetric space looks the same from everywhere; a manifold given by equations does not.


def _sources(manifold, points, key):
    if isinstance(manifold, Submanifold):
        drawn = jax.jit(jax.vmap(manifold._random_point))(jr.split(key, points))
        return drawn.astype(float)
    if isinstance(manifold, PointCloud):
        return jnp.asarray(grown_clouds(manifold, points, key))
    space = manifold.cover if isinstance(manifold, AbstractQuotient) else manifold
    origin = space.origin()  # pyright: ignore
    return jnp.broadcast_to(origin, (points, *origin.shape))


def _walk(manifold, t, x0, key):
    if isinstance(manifold, Submanifold):
        return geodesic_walk(manifold, t, x0, key)
    return geodesic_random_walk(manifold, t, x0, key)


def _distance(manifold, x, x0):
    """The distance, or the chord where that would be a boundary value problem."""
    if isinstance(manifold, Submanifold):
        return jnp.sqrt(manifold._inner(x0, x - x0, x - x0))
    return manifold._dist(x, x0)


def _initial_error(solution, law, t0, sources, key):
    """The largest and mean difference from the short-time law at t0, and the log of the mass there.

    On a symmetric space the points are Gaussian steps from the source, without those so near the
    cut locus that the law misses another geodesic, and the mean is not asked for; on a manifold
    given by equations they are draws of the law, which knows log p there.
    """
    manifold, t = solution.manifold, jnp.asarray(t0)
    keys = jr.split(key, len(sources))
    if isinstance(law, GeodesicLaw):

        @jax.jit
        @jax.vmap
        def compare(x0, key):
            x, value, _ = law.draw(t, x0, key)
            return solution.log_prob(t, x, x0) - value

        differences = np.asarray(compare(sources, keys))
        mean = float(np.mean(np.abs(differences)))
        return float(np.max(np.abs(differences))), mean, float(np.log(np.mean(np.exp(differences))))

    @jax.jit
    @jax.vmap
    def step(x0, key):
        return manifold._exp(x0, jnp.sqrt(2 * t) * manifold._random_tangent(key, x0))

    @jax.jit
    @jax.vmap
    def difference(x, x0):
        return solution.log_prob(t, x, x0) - law._log_prob(t, x, x0)

    x = step(sources, keys)
    distances = np.asarray(jax.jit(jax.vmap(manifold._dist))(x, sources))
    differences = np.asarray(difference(x, sources))[distances < trusted_radius(manifold, t0)]
    return float(np.max(np.abs(differences))), None, float(np.log(np.mean(np.exp(differences))))
