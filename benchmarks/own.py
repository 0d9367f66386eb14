"""Kernels of manifolds given by their equations or metric, against the truth.

    python benchmarks/own.py [torus ellipsoid ...] [--method pinn] [--json file]

Errors are averaged over sources and over draws: mean |error of log p|, and the root mean square
error of the score relative to its root mean square, in the Riemannian norm.  From t0 on the draws
are Brownian motion in many small steps, and once more those that the kernel makes ("own"); below t0
its own only.  With a cache, `auto` takes what was solved before it from there.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _measure import heading, read, today, write

import calor
from calor.heat.early.certify import certify_law
from calor.heat.early.geodesics import GeodesicLaw
from calor.solvers.spectral.series import SpectralKernel

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from descriptions import CASES

TIMES = (0.3, 0.5, 1.0, 2.0)
STEPS = 64  # of Brownian motion


def measure_law(name, seed, points=1000):
    """The law along geodesics alone, at its own draws, beside what its certificate says."""
    make_manifold, make_truth = CASES[name]
    manifold, truth = make_manifold(), make_truth()
    if truth is None:
        raise SystemExit(f"{name}: no truth is known to compare the law with")
    law, rows = GeodesicLaw(manifold), {}
    certificate = certify_law(law, max(TIMES), key=jr.key(seed))
    x0 = jax.jit(jax.vmap(manifold.random_point))(jr.split(jr.key(100), points))
    draw = jax.jit(jax.vmap(law.known_draw, (None, 0, 0)))
    for t in (0.1, *TIMES):
        x, value, score = draw(jnp.asarray(t), x0, jr.split(jr.key(101), points))
        rows[f"{t:g}"] = compare(manifold, truth, t, x, x0, value, score)
        rows[f"{t:g}"]["estimate"] = certificate.estimate(t)
    return {"errors": rows}


def compare(manifold, truth, t, x, x0, value, score):
    """The errors of log p and of the score."""
    wanted, truly = truth.log_prob_and_score(manifold, float(t), x, x0)
    square = jax.jit(jax.vmap(lambda x, v: manifold.inner_at(x, v, v)))
    gap, size = square(x, score - truly), square(x, jnp.asarray(truly, x.dtype))
    return {
        "log_prob": float(np.mean(np.abs(value - wanted))),
        "score": float(np.sqrt(np.mean(gap) / np.mean(size))),
    }


def measure(name, method, seed, cache, recipe, points=1000):
    """Solve, and compare at draws."""
    make_manifold, make_truth = CASES[name]
    manifold = make_manifold()
    begun = time.perf_counter()
    if recipe is None:
        kernel = calor.heat_kernel(manifold, method, key=jr.key(seed), cache=cache)
    else:
        kernel = calor.solve(manifold, recipe, key=jr.key(seed))
    seconds = time.perf_counter() - begun
    if isinstance(kernel, SpectralKernel):
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
        "estimate_at_t0": kernel.certificate.estimate(kernel.t0),
        "mass": max(map(abs, np.expm1(kernel.certificate.log_mass))),
    }
    truth = make_truth()
    if truth is None:
        return report
    if truth.volume is not None and manifold.is_compact():
        report["volume_error"] = float(jnp.exp(log_volume)) / truth.volume - 1
    x0 = jax.jit(jax.vmap(manifold.random_point))(jr.split(jr.key(100), points))
    keys = jr.split(jr.key(101), points)
    own = jax.jit(jax.vmap(kernel.draw_with_score, (None, 0, 0)))
    walk = jax.jit(jax.vmap(lambda t, x, k: manifold.walk(t, x, k, STEPS), (None, 0, 0)))
    slope = jax.jit(jax.vmap(kernel.score_at, (None, 0, 0)))
    value = jax.jit(jax.vmap(kernel.log_prob_at, (None, 0, 0)))
    rows = {}
    last = min(2.0, kernel.latest())
    times = {kernel.t0 / 2, kernel.t0 * 1.001, *(t for t in TIMES if t <= last)}
    for t in sorted(times):
        time_ = jnp.asarray(t, jnp.float32)
        draws = {f"{t:.3g} own": own(time_, x0, keys)}
        if t > kernel.t0:
            x = walk(time_, x0, keys)
            draws[f"{t:.3g}"] = x, slope(time_, x, x0)
        for title, (x, score) in draws.items():
            found = value(time_, x, x0), score
            rows[title] = compare(manifold, truth, t, x, x0, *found)
    return report | {"errors": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(CASES), choices=[*CASES, []])
    parser.add_argument("--method", choices=["spectral", "pinn", "auto", "law"], default="spectral")
    parser.add_argument("--cache", help="a folder for solved kernels; by default a new one")
    parser.add_argument("--points", type=int, help="of a round of the network, for less time")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json")
    options = parser.parse_args()
    recipe, budget = None, "default budget"
    if options.points is not None and options.method != "pinn":
        parser.error("--points is of the network: --method pinn")
    if options.points is not None:
        budget = f"{options.points} points, {options.rounds} rounds"
        recipe = calor.recipes.pairs(points=options.points, rounds=options.rounds)
    print(heading(f"{options.method}, {budget}"))
    for name in options.names:
        for seed in range(options.seeds):
            if options.method == "law":
                row = measure_law(name, seed)
            else:
                with tempfile.TemporaryDirectory() as fresh:
                    row = measure(name, options.method, seed, options.cache or fresh, recipe)
            row["date"] = today()
            errors = ", ".join(
                f"t = {t}: " + " ".join(f"{value:.1e}" for value in e.values())
                for t, e in row.get("errors", {}).items()
            )
            kept = ("seconds", "t0", "volume_error", "estimate", "mass")
            about = ", ".join(f"{k} {row[k]:.2g}" for k in kept if k in row)
            print(f"{name} {seed}: {about}; {errors}", flush=True)
            if options.json:
                title = f"{name} {options.method} {seed}"
                write(options.json, read(options.json, {}) | {title: row})


if __name__ == "__main__":
    main()
