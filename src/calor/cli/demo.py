"""`calor demo`."""

import dataclasses
import json
from pathlib import Path

from ._shared import DONE, InputError, progress, replacing


def add(commands, common):
    """Add the command."""
    demo = commands.add_parser(
        "demo",
        help="draw heat kernels and measure the errors of the exact ones",
        description=(
            "Draw the heat kernels of the sphere, of rotations and of the torus into a PNG file, "
            "and print the errors of the exact kernels against reference formulas. Takes about "
            "half a minute."
        ),
        parents=[common],
    )
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("calor_demo.png"),
        metavar="FILE",
        help="the picture to write, ending in .png (default: %(default)s)",
    )
    demo.add_argument("--json", action="store_true", help="print the measurements as JSON")
    demo.set_defaults(run=_demo)


def _demo(options) -> int:
    if options.out.suffix.lower() != ".png":
        raise InputError(f"--out must end in .png, got {options.out}")
    try:
        import matplotlib  # noqa: F401  # asked for before anything is computed
    except ImportError as error:
        raise InputError(
            "the picture needs matplotlib, which is not installed; run: pip install 'calor[demo]'"
        ) from error
    with replacing(options.out) as file, progress() as show:
        show("starting JAX")
        from .. import demo

        report = demo.run(file, show)
    if options.json:
        print(json.dumps({"picture": str(options.out), **dataclasses.asdict(report)}, indent=2))
    else:
        print(f"{report}\n\nPicture: {options.out}. Time: {report.seconds:.0f} s.")
    return DONE
