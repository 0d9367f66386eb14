"""How accurate solved kernels are, and how long solving takes: the paper's tables beside ours.

    python benchmarks/solve.py [--only sphere:2 spd:10 ...] [--seeds 3] [--paper] [--write]
    python benchmarks/solve.py --table          # print what was measured, without measuring

Every run solves from nothing with `recipes.default()`, or with `recipes.paper` at a reduced budget,
and compares with the exact kernel in float64 where there is one. Runs are gathered in the file of
`--out`, results/solve.json by default, and `benchmarks/summarize.py` makes the summary of them that
`--table` prints; `--write` puts the kernels of seed 0 into the package.
"""

import argparse
import itertools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _measure import read, today, write

import calor
from calor.experiments.experiment import hardware
from calor.manifolds.names import manifold_named
from calor.solvers import check as validation
from calor.solvers.forms.symmetric import RadialSolution, Spreading

SUMMARY = Path(__file__).with_name("results") / "solve.json"
ABOUT = ("manifold", "recipe", "seed", "seconds", "date", "hardware")
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
    """Mean errors of log p and score, by time, over draws of the kernel and uniform points."""
    found = {}
    for row in validation.against_exact(kernel, jr.key(12), ALL_TIMES, points=4000):
        law = found.setdefault(row["points"], {"log_prob": [], "score": []})
        for quantity, values in law.items():
            values.append(row[quantity])
    return found


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
        return {
            name: [normalized(one, manifold, t, points) for t in RESIDUAL_TIMES]
            for name, one in solutions.items()
        }


def normalized(solution, manifold, t, points):
    """The mean normalized residual at one time."""
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
        "date": today(),
        "hardware": hardware(),
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


def store(path, result):
    """Replace the result of the same run, if there is one."""
    same = lambda r: all(r[k] == result[k] for k in ("manifold", "recipe", "seed"))
    write(path, [r for r in read(path, []) if not same(r)] + [result])


def worst(values):
    """The largest of some numbers, entry by entry of lists and dictionaries of them."""
    if isinstance(values[0], dict):
        return {key: worst([value[key] for value in values]) for key in values[0]}
    return np.max(values, axis=0).tolist()


def summary(results):
    """The worst of the seeds, entry by entry, of every manifold and recipe."""
    chosen = lambda r: (r["manifold"], -len(r["recipe"]))
    groups = []
    for _, runs in itertools.groupby(sorted(results, key=chosen), chosen):
        runs = list(runs)
        measured = [{k: v for k, v in r.items() if k not in ABOUT} for r in runs]
        seconds = [r["seconds"] for r in runs]
        about = {k: runs[0][k] for k in ("manifold", "recipe", "date", "hardware")}
        about |= {"seeds": len(runs), "seconds": [min(seconds), max(seconds)]}
        groups.append(about | worst(measured))
    return {"command": "python benchmarks/solve.py", "results": groups}


def figures(values):
    return " / ".join(f"{v:.1e}" for v in values)


def table(groups):
    """Print the worst seed of every manifold beside the paper's figures."""
    for row in groups:
        name, ours = row["manifold"], row["recipe"] == "calor"
        print(
            f"\n{name}, {row['recipe']}: {row['seeds']} seed(s), {row['seconds'][0]:.0f} to "
            f"{row['seconds'][1]:.0f} s, {row['date']}, {row['hardware']}"
        )
        if name in PAPER and ours:
            log_prob, score = map(figures, PAPER[name])
            print("  paper, t = .3/.5/1/2/4     log p", log_prob, " score", score)
        for key, head in (("errors", ""), ("cover_errors", "S^3 "), ("float64_errors", "float64 ")):
            for law, quantities in row.get(key, {}).items():
                for quantity, values in quantities.items():
                    text = f"  {head}{law:8} {quantity:9} t = .1/.2/.3/.5/1/2/4/5:"
                    print(text, figures(values))
        if "largest" in row:
            times, values = "/".join(row["largest"]), figures(row["largest"].values())
            print("  largest log p error, |r| <= 4, t =", times, values)
        if "residual" in row:
            if name in PAPER_RESIDUAL and ours:
                print("  paper, normalized residual  ", figures(PAPER_RESIDUAL[name]))
            for part, values in row["residual"].items():
                print(f"  normalized residual, {part:11} t = .1/.3/.5/1:", figures(values))
            print(f"  initial error {row['initial_error']:g}")


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
    parser.add_argument("--out", type=Path, default=Path("results/solve.json"))
    parser.add_argument("--table", action="store_true", help="print the summary, do not measure")
    options = parser.parse_args()
    if options.table:
        table(read(SUMMARY, {})["results"])
        return
    for name in options.only:
        for seed in range(options.first, options.first + options.seeds):
            if options.paper:
                recipe, label = calor.recipes.paper(**PAPER_BUDGET[name]), "paper recipe"
            else:
                recipe, label = calor.recipes.default(rounds=ROUNDS.get(name, 6)), "calor"
            kernel, result = run(name, seed, recipe, label)
            store(options.out, result)
            print(name, label, seed, f"{result['seconds']} s", flush=True)
            if options.write and seed == 0 and name in SHIPPED and not options.paper:
                folder = Path(calor.__file__).parent / "solvers" / "shipped"
                calor.save(folder / f"{name.replace(':', '-')}.calor", kernel)
    table(summary(read(options.out, []))["results"])


if __name__ == "__main__":
    main()
