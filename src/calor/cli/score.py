"""`calor score`: log-likelihoods of points under a saved model."""

import argparse
from pathlib import Path

from . import _files, _own, _points
from ._shared import add_json, input_errors, progress, report


def describe(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = "Print the mean log-density of points, in the Riemannian volume."
    parser.epilog = "Example: calor score quakes.calor test.csv"
    parser.add_argument("file", type=Path, help="a file written by calor fit")
    parser.add_argument("points", type=Path, help=_points.COLUMNS)
    parser.add_argument("--out", type=Path, metavar="CSV", help="write the value of each point")
    _points.add_columns(parser)
    _own.add_manifold(parser)
    add_json(parser)
    parser.set_defaults(run=_score)


def _score(options) -> int:
    _files.readable(options.file)
    _points.check_points(options.points, options.condition)
    _own.check_manifold(options.manifold)
    out = _files.writable(options.out) if options.out else None
    with progress() as show, input_errors():
        import numpy as np

        from ..data.forms import naming

        model, has_labels = _points.load_model(options.file, options.manifold)
        points, name_row, condition = _points.read(
            options, options.points, model.manifold, has_labels
        )
        show(f"following the flow of {len(points)} points")
        with naming(name_row):
            values = np.asarray(model.log_prob(points, condition=condition))
    mean = float(values.mean())
    error = float(values.std() / np.sqrt(len(values)))
    if out is not None:
        with _files.replacing(out) as file:
            text = "log_prob\n" + "".join(f"{value:.6g}\n" for value in values)
            file.write(text.encode())
    found = {"points": len(values), "log_prob": mean, "standard_error": error}
    text = f"mean log-density of {len(values)} points: {mean:.4f} +- {error:.4f}"
    return report(options, found, text)
