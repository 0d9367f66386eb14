"""Kernels of manifolds given by their equations, against the truth.

    python benchmarks/own.py [torus ellipsoid sphere sphere3] [--method pinn] [--json own.json]

Errors are averaged over sources and over draws of the kernel: mean |error of log p|, and the root
mean square error of the score relative to its root mean square.
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

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from surfaces import Ellipsoid, TorusOfRevolution

TIMES = (0.3, 0.5, 1.0, 2.0)


class Exact:
    """A kernel of calor with a closed form, as a truth."""

    def __init__(self, n):
        self.kernel = calor.heat_kernel(calor.Sphere(n))
        self.volume = float(jnp.exp(self.kernel.manifold.log_volume()))

    def log_prob_and_score(self, t, x, x0):
        value = jax.vmap(lambda x, x0: self.kernel.log_prob(t, x, x0))(x, x0)
        return np.asarray(value), np.asarray(
            jax.vmap(lambda x, x0: self.kernel.score(t, x, x0))(x, x0)
        )


AXES = jnp.array([0.8, 1.1, 1.4])
CASES = {
    "sphere": (lambda x: x @ x - 1, 3, lambda: Exact(2)),
    "sphere3": (lambda x: x @ x - 1, 4, lambda: Exact(3)),
    "ellipsoid": (lambda x: jnp.sum((x / AXES) ** 2) - 1, 3, lambda: Ellipsoid(AXES, 20)),
    "torus": (
        lambda x: (jnp.hypot(x[0], x[1]) - 2.0) ** 2 + x[2] ** 2 - 1.0,
        3,
        lambda: TorusOfRevolution(waves=70),
    ),
}


def measure(name, method, seed, points=1000):
    """Solve, and compare at draws."""
    constraint, size, make = CASES[name]
    manifold = calor.Submanifold(constraint, size)
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
    truth = make()
    x0 = jax.jit(jax.vmap(manifold.random_point))(jr.split(jr.key(100), points))
    keys = jr.split(jr.key(101), points)
    draw = jax.jit(jax.vmap(kernel._noised, (None, 0, 0)))
    value = jax.jit(jax.vmap(kernel._log_prob, (None, 0, 0)))
    rows = {}
    for t in sorted({kernel.t0 / 2, kernel.t0 * 1.001, *(t for t in TIMES if t > kernel.t0)}):
        time_ = jnp.asarray(t, jnp.float32)
        x, score = draw(time_, x0, keys)
        wanted, slope = truth.log_prob_and_score(t, x, x0)
        gap = np.sum((score - slope) ** 2, axis=1)
        rows[f"{t:.3g}"] = {
            "log_prob": float(np.mean(np.abs(value(time_, x, x0) - wanted))),
            "score": float(np.sqrt(np.mean(gap) / np.mean(np.sum(slope**2, axis=1)))),
        }
    return {
        "seconds": round(seconds, 1),
        "t0": kernel.t0,
        **solved,
        "volume_error": float(jnp.exp(log_volume)) / truth.volume - 1,
        "estimate": kernel.certificate.estimate(2.0),
        "errors": rows,
    }


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
    report = {}
    for name in options.names:
        for seed in range(options.seeds):
            row = report[f"{name} {options.method} {seed}"] = measure(name, options.method, seed)
            errors = ", ".join(
                f"t = {t}: {e['log_prob']:.1e} {e['score']:.1e}" for t, e in row["errors"].items()
            )
            print(
                f"{name} {seed}: {row['seconds']:.0f} s, t0 = {row['t0']:.3g}, volume "
                f"{row['volume_error']:+.1e}, estimate {row['estimate']:.1e}; {errors}",
                flush=True,
            )
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
