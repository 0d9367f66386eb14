"""Errors of the exact kernels, measured against the float64 formulas of `_oracles`.

The points are rounded to the working precision first and the reference is evaluated at the rounded
points: the figures are the errors of the kernels, not of their input.
"""

import dataclasses
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import eigh

from .. import manifolds
from ..solvers import choose as kernels
from . import oracles as _oracles
from .experiment import markdown

CHECKED_TIMES = np.geomspace(1e-3, 20, 18)
"""The times at which errors are measured."""

_SOURCES = 4  # random sources for each time and distance
_COMPACT = np.array([0, 0.01, 0.1, 0.3, 0.6, 0.8, 0.95, 0.99, 0.999, 1])  # of the largest distance
# Further out the ambient coordinates, of size e^r, are what limits single precision.
_OPEN = np.array([0, 0.01, 0.03, 0.1, 0.3, 1, 2, 4, 5])
_FAR = np.array([6, 8, 10, 12, 15])


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """Largest errors of the exact kernel of one manifold."""

    manifold: str
    log_prob: float
    """Largest |error of log p| / (1 + |log p|)."""
    score: float
    """Largest |error of the score| / (1 + |score|), in the Riemannian norm."""
    points: int
    """Number of triples (t, x, x0) compared."""
    distances: str
    """Which distances between x and x0."""
    seconds: float
    """Time to make the kernel, compile it and compare."""


def _evaluate(manifold, t, x, x0):
    """The log-density and score of the exact kernel at arrays of times, points and sources."""
    kernel = kernels.heat_kernel(manifold, "exact")
    both = jax.jit(jax.vmap(lambda *a: (kernel.log_prob(*a), kernel.score(*a))))
    log_prob, score = both(jnp.asarray(t), jnp.asarray(x), jnp.asarray(x0))
    return np.asarray(log_prob, np.float64), np.asarray(score, np.float64)


def rounded(array):
    """Round to the working precision; the reference is evaluated at the result, in float64."""
    return np.asarray(array, jnp.result_type(float))


def _grid(distances):
    """Times and distances, all pairs, each for several sources; and the random numbers to use."""
    shape = (len(CHECKED_TIMES), len(distances), _SOURCES)
    t = np.broadcast_to(CHECKED_TIMES[:, None, None], shape).ravel()
    r = np.broadcast_to(np.asarray(distances)[None, :, None], shape).ravel()
    return rounded(t), r, np.random.default_rng(0)


def _row(name, start, measured, truth, score_errors, score_norms, distances):
    log_prob_errors = np.abs(measured - truth) / (1 + np.abs(truth))
    return Accuracy(
        manifold=name,
        # np.max keeps NaN: a kernel that fails anywhere is seen.
        log_prob=float(np.max(log_prob_errors)),
        score=float(np.max(score_errors / (1 + score_norms))),
        points=len(truth),
        distances=distances,
        seconds=time.perf_counter() - start,
    )


def _unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def _sphere(name, manifold, oracle, farthest, distances):
    """Spheres, and rotations as a sphere modulo sign."""
    start = time.perf_counter()
    t, r, random = _grid(farthest * _COMPACT)
    x0 = rounded(_unit(random.normal(size=(len(t), *manifold.shape))))
    across = random.normal(size=x0.shape)
    across = _unit(across - np.sum(across * x0, -1, keepdims=True) * x0)
    x = rounded(np.cos(r)[:, None] * x0 + np.sin(r)[:, None] * across)
    x = np.where((r == np.pi)[:, None], -x0, x)  # exactly opposite
    measured, score = _evaluate(manifold, t, x, x0)

    t, x, x0 = (np.asarray(a, np.float64) for a in (t, x, x0))
    x, x0 = _unit(x), _unit(x0)
    # Kahan's formula, accurate at both ends.
    r = 2 * np.arctan2(np.linalg.norm(x - x0, axis=-1), np.linalg.norm(x + x0, axis=-1))
    if oracle is _oracles.so3:  # the sign of the quaternion that is closer
        x0, r = np.where((r > np.pi / 2)[:, None], -x0, x0), np.minimum(r, np.pi - r)
    truth, slope = _oracles.with_slope(oracle, t, r)
    away = np.cos(r)[:, None] * x - x0
    size = np.linalg.norm(away, axis=-1, keepdims=True)
    expected = slope[:, None] * away / np.where(size > 1e-12, size, 1.0)
    errors = np.linalg.norm(score - expected, axis=-1)
    return _row(name, start, measured, truth, errors, np.abs(slope), distances)


