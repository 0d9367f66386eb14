"""Draws in few evaluations of the network, against those of 200 steps and against data.

    python benchmarks/fewsteps.py --folder DIR [--only floods ...] [--json fewsteps.json]
    python benchmarks/fewsteps.py --folder DIR --powers     # which levels are best for few steps

Models are fitted to eight tenths of the data, distilled, and kept in the folder with their draws.
For each way to draw, and each number of evaluations: the area under the curve of boosted trees that
tell its draws from those of the model in 200 steps, of the walk and of the flow, and from the last
tenth of the data, which no model has seen, with standard errors over five folds; and the squared
discrepancy from the flow and the data, for the heat kernel at the time at which noise is a quarter
as wide as the data spread. Needs CALOR_DATA and scikit-learn.
"""

import argparse
import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _measure import heading, write

import calor
from calor import datasets, metrics
from calor.models.few import multistep

DRAWS = 10_000
# Rows that discrepancies look at.
ROWS = 1000


def torsions():
    """Backbone angles phi, psi of glutamine."""
    path = datasets.data_folder() / "torus_protein_top8000" / "top8000_torsions.npz"
    with np.load(path) as arrays:
        kind = list(arrays["residue_names"]).index("gln")
        return np.deg2rad(arrays["angles_deg"][arrays["residue_type"] == kind][:, :2])


def rotations():
    """Orientations of titanium crystals."""
    path = datasets.data_folder() / "so3_ebsd" / "titanium.npz"
    with np.load(path) as arrays:
        return arrays["quat_wxyz"]


def covariances():
    """Covariances of three channels of muscle signals."""
    return datasets.emg()[0][:, :3, :3]


DATA = {
    "floods": (calor.Sphere(2), lambda: datasets.earth("floods")),
    "torsions": (calor.Torus(2), torsions),
    "rotations": (calor.SO3(), rotations),
    "covariances": (calor.SPD(3), covariances),
}


def kept(path, make):
    """What is in a file, or what is made for it now, with the seconds that it took."""
    if path.exists():
        return calor.load(path), None
    start = time.perf_counter()
    made = make()
    made.save(path)
    return made, time.perf_counter() - start


