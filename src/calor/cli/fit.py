"""`calor fit`: a model of points in a file."""

import argparse
from pathlib import Path

from . import _files, _own, _points
from ._shared import InputError, add_training, input_errors, positive, progress, report


def describe(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = (
        "Fit a model to points of a manifold and save it: a kernel density, a mixture, diffusions "
        "and flows, as far as each helps, weighed together by points that are put aside in turn. "
        "Ctrl-C keeps what was done in FILE.partial and beside it; --resume goes on from it. A "
        "manifold of your own is named by the Python file that defines it, which is run."
    )
    parser.epilog = "Example: calor fit --manifold sphere:2 quakes.csv --out quakes.calor"
    parser.add_argument("file", type=Path, help=_points.COLUMNS)
    parser.add_argument("--manifold", required=True, help=_own.MANIFOLDS)
    add_training(parser)
    parser.add_argument(
        "--parts",
        type=_names,
        metavar="NAMES",
        help="density, mixture, diffusion, flow, or several with commas; one is fitted by itself, "
        "not weighed (default: all that suit the manifold)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=3.0,
        help="about how long several parts may take (default: %(default)s)",
    )
    parser.add_argument("--steps", type=positive, help="of training, instead of what fits")
    parser.add_argument("--batch", type=positive, help="points a step")
    parser.add_argument("--width", type=positive, help="of the network")
    parser.add_argument(
        "--kernel",
        metavar="auto|exact|pinn|short-time|bethe|sinkhorn|labelled|...",
        default="auto",
        help="which heat kernel, by a method of calor.heat_kernel (default: %(default)s)",
    )
    parser.add_argument("--flow", action="store_true", help="the same as --parts flow")
    parser.add_argument(
        "--labels", action="store_true", help="the condition is a label, not a number"
    )
    parser.add_argument(
        "--groups",
        metavar="FILE",
        help="what points belong to, a name each: a file, or an array of the .npz file of points; "
        "whole groups are put aside",
    )
    parser.add_argument(
        "--weights",
        metavar="FILE",
        help="how much points count, a number each: a file, or an array of the .npz file of points",
    )
    _points.add_columns(parser)
    parser.set_defaults(run=_fit)


def _fit(options) -> int:
    if options.flow and options.parts not in (None, "flow"):
        raise InputError("--flow is the same as --parts flow; give one of them")
    several = not options.flow and not isinstance(options.parts, str)
    if options.batch and several and not options.steps:
        raise InputError("--batch takes --steps as well, where --minutes size several parts")
    if not options.minutes > 0:
        raise InputError(f"--minutes must be positive, got {options.minutes:g}")
    _points.check_points(options.file, options.condition, options.groups, options.weights)
    _own.check_manifold(options.manifold)
    out, partial = _files.unfinished(options)
    with progress() as show, input_errors():
        import jax.random as jr

        from ..data.forms import naming
        from ..models.families import family_of
        from ..models.fitting import fit
        from ..solvers.choose import heat_kernel

        manifold = _own.manifold_from(options.manifold)
        points, name_row, condition = _points.read(options, options.file, manifold, options.labels)
        groups = None
        if options.groups:
            groups = _points.column(options.groups, options.file, len(points), labels=True)
        if len(points) < 10:
            raise InputError(f"{options.file} has {len(points)} points; at least 10 are needed")
        weights = None
        if options.weights:
            weights = _points.column(options.weights, options.file, len(points), labels=False)
        show(f"fitting {len(points)} points of {manifold}")
        with _files.keeping(partial), naming(name_row):
            model = fit(
                heat_kernel(manifold, options.kernel),
                points,
                condition=condition,
                parts="flow" if options.flow else options.parts,
                minutes=options.minutes,
                groups=groups,
                weights=None if weights is None else weights[:, 0],
                key=jr.key(options.seed),
                network=options.width and family_of(manifold).network(width=options.width),
                training=_training(options),
                resume=partial,
            )
        model.save(out)
    found = {"file": str(options.out), "model": str(model), "points": len(points)}
    found |= model.found()
    lines = [
        found["model"],
        f"{len(points)} points",
        # What is more than a number is told by the model itself.
        *(_line(*one) for one in model.found().items() if isinstance(one[1], int | float)),
    ]
    return report(options, found, "\n".join(lines) + f"\n\nSaved: {options.out}")


def _line(name, value):
    """What a fit found, in words."""
    return f"{name.replace('_', ' ')}: {value:.4g}"


def _training(options):
    """The budget, if any of it was asked for."""
    from ..training.settings import Training

    asked = {"steps": options.steps, "batch": options.batch}
    asked = {name: value for name, value in asked.items() if value is not None}
    return Training(**asked) if asked else None


def _names(text):
    """One name, or several."""
    names = [name.strip() for name in text.split(",")]
    return names[0] if len(names) == 1 else names
