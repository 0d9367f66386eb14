"""`calor demo`: a first model, in a few minutes."""

import dataclasses
import io
import json
import os
import shlex
from pathlib import Path

from ._shared import DONE, check_ending, input_errors, progress, replacing, require, writable

_NEXT = """\
Try next:
  calor sample {model} -n 1000 --out new.csv --plot new.png
  calor score {model} new.csv
  calor fit --manifold sphere:2 new.csv --out mine.calor    (or any table of lat, lon)"""


def add(commands, common):
    """Add the command."""
    demo = commands.add_parser(
        "demo",
        help="fit, score and draw a model of the world's airports",
        description=(
            "Fit a diffusion model to the world's airports with the learned heat kernel of the "
            "sphere, print its test log-likelihood beside flow matching and kernel density "
            "estimates, draw data, samples and density on globes, and save the model beside the "
            "picture. Takes one to three minutes on two cores."
        ),
        epilog="Example: calor demo --out airports.png",
        parents=[common],
    )
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("calor_demo.png"),
        metavar="FILE",
        help="the picture, ending in .png; the model is named like it (default: %(default)s)",
    )
    demo.add_argument("--quick", action="store_true", help="fewer airports, a small network")
    demo.add_argument("--json", action="store_true", help="print the results as JSON")
    demo.set_defaults(run=_demo)


def _demo(options) -> int:
    check_ending(options.out, (".png",), "--out")
    for name in ("matplotlib", "airportsdata"):  # asked for before anything is computed
        require(name, "demo", "the demo")
    model_file = options.out.with_suffix(".calor")
    writable(options.out)
    writable(model_file)
    if options.quick:
        # It compiles much and computes little: code that is less optimized is ready sooner.
        os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    with progress() as show, input_errors():
        show("starting JAX")
        from ..experiments import airports as demo

        report, model, figure = demo.run(demo.QUICK if options.quick else demo.FULL, show)
        picture = io.BytesIO()
        figure.savefig(picture, format="png")
        with replacing(options.out) as file:
            file.write(picture.getvalue())
            model.save(writable(model_file))
    if options.json:
        files = {"picture": str(options.out), "model": str(model_file)}
        print(json.dumps({**files, **dataclasses.asdict(report)}, indent=2))
        return DONE
    print(f"{report}\n\nPicture: {options.out}. Model: {model_file}. Time: {report.seconds:.0f} s.")
    print(f"\n{_NEXT.format(model=shlex.quote(str(model_file)))}")
    return DONE
