"""`calor demo`: a first model, in a few minutes."""

import argparse
import dataclasses
import os
import shlex
from pathlib import Path

from . import _files
from ._shared import add_json, input_errors, progress, report, require

_NEXT = """\
Try next:
  calor sample {model} -n 1000 --out new.csv --plot new.png
  calor score {model} new.csv
  calor fit --manifold sphere:2 new.csv --out mine.calor    (or any table of lat, lon)"""


def describe(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = (
        "Fit a model to the world's airports, several kinds weighed together, print how likely it "
        "finds airports that it has not seen, beside kernel densities, draw data, samples and "
        "density on globes, and save the model beside the picture. Takes about a minute."
    )
    parser.epilog = "Example: calor demo --out airports.png"
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("calor_demo.png"),
        metavar="FILE",
        help="the picture, ending in .png; the model is named like it (default: %(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help="fewer airports, a small network")
    add_json(parser)
    parser.set_defaults(run=_demo)


def _demo(options) -> int:
    _files.check_picture(options.out, "--out")
    for name in ("matplotlib", "airportsdata"):  # asked for before anything is computed
        require(name, "demo", "the demo")
    model_file = options.out.with_suffix(".calor")
    _files.writable(options.out)
    _files.writable(model_file)
    if options.quick:
        # It compiles much and computes little: code that is less optimized is ready sooner.
        os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    with progress() as show, input_errors():
        from ..experiments import airports as demo

        measured, model, figure = demo.run(demo.QUICK if options.quick else demo.FULL, show)
        with _files.replacing(options.out) as file:
            figure.savefig(file, format="png")
            model.save(_files.writable(model_file))
    files = {"picture": str(options.out), "model": str(model_file)}
    said = f"Picture: {options.out}. Model: {model_file}. Time: {measured.seconds:.0f} s."
    text = f"{measured}\n\n{said}\n\n{_NEXT.format(model=shlex.quote(str(model_file)))}"
    return report(options, {**files, **dataclasses.asdict(measured)}, text)