def _torus(name):
    start = time.perf_counter()
    manifold = manifolds.Torus(2)
    t, r, random = _grid(np.pi * _COMPACT)
    x0 = rounded(random.uniform(-np.pi, np.pi, size=(len(t), 2)))
    signs = random.choice([-1, 1], size=x0.shape)
    other = np.pi * random.choice(_COMPACT, size=len(t))
    x = rounded(x0 + signs * np.stack([r, other], axis=-1))
    measured, score = _evaluate(manifold, t, x, x0)

    t, x, x0 = (np.asarray(a, np.float64)[..., None] for a in (t, x, x0))
    d = np.remainder(x[..., 0] - x0[..., 0] + np.pi, 2 * np.pi) - np.pi
    truth, slope = _oracles.with_slope(_oracles.circle, t, d)
    errors = np.linalg.norm(score - slope, axis=-1)
    norms = np.linalg.norm(slope, axis=-1)
    return _row(name, start, measured, truth.sum(-1), errors, norms, "0 to pi per angle")


def _hyperbolic(name, manifold, oracle, distances=_OPEN):
    start = time.perf_counter()
    t, r, random = _grid(distances)
    n = manifold.dim
    x0 = _lift(rounded(0.5 * random.normal(size=(len(t), n))))
    direction = _unit(random.normal(size=(len(t), n)))
    # A unit tangent vector at x0: the boost of one at the origin.
    along = np.sum(direction * x0[:, 1:], axis=-1, keepdims=True)
    spatial = direction + along / (1 + x0[:, :1]) * x0[:, 1:]
    x = _lift(rounded(np.cosh(r)[:, None] * x0[:, 1:] + np.sinh(r)[:, None] * spatial))
    x = np.where((r == 0)[:, None], x0, x)
    measured, score = _evaluate(manifold, t, rounded(x), rounded(x0))

    t = np.asarray(t, np.float64)
    cosh = x[:, 0] * x0[:, 0] - np.sum(x[:, 1:] * x0[:, 1:], axis=-1)
    change = x - x0
    chord = np.maximum(np.sum(change[:, 1:] ** 2, axis=-1) - change[:, 0] ** 2, 0)
    r = np.where(chord > 1, np.arccosh(np.maximum(cosh, 1)), 2 * np.arcsinh(np.sqrt(chord) / 2))
    truth, slope = _oracles.with_slope(oracle, t, r)
    away = (cosh[:, None] * x - x0) / np.where(r == 0, 1.0, np.sinh(r))[:, None]
    error = (score - slope[:, None] * away)[:, 1:]
    # The length of a tangent vector: its radial part shrinks by 1 / x_0.
    radius = np.linalg.norm(x[:, 1:], axis=-1, keepdims=True)
    radial = np.sum(error * x[:, 1:] / radius, axis=-1, keepdims=True)
    transverse = error - radial * x[:, 1:] / radius
    errors = np.sqrt((radial[:, 0] / x[:, 0]) ** 2 + np.sum(transverse**2, axis=-1))
    described = f"{distances[0]:g} to {distances[-1]:g}"
    return _row(name, start, measured, truth, errors, np.abs(slope), described)


def _lift(spatial):
    """The point of the hyperboloid over the rounded spatial coordinates."""
    spatial = np.asarray(spatial, np.float64)
    return np.column_stack([np.sqrt(1 + np.sum(spatial**2, axis=-1)), spatial])


