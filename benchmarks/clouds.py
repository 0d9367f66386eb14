"""Kernels of point clouds: accuracy on molecules, residuals, speed; and the solve that ships.

    python benchmarks/clouds.py solve      writes src/calor/solvers/shipped/cloud.calor
    python benchmarks/clouds.py accuracy residuals speed steps

Accuracy: relative errors of scores against the exact permanent, mean over clouds of nine atoms of
QM9, which the network never saw, at draws of Brownian motion, float32.  Residuals: of the log heat
equation over its largest term, float64, clouds of 19 and 29 atoms.  Steps: of training, at the
budgets of `calor reproduce qm9`.  Results go to benchmarks/results/clouds.json.
"""

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _measure import read, today, write

import calor
from calor import molecules, qm9
from calor.experiments.experiment import hardware
from calor.experiments.molecules import EXPERIMENT
from calor.heat.clouds.kernel import CloudKernel
from calor.heat.clouds.matchings import Bethe, Labelled, Sinkhorn
from calor.solvers.forms.clouds import CloudSolution

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "clouds.json"
TIMES = (0.01, 0.03, 0.1, 0.2, 0.4, 1.0, 3.0)
PAPER = {0.01: 0.0066, 0.03: 0.1391, 0.1: 0.1543, 0.2: 0.1941, 0.4: 0.1747}


def solve():
    out = ROOT / "src" / "calor" / "solvers" / "shipped" / "cloud.calor"
    kernel = calor.solve(
        calor.PointCloud(9, 3),
        key=jr.key(0),
        resume=out.with_suffix(".partial"),
        certificate_points=64,
    )
    calor.save(out, kernel)
    print(kernel.certificate)


def atoms(n, count, types):
    """Clouds of molecules with n atoms: places, and one-hot elements of length one."""
    data = qm9.load()
    chosen = np.flatnonzero(np.diff(data.ends) == n)
    chosen = np.random.default_rng(0).permutation(chosen)[:count]
    manifold = calor.PointCloud(n, 8, centred=3)
    clouds = molecules.to_clouds(data.molecules(chosen), manifold)
    clouds[..., 3:] /= molecules.TYPE_SCALE
    return jnp.asarray(clouds if types else clouds[..., :3])


def accuracy(n=9, count=128):
    rows = {}
    for types in (False, True):
        x0 = atoms(n, count, types)
        manifold = calor.PointCloud(n, x0.shape[-1], centred=3)
        exact = calor.heat_kernel(manifold, "exact")
        kernels = {
            "labelled": CloudKernel(manifold, Labelled()),
            "Sinkhorn": CloudKernel(manifold, Sinkhorn()),
            "Bethe": CloudKernel(manifold, Bethe()),
            "learned": calor.heat_kernel(manifold, "pinn"),
        }
        draw = jax.jit(jax.vmap(exact.draw, (None, 0, 0)))
        truth = jax.jit(jax.vmap(exact.score_at, (None, 0, 0)))
        for name, kernel in kernels.items():
            score = jax.jit(jax.vmap(kernel.score_at, (None, 0, 0)))
            errors = []
            for t in TIMES:
                x = draw(jnp.float32(t), x0, jr.split(jr.key(1), len(x0)))
                true = np.asarray(truth(jnp.float32(t), x, x0))
                off = np.asarray(score(jnp.float32(t), x, x0)) - true
                norms = [np.sqrt(np.sum(a**2, axis=(1, 2))) for a in (off, true)]
                errors.append(float(np.mean(norms[0] / norms[1])))
            label = f"{name}, {'places and elements' if types else 'places'}"
            rows[label] = errors
            print(f"{label:32s}", " ".join(f"{e:.4f}" for e in errors), flush=True)
    return {"times": TIMES, "n": n, "clouds": len(x0), "relative score error": rows}


def residuals(sizes=(19, 29), count=32):
    found = {}
    for n in sizes:
        x0 = np.asarray(atoms(n, count, False), np.float64)
        with jax.enable_x64(True):
            manifold = calor.PointCloud(n, 3, centred=3)
            solution = calor.heat_kernel(manifold, "pinn").solution
            assert isinstance(solution, CloudSolution)
            measure = jax.jit(
                lambda t, x, x0: jax.lax.map(
                    lambda pair: solution.terms(t, *pair).normalized_residual(), (x, x0)
                )
            )
            rows = []
            for t in PAPER:
                noise = np.random.default_rng(0).normal(size=x0.shape)
                x = x0 + np.sqrt(2 * t) * (noise - noise.mean(axis=1, keepdims=True))
                rows.append(
                    float(np.mean(measure(jnp.asarray(t), jnp.asarray(x), jnp.asarray(x0))))
                )
        found[str(n)] = rows
        assert len(x0) == count
        print(f"n = {n:2d}", " ".join(f"{r:.4f}" for r in rows), flush=True)
    return {"times": list(PAPER), "the paper": list(PAPER.values()), "clouds": count, "n": found}


def speed(batch=128, sizes=(4, 9, 12, 16, 29, 64)):
    """CPU milliseconds of one core for the scores of a batch: other programs do not count."""
    rows = {}
    for n in sizes:
        manifold = calor.PointCloud(n, 3)
        methods = ("exact", "learned", "bethe", "sinkhorn", "labelled")
        for method in methods:
            if method == "exact" and n > 12:
                continue
            kernel = calor.heat_kernel(manifold, {"learned": "pinn"}.get(method, method))
            x, x0 = 2 * jr.normal(jr.key(0), (2, batch, n, 3))
            run = jax.jit(
                jax.vmap(lambda x, x0, kernel=kernel: kernel.score_at(jnp.float32(0.3), x, x0))
            )
            jax.block_until_ready(run(x, x0))
            seconds = []
            for _ in range(5):
                start = time.process_time()
                jax.block_until_ready(run(x, x0))
                seconds.append(time.process_time() - start)
            rows.setdefault(method, {})[str(n)] = round(1e3 * min(seconds), 2)
        print(n, {m: r.get(str(n)) for m, r in rows.items()}, flush=True)
    return {"batch": batch, "milliseconds": rows}


def steps():
    """Seconds of a step of training, after those that compile."""
    found = {}
    for budget, count in (("default", 50), ("full", 2)):
        settings = EXPERIMENT.budgets[budget].choices
        manifold, data = molecules.molecule_space(settings.largest), qm9.load()
        chosen = data.chosen("train", settings.largest)[:1000]
        train = molecules.to_clouds(data.molecules(chosen), manifold)
        for method in ("exact", "pinn", "labelled"):
            if method == "exact" and settings.largest > 12:
                continue
            model = calor.fit(
                calor.heat_kernel(manifold, method),
                train,
                parts="diffusion",
                key=jr.key(0),
                validation=train[:1],
                network=settings.network,
                training=calor.Training(2 * count, settings.training.batch, validate_every=count),
                t_min=settings.times[0],
                t1=settings.times[1],
            )
            seconds = float(np.diff(model.history.seconds)[0]) / count
            found.setdefault(budget, {})[method] = round(seconds, 4)
            print(budget, method, f"{seconds:.4f} s a step", flush=True)
    return {"seconds of a step": found}


if __name__ == "__main__":
    asked = sys.argv[1:] or ["accuracy", "residuals", "speed", "steps"]
    if "solve" in asked:
        solve()
    report = read(RESULTS, {})
    for function in (accuracy, residuals, speed, steps):
        name = function.__name__
        if name in asked:
            report[name] = {"date": today(), "hardware": hardware(), **function()}
            write(RESULTS, report)