def models(name, options):
    """The model of a data set and the distilled one, each made once."""
    manifold, load = DATA[name]
    train, held, test = datasets.split(np.asarray(load()), 0)

    def fitted():
        training = calor.Training(steps=options.steps)
        kernel = calor.heat_kernel(manifold)
        given = {"validation": held, "training": training, "progress": False}
        return calor.fit(kernel, train, parts="diffusion", key=jr.key(0), **given)

    model, seconds = kept(options.folder / f"{name}.calor", fitted)

    def distilled():
        training = calor.Training(steps=options.distill_steps, batch=1024)
        return calor.distill(model, key=jr.key(1), training=training, progress=False)

    few, more = kept(options.folder / f"{name}-few.calor", distilled)
    for what, value in (("fit", seconds), ("distill", more)):
        if value is not None:
            print(f"{name}: {what} {value:.0f} s", flush=True)
    return model, few, test


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to draw."""

    name: str
    evaluations: int
    model: Any
    given: dict[str, Any]


def ways(model, few):
    """All that are compared, the two in 200 steps first."""
    yield Way("walk", 200, model, {"method": "walk", "steps": 200})
    for count in (200, 1, 2, 4, 8, 16, 32):
        yield Way("multistep", count, model, {"method": "multistep", "steps": count})
    for count in few.steps:
        yield Way("distilled", count, few, {"steps": count})


def drawn(name, way, key, options):
    """Draws, kept in the folder."""
    path = options.folder / f"{name}-{way.name}-{way.evaluations}.npy"
    if not path.exists():
        np.save(path, way.model.sample(options.draws, key=key, **way.given))
    return np.load(path)


def embedded(manifold, points):
    return np.asarray(jax.jit(jax.vmap(manifold.embedding))(jnp.asarray(points, float)))


def compare(name, options):
    """The rows of a data set."""
    model, few, test = models(name, options)
    manifold = model.manifold
    kernel = calor.heat_kernel(manifold)
    places = embedded(manifold, test)
    scale = float(np.mean(np.sum((places - places.mean(axis=0)) ** 2, axis=1))) / manifold.dim
    t = scale / 32  # 2t is the square of a quarter of the spread
    rows, references = [], {"data": test}
    for number, way in enumerate(ways(model, few)):
        draws = drawn(name, way, jr.fold_in(jr.key(2), number), options)
        row = {"way": way.name, "evaluations": way.evaluations}
        for what, others in references.items():
            # As many draws as there are data, so that both count the same.
            ours = draws[: len(others)]
            auc = metrics.classifier_auc(embedded(manifold, ours), embedded(manifold, others))
            row[f"auc {what}"] = auc
            if what != "walk":
                some = (jnp.asarray(a[:ROWS], float) for a in (ours, others))
                row[f"mmd {what}"] = metrics.heat_discrepancy(kernel, t, *some)
        if way.evaluations == 200:
            references[{"walk": "walk", "multistep": "flow"}[way.name]] = draws
        print(name, shown(row), flush=True)
        rows.append(row)
    return rows


def shown(row):
    """A row as text."""
    parts = [f"{row['way']:9} {row['evaluations']:3}"]
    for what in ("walk", "flow", "data"):
        if f"auc {what}" in row:
            mean, error = row[f"auc {what}"]
            parts.append(f"{what}: AUC {mean:.3f}({error:.3f})")
        if f"mmd {what}" in row:
            parts.append(f"MMD^2 {row[f'mmd {what}']:.5f}")
    return "  ".join(parts)


def table(report):
    """What is in the docs: areas against the flow in 200 steps, and against data."""
    names = list(report)
    lines = ["| | evaluations | " + " | ".join(names) + " |", "|---" * (2 + len(names)) + "|"]
    for rows in zip(*report.values(), strict=True):
        cells = [rows[0]["way"], str(rows[0]["evaluations"])]
        for row in rows:
            found = [row.get(f"auc {what}") for what in ("flow", "data")]
            cells.append(", ".join(f"{a[0]:.3f} ± {a[1]:.3f}" if a else "–" for a in found))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def compare_powers(name, options):
    """How far from where 256 steps end those in 4 and 8 do, for levels evenly spaced in powers.

    Medians, in units of the level at the end.
    """
    model = models(name, options)[0]
    bare, manifold, nothing = model.bare(), model.manifold, jnp.zeros(0)
    stop = jnp.asarray(model.stops[min(1, len(model.stops) - 1)])
    keys = jr.split(jr.key(0), 1024)
    start = jax.vmap(lambda key: bare.prior.sample(key, nothing))(keys)

    @jax.jit
    def ends(levels):
        reach = lambda level, x: bare.reach(level, x, nothing)
        return jax.vmap(lambda x: multistep(reach, manifold, levels, x))(start)

    truth, last = ends(bare.levels(stop, 256)), float(bare.level(stop))
    for power in (1.5, 2.0, 3.0, 5.0, 7.0):
        gaps = [
            jax.vmap(manifold.dist_at)(ends(bare.levels(stop, count, power)), truth)
            for count in (4, 8)
        ]
        found = ", ".join(f"{float(jnp.median(gap)) / last:.2f}" for gap in gaps)
        print(f"{name} power {power:g}: in 4 and 8 steps {found}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="for models and draws")
    parser.add_argument("--only", nargs="*", default=list(DATA), choices=list(DATA))
    parser.add_argument("--steps", type=int, default=800, help="of the fits (default: 800)")
    parser.add_argument("--distill-steps", type=int, default=3000, help="(default: 3000)")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--json")
    parser.add_argument("--powers", action="store_true", help="compare levels")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    print(heading(f"{options.draws} draws"), flush=True)
    if options.powers:
        for name in options.only:
            compare_powers(name, options)
        return
    report = {name: compare(name, options) for name in options.only}
    print(table(report))
    if options.json:
        write(options.json, report)


if __name__ == "__main__":
    main()
