"""`calor bench`: the errors of the exact kernels, measured on the spot."""

import argparse
import dataclasses

from ._shared import add_json, progress, report


def describe(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = (
        "Measure log p and score of every exact heat kernel against reference formulas in float64, "
        "the cut locus included, and print the largest errors. Takes a quarter of a minute."
    )
    parser.epilog = "Example: calor bench"
    add_json(parser)
    parser.set_defaults(run=_bench)


def _bench(options) -> int:
    with progress() as show:
        from ..experiments import accuracy

        measured = accuracy.measure_all(show)
    return report(options, dataclasses.asdict(measured), str(measured))
