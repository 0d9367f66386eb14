"""What the likelihood of a diffusion depends on: one choice changed at a time.

    python benchmarks/choices.py [--only floods ...] [--splits 10 11] [--json choices.json]

Each row is one choice other than the default of `calor.fit`; three members are trained on parts of
the data each.  Mean test log-likelihoods of a member alone, and of the three averaged, with the
difference of the average to that of the defaults, paired point by point.  Splits from 10 on: those
of `calor reproduce` are not looked at.  Needs CALOR_DATA.
"""

from _measure import heading, one_core, read, write

one_core()

import argparse
import dataclasses
import time
from pathlib import Path

import jax.random as jr
import numpy as np

import calor
from calor.experiments.sets import SETS
from calor.models.families import family_of

SETS_TRIED = ("floods", "quakes (unique)")
KERNEL = calor.heat_kernel(calor.Sphere(2))
NETWORK = family_of(calor.Sphere(2)).members["diffusion"]
TRAINING = calor.Training(steps=2000, batch=512, validate_every=250, patience=3)


def with_network(**changes):
    return {"network": dataclasses.replace(NETWORK, **changes)}


def with_training(**changes):
    return {"training": dataclasses.replace(TRAINING, **changes)}


CHOICES = {
    "as it is": {},
    "capacity: half as wide": with_network(width=64),
    "capacity: twice as wide": with_network(width=256),
    "capacity: two layers more": with_network(depth=5),
    "smoothness: waves damped as heat does": with_network(damping=1.0),
    "smoothness: damped twice as much": with_network(damping=3.0),
    "times: small ones less often": {"time_power": 0.1},
    "stopping: half of the steps": with_training(steps=1000, validate_every=125),
    "stopping: twice the steps": with_training(steps=4000, validate_every=500),
    "stopping: last weights, not the best": with_training(validate_every=2000),
    "batch: four times": with_training(batch=2048),
}
T_MIN = {"t_min: a quarter": 0.25, "t_min: four times": 4.0}


def fitted(points, seed, choices):
    """Three members of a diffusion, and seconds."""
    given = {"network": NETWORK, "training": TRAINING, **choices}
    start = time.perf_counter()
    model = calor.fit(
        KERNEL, points, parts=["diffusion"], key=jr.key(seed), progress=False, **given
    )
    return model.part("diffusion"), time.perf_counter() - start


def values(model, test):
    """The log-densities of test points by each member, and by their average."""
    each = np.stack([np.asarray(one.log_prob(test), float) for one in model.models])
    each = np.nan_to_num(each, nan=-1e3)
    return each, np.logaddexp.reduce(each, axis=0) - np.log(len(each))


def row(each, whole, usual, seconds):
    ahead = whole - usual
    return {
        "alone": float(each.mean()),
        "averaged": float(whole.mean()),
        "ahead": float(ahead.mean()),
        "error": float(ahead.std(ddof=1) / len(ahead) ** 0.5),
        "seconds": round(seconds, 1),
    }


def show(report, names, splits):
    print(heading("pure diffusions, three members, one choice changed at a time"), "\n")
    print("|", *(f"{name} | " for name in ("", *names)), sep=" ")
    print("|", "---|" * (len(names) + 1), sep="")
    for choice in report[names[0]][str(splits[0])]:
        cells = []
        for name in names:
            rows = [report[name].get(str(split), {}).get(choice) for split in splits]
            rows = [found for found in rows if found]
            if not rows:
                cells.append("–")
                continue
            mean = {key: np.mean([found[key] for found in rows]) for key in rows[0]}
            error = np.sqrt(np.sum([found["error"] ** 2 for found in rows])) / len(rows)
            cells.append(
                f"{mean['alone']:.3f}, {mean['averaged']:.3f} ({mean['ahead']:+.3f} ± {error:.3f})"
            )
        print(f"| {choice} |", " | ".join(cells), "|")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(SETS), default=list(SETS_TRIED))
    parser.add_argument("--splits", nargs="+", type=int, default=[10])
    parser.add_argument("--json", type=Path, help="goes on from this file, and writes it")
    options = parser.parse_args()
    report = read(options.json, {}) if options.json else {}
    report |= {"command": "python benchmarks/choices.py", "heading": heading("one core")}
    for split in options.splits:
        for name in options.only:
            done = report.setdefault(name, {}).setdefault(str(split), {})
            train, held, test = SETS[name]().split(split)
            points = np.concatenate([train.points, held.points])
            model, seconds = fitted(points, split, {})
            each, usual = values(model, test.points)
            done["as it is"] = row(each, usual, usual, seconds)
            t_min = model.models[0].about["times"][0]
            finer = {label: {"t_min": factor * t_min} for label, factor in T_MIN.items()}
            for choice, changes in {**CHOICES, **finer}.items():
                if choice not in done:
                    model, seconds = fitted(points, split, changes)
                    done[choice] = row(*values(model, test.points), usual, seconds)
                    print(name, split, choice, done[choice], flush=True)
                if options.json:
                    write(options.json, report)
    show(report, options.only, options.splits)


if __name__ == "__main__":
    main()
