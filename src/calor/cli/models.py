"""`calor fit`, `calor sample` and `calor score`: diffusion models of points in a file."""

import json
from pathlib import Path

from ._shared import (
    DONE,
    InputError,
    check_ending,
    input_errors,
    keeping,
    positive,
    progress,
    readable,
    replacing,
    require,
    unfinished,
    whole,
    writable,
)

_TABLES = (".csv", ".npy", ".npz")
_MOLECULES = (".sdf", ".xyz")

_MANIFOLDS = (
    "sphere:N, so3, torus:N, hyperbolic:N, spd:N, euclidean:N, cloud:NxK, or a product as "
    "so3*euclidean:3"
)
_COLUMNS = (
    "a .csv, .npy or .npz file; sphere:2: lat, lon in degrees or x, y, z; so3: quaternion w, x, y, "
    "z, matrix, or Euler angles with --euler"
)


def add(commands, common):
    """Add the commands."""
    _add_fit(commands, common)
    _add_sample(commands, common)
    _add_score(commands, common)


def _add_columns(parser):
    parser.add_argument("--array", metavar="NAME", help="which array of an .npz file")
    parser.add_argument("--euler", metavar="AXES", help="axes of Euler angles, such as ZXZ or xyz")
    parser.add_argument("--degrees", action="store_true", help="angles are in degrees")
    parser.add_argument(
        "--condition",
        metavar="FILE",
        help="numbers or labels, a row each point: a file, or an array of the .npz file of points",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _add_fit(commands, common):
    fit = commands.add_parser(
        "fit",
        help="fit a diffusion model to points in a file",
        description=(
            "Fit a diffusion model to points of a manifold and save it. A tenth of the points is "
            "put aside for early stopping. Ctrl-C keeps what was done in FILE.partial; --resume "
            "goes on from it."
        ),
        epilog="Example: calor fit --manifold sphere:2 quakes.csv --out quakes.calor",
        parents=[common],
    )
    fit.add_argument("file", type=Path, help=_COLUMNS)
    fit.add_argument("--manifold", required=True, help=_MANIFOLDS)
    fit.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file to write")
    fit.add_argument("--seed", type=whole, default=0, help="of the random numbers (default: 0)")
    fit.add_argument(
        "--steps", type=positive, default=2000, help="of training (default: %(default)s)"
    )
    fit.add_argument(
        "--batch", type=positive, default=2048, help="points a step (default: %(default)s)"
    )
    fit.add_argument("--width", type=positive, default=192, help="of the network (default: 192)")
    fit.add_argument(
        "--kernel",
        choices=["auto", "exact", "pinn", "short-time", "bethe", "sinkhorn", "labelled"],
        default="auto",
        help="which heat kernel (default: %(default)s)",
    )
    fit.add_argument("--flow", action="store_true", help="flow matching instead of diffusion")
    fit.add_argument("--labels", action="store_true", help="the condition is a label, not a number")
    fit.add_argument(
        "--groups",
        metavar="FILE",
        help="what points belong to, a name each: a file, or an array of the .npz file of points; "
        "whole groups are put aside",
    )
    fit.add_argument("--resume", action="store_true", help="go on from FILE.partial")
    _add_columns(fit)
    fit.set_defaults(run=_fit)


def _add_sample(commands, common):
    sample = commands.add_parser(
        "sample",
        help="draw points from a saved model",
        description="Draw points from a model and write them to a file.",
        epilog="Example: calor sample quakes.calor -n 1000 --out new.csv --plot new.png",
        parents=[common],
    )
    sample.add_argument("file", type=Path, help="a file written by calor fit")
    sample.add_argument("-n", type=positive, help="how many (default: 1000, or one a condition)")
    sample.add_argument(
        "--out", type=Path, required=True, help="a .csv, .npy or .npz file; molecules: .sdf or .xyz"
    )
    sample.add_argument(
        "--plot",
        type=Path,
        metavar="PNG",
        help="draw them as well (S^2, SO(3), T^2, SPD, molecules)",
    )
    sample.add_argument("--seed", type=whole, default=0, help="of the random numbers (default: 0)")
    sample.add_argument("--steps", type=positive, default=200, help="of generation (default: 200)")
    sample.add_argument("--condition", metavar="FILE", help="numbers or labels, a row each point")
    sample.add_argument("--json", action="store_true", help="print the result as JSON")
    sample.set_defaults(run=_sample)


def _add_score(commands, common):
    score = commands.add_parser(
        "score",
        help="log-likelihoods of points under a saved model",
        description="Print the mean log-density of points, in the Riemannian volume.",
        epilog="Example: calor score quakes.calor test.csv",
        parents=[common],
    )
    score.add_argument("file", type=Path, help="a file written by calor fit")
    score.add_argument("points", type=Path, help=_COLUMNS)
    score.add_argument("--out", type=Path, metavar="CSV", help="write the value of each point")
    _add_columns(score)
    score.set_defaults(run=_score)


def _fit(options) -> int:
    _check_tables(options, options.file)
    out = writable(options.out)
    partial = unfinished(out, options.resume)
    with progress() as show, input_errors():
        show("starting JAX")
        import jax.random as jr

        from ..manifolds.names import manifold_named
        from ..models import diffusion, flow
        from ..models.families import family_of
        from ..models.likelihood import EXACT_DIVERGENCE
        from ..solvers import choose as kernels
        from ..training import loop as training

        manifold = manifold_named(options.manifold)
        points, condition = _points(options, options.file, manifold, options.labels)
        groups = None
        if options.groups:
            groups = _column(options.groups, options.file, len(points), labels=True)
        if len(points) < 10:
            raise InputError(f"{options.file} has {len(points)} points; at least 10 are needed")
        run = flow.fit_flow if options.flow else diffusion.fit
        network = family_of(manifold).network
        show(f"fitting {len(points)} points of {manifold}")
        with keeping(partial):
            model = run(
                kernels.heat_kernel(manifold, options.kernel),
                points,
                condition=condition,
                groups=groups,
                key=jr.key(options.seed),
                network=network(width=options.width),
                training=training.Training(steps=options.steps, batch=options.batch),
                resume=partial,
            )
        model.save(out)
    history = model.history
    report = {
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
    report["validation_" + judged.replace("-", "_")] = value
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print(
            f"{report['model']}\n{report['points']} points, {report['steps']} steps, "
            f"{report['seconds']:.0f} s, {judged} of the points put aside about {value:.3f}\n\n"
            f"Saved: {options.out}"
        )
    return DONE


def _check_tables(options, path):
    """Refuse files that cannot be read before JAX is imported."""
    check_ending(readable(path), _TABLES, "a table of points")
    for option in ("condition", "groups"):
        name = getattr(options, option, None)
        if name and not _is_array(name, path):
            check_ending(readable(Path(name)), _TABLES, f"--{option}")


def _is_array(name, path):
    """Whether something is named as an array of the .npz file that holds the points."""
    return path.suffix == ".npz" and not Path(name).suffix


def _column(name, path, count, labels):
    """Numbers or labels, one row for each point of the file at `path`."""
    from ..data import tables

    file, array = (path, name) if _is_array(name, path) else (Path(name), None)
    found = tables.read_condition(file, labels=labels, array=array)
    if len(found) != count:
        raise InputError(f"{name} has {len(found)} rows, {path} has {count} points")
    return found


def _points(options, path, manifold, labels):
    from ..data import tables

    points = tables.read_points(
        path, manifold, euler=options.euler, degrees=options.degrees, array=options.array
    )
    condition = None
    if options.condition:
        condition = _column(options.condition, path, len(points), labels)
    return points, condition


def _load_model(path):
    from .._public import load  # with all that a file may hold
    from ..models.model import AbstractModel

    model = load(path)
    if not isinstance(model, AbstractModel):
        raise InputError(f"{path} holds a kernel, not a model; make one with calor fit")
    return model


def _has_labels(model):
    return model.condition is not None and bool(model.condition.labels)


def _sample(options) -> int:
    check_ending(options.out, (*_TABLES, *_MOLECULES), "--out")
    readable(options.file)
    out, plot = writable(options.out), None
    if options.condition:
        check_ending(readable(Path(options.condition)), _TABLES, "--condition")
    if options.plot:
        check_ending(options.plot, (".png",), "--plot")
        plot = writable(options.plot)
        require("matplotlib", "demo", "a picture")
    with progress() as show, input_errors():
        show("starting JAX")
        import jax.random as jr
        import numpy as np

        from ..data import molecules, tables

        model = _load_model(options.file)
        as_molecules = out.suffix.lower() in _MOLECULES
        if as_molecules and not molecules.is_molecule_space(model.manifold):
            raise InputError(f"{options.out}: points of {model.manifold} are no molecules")
        condition = None
        if options.condition:
            condition = tables.read_condition(options.condition, labels=_has_labels(model))
        count = options.n
        if count is None:
            count = 1000 if condition is None else len(condition)
        show(f"drawing {count} points of {model.manifold}")
        points = np.asarray(
            model.sample(count, condition=condition, key=jr.key(options.seed), steps=options.steps)
        )
        if as_molecules:
            made = molecules.from_clouds(points, model.manifold)  # pyright: ignore
            molecules.write(out, made)
        else:
            tables.write_points(out, points, model.manifold)
        if plot is not None:
            _plot(plot, points, model.manifold)
    if options.json:
        report = {"file": str(options.out), "points": count, "manifold": str(model.manifold)}
        report |= {"picture": str(options.plot)} if plot else {}
        print(json.dumps(report, indent=2))
        return DONE
    print(f"Saved: {options.out}" + (f" and {options.plot}" if plot else ""))
    return DONE


def _plot(path, points, manifold):
    from .. import plots

    figure = plots.points(points, manifold)
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=160)


def _score(options) -> int:
    readable(options.file)
    _check_tables(options, options.points)
    out = writable(options.out) if options.out else None
    with progress() as show, input_errors():
        show("starting JAX")
        import numpy as np

        model = _load_model(options.file)
        points, condition = _points(options, options.points, model.manifold, _has_labels(model))
        show(f"following the flow of {len(points)} points")
        values = np.asarray(model.log_prob(points, condition=condition))
    mean = float(values.mean())
    error = float(values.std() / np.sqrt(len(values)))
    if out is not None:
        with replacing(out) as file:
            text = "log_prob\n" + "".join(f"{value:.6g}\n" for value in values)
            file.write(text.encode())
    if options.json:
        report = {"points": len(values), "log_prob": mean, "standard_error": error}
        print(json.dumps(report, indent=2))
    else:
        print(f"mean log-density of {len(values)} points: {mean:.4f} +- {error:.4f}")
    return DONE
