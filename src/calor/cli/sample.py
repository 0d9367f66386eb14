"""`calor sample`: points drawn from a saved model."""

import argparse
from pathlib import Path

from . import _files, _own, _points
from ._shared import add_json, input_errors, positive, progress, report, require, whole


def describe(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = "Draw points from a model and write them to a file."
    parser.epilog = "Example: calor sample quakes.calor -n 1000 --out new.csv --plot new.png"
    parser.add_argument("file", type=Path, help="a file written by calor fit")
    parser.add_argument("-n", type=positive, help="how many (default: 1000, or one a condition)")
    parser.add_argument(
        "--out", type=Path, required=True, help=f"{_points.FILE}; molecules: .sdf or .xyz"
    )
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="PNG",
        help="draw them as well (S^2, SO(3), T^2, SPD, surfaces, molecules)",
    )
    parser.add_argument("--seed", type=whole, default=0, help="of the random numbers (default: 0)")
    parser.add_argument("--steps", type=positive, default=200, help="of generation (default: 200)")
    parser.add_argument(
        "--method",
        metavar="NAME",
        help="walk, flow, corrected, or multistep for few steps (default: walk; of a flow: flow)",
    )
    parser.add_argument("--condition", metavar="FILE", help="numbers or labels, a row each point")
    _own.add_manifold(parser)
    add_json(parser)
    parser.set_defaults(run=_sample)


def _sample(options) -> int:
    _files.readable(options.file)
    _own.check_manifold(options.manifold)
    out, plot = _files.writable(options.out), None
    if options.condition:
        _files.readable(Path(options.condition))
    if options.plot:
        _files.check_picture(options.plot, "--plot")
        plot = _files.writable(options.plot)
        require("matplotlib", "demo", "a picture")
    with progress() as show, input_errors():
        import jax.random as jr
        import numpy as np

        from ..data import tables

        model, has_labels = _points.load_model(options.file, options.manifold)
        write = tables.writer(out, model.manifold)
        condition = None
        if options.condition:
            condition = tables.read_condition(options.condition, labels=has_labels)
        count = options.n
        if count is None:
            count = 1000 if condition is None else len(condition)
        show(f"drawing {count} points of {model.manifold}")
        how = {"steps": options.steps, "method": options.method}
        key = jr.key(options.seed)
        points = np.asarray(model.sample(count, condition=condition, key=key, **how))
        write(points)
        if plot is not None:
            from .. import plots

            figure = plots.points(points, model.manifold)
            with _files.replacing(plot) as file:
                figure.savefig(file, format="png", dpi=160)
    found = {"file": str(options.out), "points": count, "manifold": str(model.manifold)}
    found |= {"picture": str(options.plot)} if plot else {}
    text = f"Saved: {options.out}" + (f" and {options.plot}" if plot else "")
    return report(options, found, text)
