"""How accurate solved kernels are, and how long solving takes: the paper's tables beside ours.

    python benchmarks/solve.py [--only sphere:2 spd:10 ...] [--seeds 3] [--paper] [--write]
    python benchmarks/solve.py --table          # print what was measured, without measuring

Every run solves from nothing with `recipes.default()`, or with `recipes.paper` at a reduced budget,
and compares with the exact kernel in float64 where there is one. Results are gathered in
`benchmarks/solve.json`; `--write` puts the kernels of seed 0 into the package.
"""

import argparse
import datetime
import json
import os
import platform
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import calor
from calor.manifolds.names import manifold_named
from calor.solvers import check as validation
from calor.solvers.forms.symmetric import RadialSolution, Spreading

RESULTS = Path(__file__).with_name("solve.json")
SHIPPED = ("sphere:2", "so3", "spd:2", "spd:3", "spd:10")
# log p and score errors of the paper's table, at t = 0.3, 0.5, 1, 2, 4.
PAPER = {
    "sphere:2": (
        [0.0054, 0.0079, 0.0016, 0.0016, 0.0016],
        [0.0281, 0.0182, 0.0027, 0.0006, 0.0002],
    ),
    "so3": ([0.0006, 0.0055, 0.0029, 0.0058, 0.0232], [0.0024, 0.0060, 0.0004, 0.0000, 0.0077]),
}
RESIDUAL_TIMES = (0.1, 0.3, 0.5, 1.0)
PAPER_RESIDUAL = {"spd:10": [0.0048, 0.0035, 0.0034, 0.0060]}
# The paper trained for up to a day on a GPU; this is what fits beside the rest on two cores.
PAPER_BUDGET = {
    "sphere:2": dict(width=64, batch=256, steps=2000),
    "so3": dict(width=64, batch=256, steps=2000),
    "spd:10": dict(width=64, batch=64, steps=1000),
}
ALL_TIMES = (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 4.0, 5.0)
ROUNDS = {"spd:15": 2}  # fewer rounds of points where a round takes minutes


def errors(kernel):
    """Mean errors of log p and score, averaged over draws of the kernel and uniform points."""
    rows = []
    for row in validation.against_exact(kernel, jr.key(12), ALL_TIMES, points=4000):
        if row["points"] == "draws":
            rows.append({"t": row["t"]})
        rows[-1][row["points"]] = row
    return rows


def spd2_errors(kernel):
    """The largest error of log p for |r| <= 4, by time, in float64."""
    exact = calor.heat_kernel(calor.SPD(2), "exact")
    axis = np.linspace(-4, 4, 41)
    r = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    r = r[np.linalg.norm(r, axis=1) <= 4]
    worst = {}
    with jax.enable_x64(True):
        x = jax.vmap(lambda r: jnp.diag(jnp.exp(r)))(jnp.asarray(r))
        for t in (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0):
            values = [
                jax.vmap(lambda x: k.log_prob_at(jnp.asarray(t), x, jnp.eye(2)))(x)
                for k in (kernel, exact)
            ]
            worst[str(t)] = float(jnp.max(jnp.abs(values[0] - values[1])))
    return worst


def residuals(kernel, points=1000):
    """Mean normalized residuals on points of Brownian motion, with and without the network."""
    manifold = kernel.manifold
    solution = kernel.solution
    with jax.enable_x64(True):
        solutions = {"network": solution}
        if isinstance(solution, RadialSolution) and isinstance(solution.form, Spreading):
            silent = Spreading(manifold, 0.0)
            solutions["closed form"] = RadialSolution(
                manifold, silent, solution.edges, solution.networks, solution.log_masses
            )
        rows = {}
        for name, one in solutions.items():
            rows[name] = [normalized(one, manifold, t, points) for t in RESIDUAL_TIMES]
    return rows


def normalized(solution, manifold, t, points):

    origin = manifold.origin()

    def residual(key):
        x = manifold.walk(jnp.asarray(t), origin, key)
        return solution.terms(jnp.asarray(t), x, origin).normalized_residual()

    return float(jnp.mean(jax.jit(jax.vmap(residual))(jr.split(jr.key(77), points))))