def _spd(name, spread, described):
    """Matrices x0 with eigenvalues between exp(-2 spread) and exp(2 spread)."""
    start = time.perf_counter()
    manifold = manifolds.SPD(2)
    t, r, random = _grid(_OPEN)
    factor = _turns(random, len(t)) * np.exp(random.uniform(-spread, spread, size=(len(t), 1, 2)))
    x0 = _symmetric(rounded(factor @ np.swapaxes(factor, 1, 2)))
    # A geodesic of length r from x0 in a random direction.
    columns = factor @ _turns(random, len(t))
    mix = random.uniform(0, 2 * np.pi, size=len(t))
    logarithms = r[:, None] * np.stack([np.cos(mix), np.sin(mix)], axis=-1)
    x = (columns * np.exp(logarithms)[:, None]) @ np.swapaxes(columns, 1, 2)
    x = _symmetric(rounded(np.where((r == 0)[:, None, None], x0, x)))
    measured, score = _evaluate(manifold, t, x, x0)

    t, x, x0 = (np.asarray(a, np.float64) for a in (t, x, x0))
    eigenvalues, vectors = (np.stack(a) for a in zip(*map(eigh, x, x0), strict=True))
    r1, r2 = np.log(eigenvalues).T
    log_plane, slope = _oracles.with_slope(_oracles.hyperbolic2, t / 2, (r2 - r1) / 2)
    truth = log_plane - np.log(2) - np.log(4 * np.pi * t) / 2 - (r1 + r2) ** 2 / (8 * t)
    mean = -(r1 + r2) / (4 * t)
    slopes = np.stack([mean - slope / 2, mean + slope / 2], axis=-1)
    # In the basis that makes x0 the identity and x diagonal, the score is diagonal.
    scale = np.sqrt(eigenvalues)
    whitened = np.einsum("mia,mij,mjb->mab", vectors, score, vectors)
    whitened = whitened / (scale[:, :, None] * scale[:, None])
    whitened[:, [0, 1], [0, 1]] -= slopes
    errors, norms = np.linalg.norm(whitened, axis=(1, 2)), np.linalg.norm(slopes, axis=-1)
    return _row(name, start, measured, truth, errors, norms, f"0 to {_OPEN[-1]:g}, {described}")


def _turns(random, count):
    """Random rotations of the plane."""
    a = random.uniform(0, 2 * np.pi, size=count)
    return np.moveaxis(np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]), 2, 0)


def _symmetric(x):
    """The same matrix with its lower triangle copied to the upper one."""
    x = x.copy()
    x[:, 0, 1] = x[:, 1, 0]
    return x


MEASUREMENTS: dict[str, Callable[[str], Accuracy]] = {
    "S^2": lambda name: _sphere(
        name, manifolds.Sphere(2), _oracles.sphere2, np.pi, "0 to pi (antipode)"
    ),
    "S^3": lambda name: _sphere(
        name, manifolds.Sphere(3), _oracles.sphere3, np.pi, "0 to pi (antipode)"
    ),
    "SO(3)": lambda name: _sphere(
        name, manifolds.SO3(), _oracles.so3, np.pi / 2, "0 to pi/2 (half turn)"
    ),
    "T^2": _torus,
    "H^2": lambda name: _hyperbolic(name, manifolds.Hyperbolic(2), _oracles.hyperbolic2),
    "H^3": lambda name: _hyperbolic(name, manifolds.Hyperbolic(3), _oracles.hyperbolic3),
    "SPD(2)": lambda name: _spd(name, 0.5, "cond x0 < 8"),
    # Where float32 coordinates themselves are the limit.
    "H^2 far": lambda name: _hyperbolic(name, manifolds.Hyperbolic(2), _oracles.hyperbolic2, _FAR),
    "H^3 far": lambda name: _hyperbolic(name, manifolds.Hyperbolic(3), _oracles.hyperbolic3, _FAR),
    "SPD(2) ill": lambda name: _spd(name, 2.3, "cond x0 < 1e4"),
}


@dataclasses.dataclass(frozen=True)
class Report:
    """The errors of all exact kernels."""

    precision: str
    times: tuple[float, float]
    """Smallest and largest time at which errors were measured."""
    accuracy: tuple[Accuracy, ...]
    seconds: float

    def __str__(self) -> str:
        rows = [
            [
                row.manifold,
                f"{row.log_prob:.1e}",
                f"{row.score:.1e}",
                row.distances,
                str(row.points),
                f"{row.seconds:.1f}",
            ]
            for row in self.accuracy
        ]
        header = ["manifold", "log p", "score", "distances", "points", "seconds"]
        return (
            f"Largest errors of the exact kernels, {self.precision}, "
            f"{self.times[0]:g} <= t <= {self.times[1]:g},\n"
            "as |error| / (1 + |value|), against series, image sums and integrals in float64:\n\n"
            + markdown(header, rows)
        )


def measure_all(progress: Callable[[str], None] = lambda message: None) -> Report:
    """Measure every exact kernel.

    Args:
        progress: called with a short message before each manifold.
    """
    start = time.perf_counter()
    rows = []
    for name, measure in MEASUREMENTS.items():
        progress(f"measuring {name}")
        rows.append(measure(name))
    return Report(
        precision=str(jnp.result_type(float)),
        times=(float(CHECKED_TIMES[0]), float(CHECKED_TIMES[-1])),
        accuracy=tuple(rows),
        seconds=time.perf_counter() - start,
    )
