"""`calor fit`: a diffusion model of points in a file."""

import argparse
from pathlib import Path

from . import _files, _own, _points
from ._shared import InputError, add_training, input_errors, positive, progress, report


def describe(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = (
        "Fit a diffusion model to points of a manifold and save it. A tenth of the points is put "
        "aside for early stopping. Ctrl-C keeps what was done in FILE.partial; --resume goes on "
        "from it. A manifold of your own is named by the Python file that defines it, which is run."
    )
    parser.epilog = "Example: calor fit --manifold sphere:2 quakes.csv --out quakes.calor"
    parser.add_argument("file", type=Path, help=_points.COLUMNS)
    parser.add_argument("--manifold", required=True, help=_own.MANIFOLDS)
    add_training(parser)
    parser.add_argument(
        "--steps", type=positive, default=2000, help="of training (default: %(default)s)"
    )
    parser.add_argument(
        "--batch", type=positive, default=2048, help="points a step (default: %(default)s)"
    )
    parser.add_argument("--width", type=positive, default=192, help="of the network (default: 192)")
    parser.add_argument(
        "--kernel",
        metavar="auto|exact|pinn|short-time|bethe|sinkhorn|labelled|...",
        default="auto",
        help="which heat kernel, by a method of calor.heat_kernel (default: %(default)s)",
    )
    parser.add_argument("--flow", action="store_true", help="flow matching instead of diffusion")
    parser.add_argument(
        "--labels", action="store_true", help="the condition is a label, not a number"
    )
    parser.add_argument(
        "--groups",
        metavar="FILE",
        help="what points belong to, a name each: a file, or an array of the .npz file of points; "
        "whole groups are put aside",
    )
    _points.add_columns(parser)
    parser.set_defaults(run=_fit)


def _fit(options) -> int:
    _points.check_points(options.file, options.condition, options.groups)
    _own.check_manifold(options.manifold)
    out, partial = _files.unfinished(options)
    with progress() as show, input_errors():
        import jax.random as jr

        from ..data.forms import naming
        from ..models import diffusion, flow
        from ..models.families import family_of
        from ..models.likelihood import EXACT_DIVERGENCE
        from ..solvers.choose import heat_kernel
        from ..training.settings import Training

        manifold = _own.manifold_from(options.manifold)
        points, name_row, condition = _points.read(options, options.file, manifold, options.labels)
        groups = None
        if options.groups:
            groups = _points.column(options.groups, options.file, len(points), labels=True)
        if len(points) < 10:
            raise InputError(f"{options.file} has {len(points)} points; at least 10 are needed")
        run = flow.fit_flow if options.flow else diffusion.fit
        show(f"fitting {len(points)} points of {manifold}")
        with _files.keeping(partial), naming(name_row):
            model = run(
                heat_kernel(manifold, options.kernel),
                points,
                condition=condition,
                groups=groups,
                key=jr.key(options.seed),
                network=family_of(manifold).network(width=options.width),
                training=Training(steps=options.steps, batch=options.batch),
                resume=partial,
            )
        model.save(out)
    history = model.history
    found = {
        "file": str(options.out),
        "model": str(model),
        "points": len(points),
        "steps": int(history.steps[-1]),
        "seconds": round(float(history.seconds[-1]), 1),
    }
    # In many dimensions training is judged by its loss.
    judged, value = "log-likelihood", -history.validation()
    if model.manifold.dim > EXACT_DIVERGENCE:
        judged, value = "loss", -value
    found["validation_" + judged.replace("-", "_")] = value
    text = (
        f"{found['model']}\n{found['points']} points, {found['steps']} steps, "
        f"{found['seconds']:.0f} s, {judged} of the points put aside about {value:.3f}\n\n"
        f"Saved: {options.out}"
    )
    return report(options, found, text)
