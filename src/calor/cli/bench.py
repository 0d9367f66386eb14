"""`calor bench`: the errors of the exact kernels, measured on the spot."""

import dataclasses
import json

from ._shared import DONE, progress


def add(commands, common):
    """Add the command."""
    bench = commands.add_parser(
        "bench",
        help="measure the errors of the exact heat kernels",
        description=(
            "Measure log p and score of every exact heat kernel against reference formulas in "
            "float64, the cut locus included, and print the largest errors. Takes a quarter of a "
            "minute."
        ),
        epilog="Example: calor bench",
        parents=[common],
    )
    bench.add_argument("--json", action="store_true", help="print the measurements as JSON")
    bench.set_defaults(run=_bench)


def _bench(options) -> int:
    with progress() as show:
        show("starting JAX")
        from ..experiments import accuracy

        report = accuracy.measure_all(show)
    print(json.dumps(dataclasses.asdict(report), indent=2) if options.json else report)
    return DONE
