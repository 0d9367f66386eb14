"""Errors of the exact kernels, measured against the float64 formulas of `oracles`.

The points are rounded to the working precision first and the reference is evaluated at the rounded
points: the figures are the errors of the kernels, not of their input.
"""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import eigh

from .. import manifolds
from ..solvers.choose import heat_kernel
from . import oracles
from .experiment import markdown

CHECKED_TIMES = np.geomspace(1e-3, 20, 18)
"""The times at which errors are measured."""

_SOURCES = 4  # random sources for each time and distance
_COMPACT = np.array([0, 0.01, 0.1, 0.3, 0.6, 0.8, 0.95, 0.99, 0.999, 1])  # of the largest distance
# Further out the ambient coordinates, of size e^r, are what limits single precision.
_OPEN = np.array([0, 0.01, 0.03, 0.1, 0.3, 1, 2, 4, 5])
_FAR = np.array([6, 8, 10, 12, 15])

Pair = tuple[np.ndarray, np.ndarray]


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


class Case(NamedTuple):
    """The kernel of one manifold beside its reference."""

    manifold: manifolds.AbstractManifold
    distances: np.ndarray
    described: str
    pairs: Callable[[np.ndarray, np.random.Generator, manifolds.AbstractManifold], Pair]
    """Points x and x0 at given distances, rounded to the working precision."""
    judge: Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]
    """The truth of log p at t, x, x0, and the lengths of the error of the score and of the score.

    All in float64; the score that is judged comes last.
    """

    def measure(self, name: str) -> Accuracy:
        """The largest errors over all times and distances, each for several sources."""
        start = time.perf_counter()
        shape = (len(CHECKED_TIMES), len(self.distances), _SOURCES)
        t = rounded(np.broadcast_to(CHECKED_TIMES[:, None, None], shape).ravel())
        r = np.broadcast_to(self.distances[None, :, None], shape).ravel()
        x, x0 = self.pairs(r, np.random.default_rng(0), self.manifold)
        kernel = heat_kernel(self.manifold, "exact")
        both = jax.jit(jax.vmap(lambda *a: (kernel.log_prob(*a), kernel.score(*a))))
        found = both(*map(jnp.asarray, (t, rounded(x), rounded(x0))))
        measured, score, t, x, x0 = (np.asarray(a, np.float64) for a in (*found, t, x, x0))
        truth, errors, norms = self.judge(t, x, x0, score)
        # np.max keeps NaN: a kernel that fails anywhere is seen.
        return Accuracy(
            manifold=name,
            log_prob=float(np.max(np.abs(measured - truth) / (1 + np.abs(truth)))),
            score=float(np.max(errors / (1 + norms))),
            points=len(truth),
            distances=self.described,
            seconds=time.perf_counter() - start,
        )


def rounded(array: np.ndarray) -> np.ndarray:
    """Round to the working precision; the reference is evaluated at the result, in float64."""
    return np.asarray(array, jnp.result_type(float))


def _unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def _sphere_pairs(r, random, manifold):
    """Spheres, and rotations as a sphere modulo sign."""
    x0 = rounded(_unit(random.normal(size=(len(r), *manifold.shape))))
    across = random.normal(size=x0.shape)
    across = _unit(across - np.sum(across * x0, -1, keepdims=True) * x0)
    x = rounded(np.cos(r)[:, None] * x0 + np.sin(r)[:, None] * across)
    return np.where((r == np.pi)[:, None], -x0, x), x0  # exactly opposite


def _judge_sphere(oracle, t, x, x0, score):
    x, x0 = _unit(x), _unit(x0)
    # Kahan's formula, accurate at both ends.
    r = 2 * np.arctan2(np.linalg.norm(x - x0, axis=-1), np.linalg.norm(x + x0, axis=-1))
    if oracle is oracles.so3:  # the sign of the quaternion that is closer
        x0, r = np.where((r > np.pi / 2)[:, None], -x0, x0), np.minimum(r, np.pi - r)
    truth, slope = oracles.with_slope(oracle, t, r)
    away = np.cos(r)[:, None] * x - x0
    size = np.linalg.norm(away, axis=-1, keepdims=True)
    expected = slope[:, None] * away / np.where(size > 1e-12, size, 1.0)
    return truth, np.linalg.norm(score - expected, axis=-1), np.abs(slope)


def _torus_pairs(r, random, manifold):
    x0 = rounded(random.uniform(-np.pi, np.pi, size=(len(r), 2)))
    signs = random.choice([-1, 1], size=x0.shape)
    other = np.pi * random.choice(_COMPACT, size=len(r))
    return rounded(x0 + signs * np.stack([r, other], axis=-1)), x0


def _judge_torus(t, x, x0, score):
    d = np.remainder(x - x0 + np.pi, 2 * np.pi) - np.pi
    truth, slope = oracles.with_slope(oracles.circle, t[:, None], d)
    errors = np.linalg.norm(score - slope, axis=-1)
    return truth.sum(-1), errors, np.linalg.norm(slope, axis=-1)


def _hyperbolic_pairs(r, random, manifold):
    n = manifold.dim
    x0 = _lift(rounded(0.5 * random.normal(size=(len(r), n))))
    direction = _unit(random.normal(size=(len(r), n)))
    # A unit tangent vector at x0: the boost of one at the origin.
    along = np.sum(direction * x0[:, 1:], axis=-1, keepdims=True)
    spatial = direction + along / (1 + x0[:, :1]) * x0[:, 1:]
    x = _lift(rounded(np.cosh(r)[:, None] * x0[:, 1:] + np.sinh(r)[:, None] * spatial))
    return np.where((r == 0)[:, None], x0, x), x0


