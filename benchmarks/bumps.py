"""From an equation to a model: five bumps on a torus of revolution and on an ellipsoid.

    python benchmarks/bumps.py [torus ellipsoid] [--method pinn] [--json bumps.json] [--figure DIR]

The data are drawn from a mixture of five heat kernels, by Brownian motion in many small steps; its
density is known independently of calor (`tests/support/surfaces.py`).  Measured are the
log-likelihood of fresh draws beside that of the true density, the integral of exp(log_prob) over
the surface, and how far samples are from it.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _measure import heading, read, today, write
from own import CASES

import calor

NAMES = ("torus", "ellipsoid")
WEIGHTS = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
WIDTH, STEPS = 0.1, 256  # the time of the heat kernels, and steps of Brownian motion


class Bumps:
    """A mixture of five heat kernels around random points."""

    def __init__(self, manifold, truth, seed):
        self.manifold, self.truth = manifold, truth
        self.uniform = jax.jit(jax.vmap(manifold.random_point))
        self.walk = jax.jit(jax.vmap(lambda x, k: manifold.walk(WIDTH, x, k, STEPS)))
        self.centres = jnp.asarray(self.uniform(jr.split(jr.key(seed), len(WEIGHTS))))

    def log_prob(self, x):
        """The true density; where a series has lost its digits, far away, it is no part of it."""
        with np.errstate(invalid="ignore", divide="ignore"):
            kernels = [
                self.truth.log_prob_and_score(WIDTH, x, np.broadcast_to(c, np.shape(x)))[0]
                for c in self.centres
            ]
            return np.log(WEIGHTS @ np.nan_to_num(np.exp(kernels)))

    def draw(self, count, seed):
        """Brownian motion from the centres."""
        key_centre, key_walk = jr.split(jr.key(seed))
        start = jr.choice(key_centre, self.centres, (count,), p=jnp.asarray(WEIGHTS))
        return np.asarray(self.walk(start, jr.split(key_walk, count)))


def measure(name, method, seed, training, figures, data=10000, test=2000):
    """Solve, fit, and compare with the true density."""
    make_manifold, make_truth = CASES[name]
    manifold, truth = make_manifold(), make_truth().surface
    law = Bumps(manifold, truth, seed)
    train, fresh = law.draw(data, seed), law.draw(test, seed + 1000)
    begun = time.perf_counter()
    kernel = calor.heat_kernel(manifold, method, key=jr.key(seed))
    solved = time.perf_counter()
    model = calor.fit(kernel, train, parts="diffusion", key=jr.key(seed + 1), training=training)
    fitted = time.perf_counter()
    samples = model.sample(2000, key=jr.key(seed + 2))
    if figures is not None:
        from matplotlib import pyplot

        from calor import plots

        figure, axes = pyplot.subplots(1, 2, figsize=(9, 4.5))
        for each, title, values in zip(axes, ("data", "draws"), (train, samples), strict=True):
            plots.points(np.asarray(values)[: len(samples)], manifold, axes=each)
            each.set_title(f"{len(samples)} {title}")
        figure.savefig(Path(figures) / f"bumps_{name}.png", dpi=100, bbox_inches="tight")
    found, wanted = np.asarray(model.log_prob(fresh)), law.log_prob(fresh)
    uniform = law.uniform(jr.split(jr.key(seed + 3), 4000))
    densities = truth.volume * np.exp(np.asarray(model.log_prob(uniform)))
    return {
        "solve_seconds": round(solved - begun, 1),
        "fit_seconds": round(fitted - solved, 1),
        "steps": int(model.history.steps[-1]),
        "model": float(np.mean(found)),
        "truth": float(np.mean(wanted)),
        "gap": float(np.mean(wanted - found)),
        "gap_error": float(np.std(wanted - found) / np.sqrt(test)),
        "integral": float(np.mean(densities)),
        "integral_error": float(np.std(densities) / np.sqrt(len(densities))),
        "off_the_surface": float(jnp.max(jax.vmap(manifold.offset_at)(samples))),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(NAMES), choices=[*NAMES, []])
    parser.add_argument("--method", choices=["auto", "spectral", "pinn"], default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=calor.Training().steps)
    parser.add_argument("--reuse", type=int, help="steps that noise is used in, by default 2")
    parser.add_argument("--json")
    parser.add_argument("--figure", help="a folder for figures")
    options = parser.parse_args()
    training = calor.Training(steps=options.steps, reuse=options.reuse)
    print(heading(f"{options.method}, up to {options.steps} steps, 10000 points"))
    for name in options.names:
        row = measure(name, options.method, options.seed, training, options.figure)
        row["date"] = today()
        print(
            f"{name}: solved in {row['solve_seconds']:.0f} s, fitted in {row['fit_seconds']:.0f} s "
            f"({row['steps']} steps); log-likelihood {row['model']:.3f}, truth {row['truth']:.3f}, "
            f"gap {row['gap']:.3f} +- {row['gap_error']:.3f}; integral {row['integral']:.3f} +- "
            f"{row['integral_error']:.3f}; off the surface {row['off_the_surface']:.1e}",
            flush=True,
        )
        if options.json:
            write(options.json, read(options.json, {}) | {name: row})


if __name__ == "__main__":
    main()
