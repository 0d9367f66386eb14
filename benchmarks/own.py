"""Kernels of manifolds given by their equations or metric, against the truth.

    python benchmarks/own.py [torus ellipsoid ...] [--method pinn] [--json own.json]

Errors are averaged over sources and over draws: mean |error of log p|, and the root mean square
error of the score relative to its root mean square, in the Riemannian norm.  From t0 on the draws
are Brownian motion in many small steps, and once more those that the kernel makes ("own"); below t0
its own only.
"""

import argparse
import datetime
import json
import os
import platform
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import calor
from calor import calculus
from calor.geodesics import geodesic_walk

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from surfaces import Ellipsoid, TorusOfRevolution

TIMES = (0.3, 0.5, 1.0, 2.0)
STEPS = 64  # of Brownian motion


class Mapped:
    """The exact kernel of a manifold of calor, as the truth for another way to write it.

    `embed` maps points to that manifold and stretches lengths by 1/sqrt(scale).
    """

    def __init__(self, model, embed=lambda x: x, scale=1.0):
        self.kernel, self.embed, self.scale = calor.heat_kernel(model), embed, scale
        self.volume = None
        if hasattr(model, "log_volume"):
            self.volume = float(jnp.exp(model.log_volume())) * scale ** (model.dim / 2)

    def log_prob_and_score(self, manifold, t, x, x0):
        with jax.enable_x64(True):
            x, x0 = (jnp.asarray(np.asarray(y, np.float64)) for y in (x, x0))

            def value(x, x0):
                found = self.kernel._log_prob(
                    jnp.asarray(t / self.scale), self.embed(x), self.embed(x0)
                )
                return found - manifold.dim / 2 * np.log(self.scale)

            def slope(x, x0):
                return calculus.gradient(lambda x: value(x, x0), x, manifold.frame(x))

            run = jax.jit(jax.vmap(lambda x, x0: (value(x, x0), slope(x, x0))))
            return tuple(map(np.asarray, run(x, x0)))


class Solved:
    """An independent solve of the same equation (`tests/surfaces.py`)."""

    def __init__(self, surface):
        self.surface, self.volume = surface, surface.volume

    def log_prob_and_score(self, manifold, t, x, x0):
        return self.surface.log_prob_and_score(t, x, x0)


AXES = jnp.array([0.8, 1.1, 1.4])
SYMMETRIC = jnp.array([[[1.0, 0], [0, 0]], [[0, 1], [1, 0]], [[0, 0], [0, 1]]])


def orthonormal_columns(rows, columns):
    """The equations of X^T X = I, for matrices (rows, columns)."""

    def equations(x):
        x = x.reshape(rows, columns)
        return (x.T @ x - jnp.eye(columns))[jnp.triu_indices(columns)]

    return equations


def rotations():
    """R^T R = I, on the side of the identity."""
    return calor.Submanifold(orthonormal_columns(3, 3), 9, component=jnp.eye(3).ravel())


def quaternion(x):
    """Of a rotation matrix (9,): the largest column of 4 q q^T."""
    r = x.reshape(3, 3)
    turn = jnp.stack([r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]])
    block = r + r.T + (1 - jnp.trace(r)) * jnp.eye(3)
    products = jnp.block([[1 + jnp.trace(r), turn[None]], [turn[:, None], block]])
    q = products[:, jnp.argmax(jnp.diag(products))]
    return q / jnp.linalg.norm(q)


def half_plane():
    """A metric alone: the hyperbolic plane, near points of it."""
    z = jr.normal(jr.key(5), (64, 2))
    around = jnp.stack([0.4 * z[:, 0], jnp.exp(0.3 * z[:, 1])], axis=1)
    return calor.Submanifold(None, 2, lambda x: jnp.eye(2) / x[1] ** 2, around=around)


def hyperboloid(x):
    """A point of the half-plane as one of the hyperboloid."""
    square = x @ x
    return jnp.stack([1 + square, 2 * x[0], square - 1]) / (2 * x[1])


def positive_definite():
    """A metric alone: positive definite matrices ((a, b), (b, c)), near the identity."""

    def metric(x):
        a, b, c = x
        inverse = jnp.array([[c, -b], [-b, a]]) / (a * c - b * b)
        return jnp.einsum("ij,ajk,kl,bli->ab", inverse, SYMMETRIC, inverse, SYMMETRIC)

    spd, identity = calor.SPD(2), jnp.eye(2)
    draw = lambda key: spd.exp(identity, 0.3 * spd._random_tangent(key, identity))
    points = jax.vmap(draw)(jr.split(jr.key(5), 64))
    return calor.Submanifold(None, 3, metric, around=points[:, *jnp.triu_indices(2)])


def implicit(constraint, size, symmetries=None):
    """How to make a manifold from its equations."""
    return lambda: calor.Submanifold(constraint, size, symmetries=symmetries)


def ring(x):
    """The torus of revolution."""
    return (jnp.hypot(x[0], x[1]) - 2.0) ** 2 + x[2] ** 2 - 1.0


def turn_ring(key):
    """A random symmetry of it: a turn about the axis, perhaps after a reflection at the equator."""
    key_angle, key_side = jr.split(key)
    angle = jr.uniform(key_angle, maxval=2 * jnp.pi)
    c, s, side = jnp.cos(angle), jnp.sin(angle), 2.0 * jr.bernoulli(key_side) - 1
    return lambda x: jnp.stack([c * x[0] - s * x[1], s * x[0] + c * x[1], side * x[2]])


