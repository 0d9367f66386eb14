"""How fast learned kernels are, beside a network of the paper's size, and how they draw.

    python benchmarks/learned.py [--batch 128] [--repeats 50] [--json learned.json]

One core, after compilation, medians. The network of the paper's size (4 x 256) is untrained: its
speed does not depend on its weights. Draws on SPD(10) are compared by their cost and by two moments
that are known exactly, the variance 2nt of log det and the mean n exp((n+1)t/2) of the trace.
"""

from _measure import heading, median_time, one_core, write

one_core()

import argparse
import platform

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import calor
from calor.heat.chains import metropolis_walk


def kernels():
    """Solved kernels and, beside each, a kernel with a network of the paper's size."""
    cases = {}
    for name, manifold in {
        "S^2": calor.Sphere(2),
        "SO(3)": calor.SO3(),
        "SPD(10)": calor.SPD(10),
    }.items():
        solved = calor.heat_kernel(manifold, "pinn")
        cases[f"{name} learned"] = solved
        plan = calor.recipes.paper().plan(manifold)
        cases[f"{name} paper's size"] = calor.LearnedKernel(
            manifold,
            plan.law,
            plan.start(jr.key(0)),
            *plan.interval,
            solved.certificate,
            "{}",
            None,
        )
    return cases


def speed(kernel, batch, repeats):
    """Milliseconds of log p and score for a batch."""
    manifold = kernel.manifold
    keys = jr.split(jr.key(0), batch)
    t = jnp.exp(jr.uniform(jr.key(1), (batch,), minval=np.log(0.1), maxval=0.0))
    x0 = jax.vmap(manifold.random_point)(keys)
    if not manifold.is_compact():  # matrices that float32 can still hold at t = 1
        move = lambda k, eye: manifold.exp(eye, 0.3 * manifold.random_tangent(k, eye))
        x0 = jax.vmap(move, (0, None))(keys, manifold.origin())
    draws = calor.heat_kernel(manifold, "pinn")
    x = jax.jit(jax.vmap(lambda t, x0, k: draws.sample(t, x0, key=k)))(t, x0, keys)
    assert bool(jnp.all(jnp.isfinite(x)))
    row = {}
    for what in ("log_prob", "score"):
        call = jax.jit(jax.vmap(getattr(kernel, what)))
        row[what] = median_time(lambda call=call: call(t, x, x0), repeats)[1]
    return row


def draws(kernel, batch, t=0.3, n=10):
    """Cost and moments of both samplers of SPD(10)."""
    eye, time = jnp.eye(n), jnp.asarray(t)
    density = lambda x: kernel.log_prob_at(time, x, eye)
    samplers = {"fast": lambda key: kernel.sample_with_acceptance(time, eye, key=key)}
    for steps in (50, 200):
        samplers[f"mcmc, {steps} steps"] = lambda key, steps=steps: metropolis_walk(
            kernel.manifold, density, time, eye, key, steps
        )
    rows = {}
    for name, sampler in samplers.items():
        draw = jax.jit(jax.vmap(sampler))
        milliseconds = median_time(lambda draw=draw: draw(jr.split(jr.key(0), batch)), 5)[1]
        found = [draw(jr.split(jr.key(i), batch)) for i in range(1, 13)]
        x = np.concatenate([np.asarray(x, np.float64) for x, _ in found])
        log_det = np.linalg.slogdet(x)[1]
        rows[name] = {
            "ms": milliseconds,
            "acceptance": float(np.mean([np.mean(a) for _, a in found])),
            "log det variance": float(np.var(log_det) / (2 * n * t)),
            "trace": float(np.mean(np.trace(x, axis1=1, axis2=2)) / (n * np.exp((n + 1) * t / 2))),
        }
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--json")
    options = parser.parse_args()
    print(heading(f"batch {options.batch}, ms", f"one {platform.machine()} core"))
    cases = kernels()
    report = {"speed": {}, "draws": {}}
    for name, kernel in cases.items():
        row = report["speed"][name] = speed(kernel, options.batch, options.repeats)
        print(f"{name:22} log p {row['log_prob']:.3f}   score {row['score']:.3f}", flush=True)
    report["draws"] = draws(cases["SPD(10) learned"], options.batch)
    for name, row in report["draws"].items():
        print(f"SPD(10) t = 0.3, {name:16}", "  ".join(f"{k} {v:.3g}" for k, v in row.items()))
    if options.json:
        write(options.json, report)


if __name__ == "__main__":
    main()
