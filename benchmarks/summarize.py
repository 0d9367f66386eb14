"""Summaries of full results, for this repository: means, standard errors, settings, the table.

    calor reproduce taxi --out results && python benchmarks/summarize.py results/taxi.json

The full results of an experiment have every row and every history of training; a summary has, for
each method, the numbers of every run, their mean and its standard error.  Of long lists, one entry
for each test point, a run's number is the mean, and the quartiles are of all runs together.  What
`benchmarks/solve.py` measured is summarized by the worst seed.  Summaries go to
`benchmarks/results`, under the same name.
"""

import argparse
import json
from importlib import import_module
from pathlib import Path

import numpy as np
import solve
from _measure import write

from calor.experiments import FILES

RESULTS = Path(__file__).with_name("results")
LONG = 50  # entries of a list that has one for each test point


def quantity(values):
    """What is kept of one quantity in several runs, or None."""
    if isinstance(values[0], list):
        if len(values[0]) < LONG:
            return None
        rows, values = np.concatenate(values), [float(np.mean(row)) for row in values]
        more = {"quartiles": np.quantile(rows, [0.25, 0.5, 0.75]).tolist()}
    elif isinstance(values[0], int | float):
        more = {}
    else:
        return None
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "error": error, "runs": values, **more}


def summary(name, report):
    """The summary of an experiment's report."""
    experiment = import_module(f"calor.experiments.{FILES[name]}").EXPERIMENT
    results = {}
    for data, methods in report["results"].items():
        for method, runs in methods.items():
            rows = list(runs.values())
            kept = {key: quantity([row[key] for row in rows]) for key in rows[0]}
            kept = {key: value for key, value in kept.items() if value is not None}
            results.setdefault(data, {})[method] = {"seeds": [int(seed) for seed in runs], **kept}
    return {
        "command": f"calor reproduce {name}",
        "date": report["date"],
        "hardware": report["hardware"],
        "settings": report["identity"],
        "table": experiment.table(report).splitlines(),
        "results": results,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, help="full results")
    parser.add_argument("--out", type=Path, default=RESULTS, help="a folder (default: %(default)s)")
    options = parser.parse_args()
    for file in options.files:
        report = json.loads(file.read_text())
        if file.stem == "solve":
            made = solve.summary(report)
        else:
            made = summary(file.stem.split("_")[0], report)
        write(options.out / file.name, made)


if __name__ == "__main__":
    main()
