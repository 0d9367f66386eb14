"""`calor reproduce`: the experiments of the paper, beside what was published."""

import argparse
import dataclasses
import math
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..experiments import FILES
from ._shared import InputError, add_json, input_errors, positive, report

if TYPE_CHECKING:  # what it imports takes seconds
    from ..experiments.experiment import Settings


def describe(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = (
        "Run an experiment of the paper and print its table, beside the published figures. earth: "
        "events on the globe, read from the folder that CALOR_DATA names. so3: mixtures of "
        "rotations. densities: log-likelihoods of many data sets beside simple densities. taxi: "
        "traffic flows on SPD(10) given predictors. eeg: covariances of brain and muscle signals "
        "by class. plane: random points that repel each other. qm9: molecules, from "
        "CALOR_DATA or the package qm9pack. Results go to a folder as JSON and figures."
    )
    parser.epilog = "Example: CALOR_DATA=~/data calor reproduce earth --only floods --out results"
    parser.add_argument("experiment", choices=FILES)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some of its data sets")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="some rows of its table")
    parser.add_argument("--budget", choices=["quick", "default", "full"], default="default")
    parser.add_argument("--seeds", type=positive, help="how many splits (default: by the budget)")
    parser.add_argument("--splits", type=positive, dest="seeds", help="the same")
    parser.add_argument(
        "--minutes", type=_minutes, help="for each fit of densities (default: by the budget)"
    )
    parser.add_argument("--out", type=Path, default=Path("results"), help="a folder")
    add_json(parser)
    parser.set_defaults(run=_reproduce)


def _reproduce(options) -> int:
    if options.out.exists() and not options.out.is_dir():
        raise InputError(f"--out must be a folder, {options.out} is a file")
    with input_errors():
        module = import_module(f"..experiments.{FILES[options.experiment]}", __package__)
        experiment = module.EXPERIMENT
        settings = experiment.of(options.budget, options.only, options.seeds)
        if options.methods:
            unknown = [name for name in options.methods if name not in experiment.methods]
            if unknown:
                known = "; ".join(experiment.methods)
                raise InputError(f"--methods: known are {known}; got {unknown[0]!r}")
            settings = dataclasses.replace(settings, methods=tuple(options.methods))
        if options.minutes is not None:
            settings = _with_minutes(settings, options)
        options.out.mkdir(parents=True, exist_ok=True)
        found = experiment.run(settings, options.out)
    return report(options, found, experiment.table(found))


def _minutes(text: str) -> float:
    """A number above zero, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of minutes above 0, got {text!r}")
    return value


def _with_minutes(settings: "Settings[Any]", options) -> "Settings[Any]":
    """Settings with another budget for each fit."""
    if "minutes" not in {field.name for field in dataclasses.fields(settings.choices)}:
        raise InputError(f"--minutes: {options.experiment} has budgets of its own; see --budget")
    choices = dataclasses.replace(settings.choices, minutes=options.minutes)
    return dataclasses.replace(settings, choices=choices)