def run(name, seed, recipe, label):
    """Solve once and measure."""
    manifold = manifold_named(name)
    start = time.perf_counter()
    kernel = calor.solve(manifold, recipe, key=jr.key(seed))
    seconds = time.perf_counter() - start
    result = {
        "manifold": name,
        "recipe": label,
        "seed": seed,
        "seconds": round(seconds, 1),
        "date": str(datetime.date.today()),
        "hardware": f"{os.cpu_count()} cores, {platform.machine()}, jax {jax.__version__}",
    }
    certificate = kernel.certificate
    result["bound"] = {f"{t:.3g}": certificate.bound(t) for t in certificate.times}
    result["estimate"] = {f"{t:.3g}": certificate.estimate(t) for t in certificate.times}
    result["initial_error"] = certificate.initial_error
    if name == "spd:2" and label == "calor":
        result["largest"] = spd2_errors(kernel)
    elif not name.startswith("spd"):
        result["errors"] = errors(kernel)
        if name.startswith("hyperbolic"):  # far out float32 cannot hold the points
            with jax.enable_x64(True):
                result["float64_errors"] = errors(kernel)
        if name == "so3" and label == "calor":  # the kernel of its cover, solved on the way
            result["cover_errors"] = errors(kernel.cover)
    if name.startswith("spd"):
        result["residual"] = residuals(kernel)
    return kernel, result


def store(result):
    """Replace the result of the same run, if there is one."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    same = lambda r: all(r[k] == result[k] for k in ("manifold", "recipe", "seed"))
    results = [r for r in results if not same(r)] + [result]
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def figures(values):
    return " / ".join(f"{v:.1e}" for v in values)


def worst(results, pick):
    """The worst of the seeds, entry by entry."""
    return np.max([pick(r) for r in results], axis=0)


def table():
    """Print the worst seed of every manifold beside the paper's figures."""
    results = json.loads(RESULTS.read_text())
    names = sorted({r["manifold"] for r in results})
    for name in names:
        for label in ("paper recipe", "calor"):
            runs = [r for r in results if (r["manifold"], r["recipe"]) == (name, label)]
            if not runs:
                continue
            seconds = [r["seconds"] for r in runs]
            print(
                f"\n{name}, {label}: {len(runs)} seed(s), {min(seconds):.0f} to "
                f"{max(seconds):.0f} s, {runs[0]['date']}, {runs[0]['hardware']}"
            )
            if name in PAPER and label == "calor":
                print(
                    "  paper, t = .3/.5/1/2/4     log p",
                    figures(PAPER[name][0]),
                    " score",
                    figures(PAPER[name][1]),
                )
            for key in ("errors", "cover_errors", "float64_errors"):
                if key not in runs[0]:
                    continue
                head = {"errors": "  ", "cover_errors": "  S^3 ", "float64_errors": "  float64 "}[
                    key
                ]
                for law in ("draws", "uniform"):
                    if law not in runs[0][key][0]:
                        continue
                    for quantity in ("log_prob", "score"):
                        values = worst(runs, lambda r: [e[law][quantity] for e in r[key]])
                        print(
                            f"{head}{law:8} {quantity:9} t = .1/.2/.3/.5/1/2/4/5:", figures(values)
                        )
            if "largest" in runs[0]:
                times = list(runs[0]["largest"])
                values = worst(runs, lambda r: [r["largest"][t] for t in times])
                print("  largest log p error, |r| <= 4, t =", "/".join(times), figures(values))
            if "residual" in runs[0]:
                if name in PAPER_RESIDUAL and label == "calor":
                    print("  paper, normalized residual  ", figures(PAPER_RESIDUAL[name]))
                for part in runs[0]["residual"]:
                    values = worst(runs, lambda r: r["residual"][part])
                    print(f"  normalized residual, {part:11} t = .1/.3/.5/1:", figures(values))
                print(f"  initial error {max(r['initial_error'] for r in runs):g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only",
        nargs="+",
        default=[
            "sphere:2",
            "so3",
            "torus:2",
            "hyperbolic:2",
            "spd:2",
            "spd:3",
            "spd:5",
            "spd:10",
            "spd:15",
        ],
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--paper", action="store_true", help="the paper's recipe, reduced budget")
    parser.add_argument("--write", action="store_true", help="ship the kernels of seed 0")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if not options.table:
        for name in options.only:
            for seed in range(options.first, options.first + options.seeds):
                if options.paper:
                    recipe, label = calor.recipes.paper(**PAPER_BUDGET[name]), "paper recipe"
                else:
                    recipe = calor.recipes.default(rounds=ROUNDS.get(name, 6))
                    label = "calor"
                kernel, result = run(name, seed, recipe, label)
                store(result)
                print(name, label, seed, f"{result['seconds']} s", flush=True)
                if options.write and seed == 0 and name in SHIPPED and not options.paper:
                    folder = Path(calor.__file__).parent / "solvers" / "shipped"
                    folder.mkdir(exist_ok=True)
                    calor.save(folder / f"{name.replace(':', '-')}.calor", kernel)
    table()


if __name__ == "__main__":
    main()