def _judge_hyperbolic(oracle, t, x, x0, score):
    cosh = x[:, 0] * x0[:, 0] - np.sum(x[:, 1:] * x0[:, 1:], axis=-1)
    change = x - x0
    chord = np.maximum(np.sum(change[:, 1:] ** 2, axis=-1) - change[:, 0] ** 2, 0)
    r = np.where(chord > 1, np.arccosh(np.maximum(cosh, 1)), 2 * np.arcsinh(np.sqrt(chord) / 2))
    truth, slope = oracles.with_slope(oracle, t, r)
    away = (cosh[:, None] * x - x0) / np.where(r == 0, 1.0, np.sinh(r))[:, None]
    error = (score - slope[:, None] * away)[:, 1:]
    # The length of a tangent vector: its radial part shrinks by 1 / x_0.
    radius = np.linalg.norm(x[:, 1:], axis=-1, keepdims=True)
    radial = np.sum(error * x[:, 1:] / radius, axis=-1, keepdims=True)
    transverse = error - radial * x[:, 1:] / radius
    errors = np.sqrt((radial[:, 0] / x[:, 0]) ** 2 + np.sum(transverse**2, axis=-1))
    return truth, errors, np.abs(slope)


def _lift(spatial):
    """The point of the hyperboloid over the rounded spatial coordinates."""
    spatial = np.asarray(spatial, np.float64)
    return np.column_stack([np.sqrt(1 + np.sum(spatial**2, axis=-1)), spatial])


def _spd_pairs(spread, r, random, manifold):
    """Matrices x0 with eigenvalues between exp(-2 spread) and exp(2 spread)."""
    factor = _turns(random, len(r)) * np.exp(random.uniform(-spread, spread, size=(len(r), 1, 2)))
    x0 = _symmetric(rounded(factor @ np.swapaxes(factor, 1, 2)))
    # A geodesic of length r from x0 in a random direction.
    columns = factor @ _turns(random, len(r))
    mix = random.uniform(0, 2 * np.pi, size=len(r))
    logarithms = r[:, None] * np.stack([np.cos(mix), np.sin(mix)], axis=-1)
    x = (columns * np.exp(logarithms)[:, None]) @ np.swapaxes(columns, 1, 2)
    return _symmetric(rounded(np.where((r == 0)[:, None, None], x0, x))), x0


def _judge_spd(t, x, x0, score):
    eigenvalues, vectors = (np.stack(a) for a in zip(*map(eigh, x, x0), strict=True))
    r1, r2 = np.log(eigenvalues).T
    log_plane, slope = oracles.with_slope(oracles.hyperbolic2, t / 2, (r2 - r1) / 2)
    truth = log_plane - np.log(2) - np.log(4 * np.pi * t) / 2 - (r1 + r2) ** 2 / (8 * t)
    mean = -(r1 + r2) / (4 * t)
    slopes = np.stack([mean - slope / 2, mean + slope / 2], axis=-1)
    # In the basis that makes x0 the identity and x diagonal, the score is diagonal.
    scale = np.sqrt(eigenvalues)
    whitened = np.einsum("mia,mij,mjb->mab", vectors, score, vectors)
    whitened = whitened / (scale[:, :, None] * scale[:, None])
    whitened[:, [0, 1], [0, 1]] -= slopes
    return truth, np.linalg.norm(whitened, axis=(1, 2)), np.linalg.norm(slopes, axis=-1)


def _turns(random, count):
    """Random rotations of the plane."""
    a = random.uniform(0, 2 * np.pi, size=count)
    return np.moveaxis(np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]), 2, 0)


def _symmetric(x):
    """The same matrix with its lower triangle copied to the upper one."""
    x = x.copy()
    x[:, 0, 1] = x[:, 1, 0]
    return x


def _round(manifold, oracle, farthest, described):
    judge = partial(_judge_sphere, oracle)
    return Case(manifold, farthest * _COMPACT, described, _sphere_pairs, judge)


def _hyperbolic(n, oracle, distances=_OPEN):
    described, judge = f"{distances[0]:g} to {distances[-1]:g}", partial(_judge_hyperbolic, oracle)
    return Case(manifolds.Hyperbolic(n), distances, described, _hyperbolic_pairs, judge)


def _spd(spread, described):
    described = f"0 to {_OPEN[-1]:g}, {described}"
    return Case(manifolds.SPD(2), _OPEN, described, partial(_spd_pairs, spread), _judge_spd)


CASES = {
    "S^2": _round(manifolds.Sphere(2), oracles.sphere2, np.pi, "0 to pi (antipode)"),
    "S^3": _round(manifolds.Sphere(3), oracles.sphere3, np.pi, "0 to pi (antipode)"),
    "SO(3)": _round(manifolds.SO3(), oracles.so3, np.pi / 2, "0 to pi/2 (half turn)"),
    "T^2": Case(
        manifolds.Torus(2), np.pi * _COMPACT, "0 to pi per angle", _torus_pairs, _judge_torus
    ),
    "H^2": _hyperbolic(2, oracles.hyperbolic2),
    "H^3": _hyperbolic(3, oracles.hyperbolic3),
    "SPD(2)": _spd(0.5, "cond x0 < 8"),
    # Where float32 coordinates themselves are the limit.
    "H^2 far": _hyperbolic(2, oracles.hyperbolic2, _FAR),
    "H^3 far": _hyperbolic(3, oracles.hyperbolic3, _FAR),
    "SPD(2) ill": _spd(2.3, "cond x0 < 1e4"),
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
    for name, case in CASES.items():
        progress(f"measuring {name}")
        rows.append(case.measure(name))
    return Report(
        precision=str(jnp.result_type(float)),
        times=(float(CHECKED_TIMES[0]), float(CHECKED_TIMES[-1])),
        accuracy=tuple(rows),
        seconds=time.perf_counter() - start,
    )
