"""`calor bench`: errors of exact kernels, and of kernels of surfaces, measured on the spot."""

import argparse
import dataclasses

from ._shared import InputError, add_json, input_errors, progress, report


def describe(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = (
        "Measure log p and score of every exact heat kernel against reference formulas in float64, "
        "the cut locus included, and print the largest errors. Takes a quarter of a minute. "
        "With 'surfaces', solve for the kernels of surfaces that are given by an equation, and "
        "compare them with truth or with a finer solution. Takes ten minutes."
    )
    parser.epilog = "Example: calor bench surfaces --only sphere"
    parser.add_argument("what", nargs="?", choices=("kernels", "surfaces"), default="kernels")
    parser.add_argument("--only", nargs="+", metavar="SURFACE", help="some surfaces, by name")
    add_json(parser)
    parser.set_defaults(run=_bench)


def _bench(options) -> int:
    if options.only and options.what != "surfaces":
        raise InputError("--only names surfaces, as in calor bench surfaces --only sphere")
    with progress() as show, input_errors():
        from ..experiments import accuracy, surfaces

        if options.what == "surfaces":
            measured = surfaces.measure_all(options.only or (), show)
        else:
            measured = accuracy.measure_all(show)
    return report(options, dataclasses.asdict(measured), str(measured))
