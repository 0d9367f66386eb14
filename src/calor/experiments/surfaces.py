"""`calor bench surfaces`: kernels of surfaces that are stated by an equation, solved on the spot.

Some are round, some thin, some have handles, some nearly touch themselves.  Times are given in
units of area pi / 4, which is the square of the diameter on a sphere.  Where the truth is known, by
a formula or a solve in coordinates, errors at draws of the kernel are measured against it;
elsewhere against a solve with more functions on a finer mesh.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from ..core.types import Point
from ..heat.kernel import UnsolvedError
from ..manifolds import Sphere, Submanifold
from ..solvers.choose import heat_kernel
from ..solvers.elements.solve import solve_elements
from .experiment import hardware, markdown
from .surface_oracles import Ellipsoid, TorusOfRevolution

# When errors are measured, in units of area pi / 4; draws at each; functions of the finer solve.
TIMES = (0.003, 0.01, 0.1)
_DRAWS, _FINER = 500, 560

Truth = Callable[[float, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""log p and score at t, points x and sources x0, in rows."""


def _axes(*lengths: float) -> Callable[[Point], Array]:
    return lambda x: jnp.sum((x / jnp.array(lengths)) ** 2) - 1


def _torus(x):
    return (jnp.sqrt(x[0] ** 2 + x[1] ** 2) - 2) ** 2 + x[2] ** 2 - 1


def _pretzel(x):
    return (x[0] * (x[0] - 1) ** 2 * (x[0] - 2) + x[1] ** 2) ** 2 + x[2] ** 2 - 0.01


def _lemniscate(x):
    flat = x[0] ** 2 + x[1] ** 2
    return (flat**2 - x[0] ** 2 + x[1] ** 2) ** 2 + x[2] ** 2 - 0.02


def _tanglecube(x):
    return jnp.sum(x**4 - 5 * x**2) + 11.8


def _cassini(x):
    """Two balls with a neck between them."""
    return (x @ x + 1) ** 2 - 4 * x[0] ** 2 - 1.1


def _starfish(x):
    """Five arms: the real part of (x + iy)^5."""
    around = x[0] ** 5 - 10 * x[0] ** 3 * x[1] ** 2 + 5 * x[0] * x[1] ** 4
    return (x @ x) ** 3 + 4 * x[2] ** 2 - 0.9 * around - 0.15


def _bean(x):
    return (x @ x) ** 2 - 1.3 * x[0] * (x[0] ** 2 + x[1] ** 2) + 0.4 * x[2] ** 2 - 0.2


def _bumps(x):
    return x @ x - 1 + 0.15 * jnp.sin(5 * x[0]) * jnp.sin(5 * x[1]) * jnp.sin(5 * x[2])


class Case(NamedTuple):
    """A surface."""

    equation: Callable[[Point], Array]
    truth: Callable[[], Truth] | None = None


def _sphere() -> Truth:
    exact = heat_kernel(Sphere(2))

    def both(t, x, x0):
        with jax.enable_x64(True):
            unit = lambda a: jnp.asarray(a / np.linalg.norm(a, axis=1, keepdims=True))
            run = jax.vmap(lambda x, x0: exact.both_at(jnp.asarray(t), x, x0))
            value, score = run(unit(x), unit(x0))
            return np.asarray(value), np.asarray(score)

    return both