CASES = {
    "sphere": (implicit(lambda x: x @ x - 1, 3), lambda: Mapped(calor.Sphere(2))),
    "sphere3": (implicit(lambda x: x @ x - 1, 4), lambda: Mapped(calor.Sphere(3))),
    "ellipsoid": (
        implicit(lambda x: jnp.sum((x / AXES) ** 2) - 1, 3),
        lambda: Solved(Ellipsoid(AXES, 20)),
    ),
    "torus": (implicit(ring, 3), lambda: Solved(TorusOfRevolution(waves=70))),
    "torus, symmetries": (
        implicit(ring, 3, turn_ring),
        lambda: Solved(TorusOfRevolution(waves=70)),
    ),
    "flat torus": (
        implicit(lambda x: jnp.stack([x[:2] @ x[:2], x[2:] @ x[2:]]) - 1, 4),
        lambda: Mapped(calor.Torus(2), lambda x: jnp.arctan2(x[1::2], x[::2])),
    ),
    # |dR|^2 = 8 |dq|^2
    "rotations": (rotations, lambda: Mapped(calor.SO3(), quaternion, 8.0)),
    "stiefel": (implicit(orthonormal_columns(4, 2), 8), lambda: None),  # no truth is known
    "half-plane": (half_plane, lambda: Mapped(calor.Hyperbolic(2), hyperboloid)),
    "spd": (
        positive_definite,
        lambda: Mapped(calor.SPD(2), lambda x: jnp.tensordot(x, SYMMETRIC, axes=1)),
    ),
}


def measure(name, method, seed, points=1000):
    """Solve, and compare at draws."""
    make_manifold, make_truth = CASES[name]
    manifold = make_manifold()
    begun = time.perf_counter()
    solve = calor.solve_spectral if method == "spectral" else calor.solve
    kernel = solve(manifold, key=jr.key(seed), progress=False)
    seconds = time.perf_counter() - begun
    if method == "spectral":
        log_volume, terms = kernel.log_volume, len(kernel.eigenvalues)
        solved = {"terms": terms, "degree": len(kernel.functions.blocks)}
    else:
        log_volume = kernel.solution.constants[-1]
        solved = {"windows": len(kernel.solution.edges) - 1, "settings": kernel.about["settings"]}
    report = {
        "seconds": round(seconds, 1),
        "t0": kernel.t0,
        **solved,
        "estimate": kernel.certificate.estimate(min(2.0, kernel.certificate.times[-1])),
        "mass": max(map(abs, np.expm1(kernel.certificate.log_mass))),
    }
    truth = make_truth()
    if truth is None:
        return report
    if truth.volume is not None and manifold.is_compact:
        report["volume_error"] = float(jnp.exp(log_volume)) / truth.volume - 1
    x0 = jax.jit(jax.vmap(manifold.random_point))(jr.split(jr.key(100), points))
    keys = jr.split(jr.key(101), points)
    own = jax.jit(jax.vmap(kernel._noised, (None, 0, 0)))
    walk = jax.jit(jax.vmap(lambda t, x, k: geodesic_walk(manifold, t, x, k, STEPS), (None, 0, 0)))
    slope = jax.jit(jax.vmap(kernel._score, (None, 0, 0)))
    value = jax.jit(jax.vmap(kernel._log_prob, (None, 0, 0)))
    rows = {}
    last = min(2.0, kernel.latest())
    times = {kernel.t0 / 2, kernel.t0 * 1.001, *(t for t in TIMES if kernel.t0 < t <= last)}
    square = jax.jit(jax.vmap(lambda x, v: manifold._inner(x, v, v)))

    def compare(t, x, score):
        wanted, truly = truth.log_prob_and_score(manifold, float(t), x, x0)
        gap, size = square(x, score - truly), square(x, jnp.asarray(truly, x.dtype))
        return {
            "log_prob": float(np.mean(np.abs(value(t, x, x0) - wanted))),
            "score": float(np.sqrt(np.mean(gap) / np.mean(size))),
        }

    for t in sorted(times):
        time_ = jnp.asarray(t, jnp.float32)
        rows[f"{t:.3g} own"] = compare(time_, *own(time_, x0, keys))
        if t > kernel.t0:
            x = walk(time_, x0, keys)
            rows[f"{t:.3g}"] = compare(time_, x, slope(time_, x, x0))
    return report | {"errors": rows}


def write(path, title, row):
    """Add a row to a file, or replace it."""
    report = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(report | {title: row}, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(CASES), choices=[*CASES, []])
    parser.add_argument("--method", choices=["spectral", "pinn"], default="spectral")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json")
    options = parser.parse_args()
    print(
        f"{datetime.date.today()}, jax {jax.__version__}, {os.cpu_count()} {platform.machine()} "
        f"cores, {options.method}, default budget"
    )
    for name in options.names:
        for seed in range(options.seeds):
            row = measure(name, options.method, seed)
            row["date"] = str(datetime.date.today())
            errors = ", ".join(
                f"t = {t}: {e['log_prob']:.1e} {e['score']:.1e}"
                for t, e in row.get("errors", {}).items()
            )
            volume = f", volume {row['volume_error']:+.1e}" if "volume_error" in row else ""
            print(
                f"{name} {seed}: {row['seconds']:.0f} s, t0 = {row['t0']:.3g}{volume}, estimate "
                f"{row['estimate']:.1e}, mass {row['mass']:.1e}; {errors}",
                flush=True,
            )
            if options.json:
                write(Path(options.json), f"{name} {options.method} {seed}", row)


if __name__ == "__main__":
    main()
