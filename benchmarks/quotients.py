"""Heat kernels of quotients and products against truths written independently.

    python benchmarks/quotients.py ["Klein bottle" ...] [--points 1000]

Over the times of each case: the largest |mass - 1| in the manifold's own volume and the largest
t |residual of the heat equation|, both in float64; the largest error of log p and the root mean
square error of the score relative to its root mean square, at draws, in float32.  The truth of the
score is a central difference of the truth of p.
"""

import argparse
import os
import sys
from pathlib import Path

# Much is compiled and little computed: code that is less optimized is ready sooner.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _measure import heading

import calor

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from quotients import CASES

STEP = 1e-4


def mass_and_residual(case):
    """The largest of both over the times."""
    kernel = calor.heat_kernel(case.make(), "exact")
    x0 = kernel.manifold.random_point(jr.key(5))
    log_prob = jax.jit(jax.vmap(kernel.log_prob_at, (None, 0, None)))
    residual = jax.jit(jax.vmap(lambda t, x: calor.log_heat_residual(kernel, t, x, x0), (None, 0)))
    draw = jax.jit(jax.vmap(kernel.draw, (None, None, 0)))
    masses, residuals = [], []
    for t in case.times:
        x, weights = case.grid(t, np.asarray(x0))
        density = np.exp(log_prob(jnp.asarray(t), jnp.asarray(x), x0))
        masses.append(abs(np.sum(weights * density) / case.copies - 1))
        x = draw(jnp.asarray(t), x0, jr.split(jr.key(6), 100))
        residuals.append(t * np.max(np.abs(residual(jnp.asarray(t), x))))
    return max(masses), max(residuals)


def errors(case, points):
    """Of log p and of the score in float32, the truth in float64 at the same numbers."""
    kernel = calor.heat_kernel(case.make(), "exact")
    manifold = kernel.manifold
    x0 = manifold.random_point(jr.key(5))
    draw = jax.jit(jax.vmap(kernel.draw, (None, None, 0)))
    value = jax.jit(jax.vmap(kernel.log_prob_at, (None, 0, None)))
    score = jax.jit(jax.vmap(kernel.score_at, (None, 0, None)))
    largest, gaps, sizes = 0.0, 0.0, 0.0
    for t in case.times:
        time = jnp.asarray(t, jnp.float32)
        x = draw(time, x0, jr.split(jr.key(6), points))
        found, slope = value(time, x, x0), score(time, x, x0)
        with jax.enable_x64(True):
            place, origin = (jnp.asarray(np.asarray(a), jnp.float64) for a in (x, x0))
            wide = jax.vmap(manifold.project_at)(place)
            origin = manifold.project_at(origin)
            density = case.density(float(time), wide, origin)
            frames = jax.vmap(manifold.frame)(wide)
            exp = jax.vmap(manifold.exp_at)
            inner = jax.vmap(manifold.inner_at)
            for e in np.moveaxis(np.asarray(frames), 1, 0):
                ahead, behind = (
                    case.density(float(time), exp(wide, sign * STEP * e), origin)
                    for sign in (1, -1)
                )
                truth = (ahead - behind) / (2 * STEP * density)
                along = np.asarray(inner(wide, jnp.asarray(np.asarray(slope), jnp.float64), e))
                gaps += t * np.sum((along - truth) ** 2)
                sizes += t * np.sum(truth**2)
        largest = max(largest, float(np.max(np.abs(found - np.log(density)))))
    return largest, np.sqrt(gaps / sizes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(CASES), choices=[*CASES, []])
    parser.add_argument("--points", type=int, default=1000)
    options = parser.parse_args()
    print(heading(f"{options.points} draws\n"))
    print("| manifold | times | mass | residual | log p, float32 | score, float32 |")
    print("|---|---|---|---|---|---|")
    for name in options.names:
        case = CASES[name]
        with jax.enable_x64(True):
            mass, residual = mass_and_residual(case)
        value, score = errors(case, options.points)
        times = ", ".join(f"{t:g}" for t in case.times)
        figures = " | ".join(f"{figure:.0e}" for figure in (mass, residual, value, score))
        print(f"| {name} | {times} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