CASES = {
    "sphere": Case(_axes(1, 1, 1), _sphere),
    "ellipsoid .8 1.1 1.4": Case(_axes(0.8, 1.1, 1.4), lambda: Ellipsoid().log_prob_and_score),
    "ellipsoid 1 1 .2": Case(_axes(1, 1, 0.2)),
    "ellipsoid 1 1 .1": Case(_axes(1, 1, 0.1)),
    "torus 2 1": Case(_torus, lambda: TorusOfRevolution(waves=60).log_prob_and_score),
    "x^4 + y^4 + z^4 = 1": Case(lambda x: jnp.sum(x**4) - 1),
    "genus 2, pretzel": Case(_pretzel),
    "genus 2, lemniscate": Case(_lemniscate),
    "genus 5, tanglecube": Case(_tanglecube),
    "neck, Cassini": Case(_cassini),
    "starfish": Case(_starfish),
    "bean": Case(_bean),
    "bumps": Case(_bumps),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """What came out of one surface."""

    surface: str
    method: str
    seconds: float
    """With all that is compiled."""
    triangles: int
    euler: int
    t0: float
    """From when on the series speaks, in units of area pi / 4, as all times."""
    certified: tuple[float, ...]
    """Mean |error of log p| at the times, by certificate."""
    compared: str
    """With what."""
    log_prob: tuple[float, ...]
    """Mean |error of log p| at draws of the kernel, at the times."""
    score: tuple[float, ...]
    """Root mean square error of the score there, relative."""


@dataclasses.dataclass(frozen=True)
class Report:
    """All surfaces."""

    rows: tuple[Row, ...]
    hardware: str

    def __str__(self) -> str:
        named = [f"{t:g}" for t in TIMES]
        header = ["surface", "s", "triangles", "Euler", "t0", "compared with"]
        header += [f"certified {t}" for t in named] + [f"log p {t}" for t in named]
        header += [f"score {t}" for t in named]
        lines = []
        for row in self.rows:
            first = [row.surface, f"{row.seconds:.0f}", str(row.triangles), str(row.euler)]
            errors = (*row.certified, *row.log_prob, *row.score)
            rest = [f"{row.t0:.4f}", row.compared, *(f"{error:.0e}" for error in errors)]
            lines.append(first + rest if row.triangles else [row.surface, row.method])
        width = len(header)
        table = markdown(header, [line + [""] * (width - len(line)) for line in lines])
        return f"{table}\n\nTimes in units of area pi / 4; {self.hardware}."


def measure_all(
    names: Sequence[str] = (), progress: Callable[[str], None] = lambda message: None
) -> Report:
    """Solve surfaces and measure.

    Args:
        names: of those that are solved; all by default.
        progress: called with a short message before each surface.
    """
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise ValueError(f"unknown surface {unknown[0]!r}; known are {', '.join(CASES)}.")
    rows = []
    for name in names or CASES:
        progress(f"solving {name}")
        rows.append(_measured(name, CASES[name]))
    return Report(tuple(rows), hardware())


def _measured(name: str, case: Case) -> Row:
    manifold, start = Submanifold(case.equation, 3), time.perf_counter()
    try:
        kernel = solve_elements(manifold)
    except UnsolvedError as error:
        seconds = time.perf_counter() - start
        return Row(name, f"not solved: {error}", seconds, 0, 0, 0, (), "", (), ())
    seconds = time.perf_counter() - start
    unit = float(jnp.exp(kernel.log_volume)) * math.pi / 4
    compared, truth = ("truth", case.truth()) if case.truth else ("finer", _finer(manifold))
    errors = [compare(kernel, t * unit, truth) for t in TIMES]
    log_prob, score = zip(*errors, strict=True)
    certificate = kernel.certificate
    # Two corners for each edge of a closed surface: edges are three halves of its triangles.
    euler = len(kernel.elements.points) - len(kernel.elements.faces) // 2
    return Row(
        name,
        certificate.method,
        seconds,
        certificate.elements,
        euler,
        kernel.t0 / unit,
        tuple(certificate.estimate(t * unit) for t in TIMES),
        compared,
        log_prob,
        score,
    )


def _finer(manifold: Submanifold) -> Truth:
    kernel = solve_elements(manifold, functions=_FINER)
    run = jax.jit(jax.vmap(kernel.late_both, (None, 0, 0)))

    def both(t, x, x0):
        points = (jnp.asarray(a, jnp.float32) for a in (x, x0))
        value, score = run(jnp.asarray(t), *points)
        return np.asarray(value), np.asarray(score)

    return both


def compare(kernel: Any, t: float, truth: Truth, count: int = _DRAWS) -> tuple[float, float]:
    """The mean |error of log p| and the relative error of the score at draws of a kernel."""
    keys = jr.split(jr.key(7), (2, count))
    time_ = jnp.asarray(t)
    sources = jax.vmap(kernel.late_draw, (None, None, 0))
    far = jnp.exp(kernel.log_volume)  # late enough to be nearly uniform
    x0 = jax.jit(sources)(far, kernel.elements.points[0], keys[0])
    x, value, score = jax.jit(jax.vmap(kernel.known_draw, (None, 0, 0)))(time_, x0, keys[1])
    true, slope = truth(t, np.asarray(x, float), np.asarray(x0, float))
    off, size = np.linalg.norm(score - slope, axis=1), np.linalg.norm(slope, axis=1)
    gaps = np.abs(np.asarray(value) - true)
    return float(np.mean(gaps)), float(np.sqrt(np.mean(off**2) / np.mean(size**2)))
