"""`calor solve` and `calor check`: learned heat kernels."""

import json
from pathlib import Path

from ._shared import (
    DONE,
    InputError,
    input_errors,
    keeping,
    progress,
    readable,
    unfinished,
    whole,
    writable,
)


def add(commands, common):
    """Add the commands."""
    _add_solve(commands, common)
    _add_check(commands, common)


def _add_solve(commands, common):
    solve = commands.add_parser(
        "solve",
        help="solve the heat kernel of a manifold and save it",
        description=(
            "Solve the heat equation on a manifold by a small network, print the certificate of "
            "its accuracy and save it. Takes about a minute (spheres, tori) to five (spd:10). "
            "Ctrl-C keeps what was done in FILE.partial; --resume goes on from it."
        ),
        epilog="Example: calor solve sphere:2 --out s2.calor",
        parents=[common],
    )
    solve.add_argument(
        "manifold", help="sphere:N, so3, torus:N, hyperbolic:N, spd:N or euclidean:N"
    )
    solve.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file to write")
    solve.add_argument("--seed", type=whole, default=0, help="of the random numbers (default: 0)")
    solve.add_argument(
        "--recipe",
        choices=["default", "paper"],
        default="default",
        help="calor's own way to train, or the paper's (default: %(default)s)",
    )
    solve.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="settings of the recipe, such as steps=1000 t1=2",
    )
    solve.add_argument("--resume", action="store_true", help="go on from FILE.partial")
    solve.add_argument("--json", action="store_true", help="print the certificate as JSON")
    solve.set_defaults(run=_solve)


def _add_check(commands, common):
    check = commands.add_parser(
        "check",
        help="measure the accuracy of a saved kernel again",
        description=(
            "Compute the certificate of a saved kernel again, at new points, and, where the exact "
            "kernel is known, its errors of log p and score."
        ),
        epilog="Example: calor check s2.calor",
        parents=[common],
    )
    check.add_argument("file", type=Path, help="a file written by calor solve")
    check.add_argument("--seed", type=whole, default=1, help="of the new points (default: 1)")
    check.add_argument("--json", action="store_true", help="print the measurements as JSON")
    check.set_defaults(run=_check)


def _solve(options) -> int:
    out = writable(options.out)
    partial = unfinished(out, options.resume)
    settings = _settings(options.set)
    with input_errors():
        import jax.random as jr

        from ..manifolds.names import manifold_named
        from ..solvers import recipes
        from ..solvers import solve as solver
        from ..store import stored as checkpoint

        manifold = manifold_named(options.manifold)
        make = recipes.paper if options.recipe == "paper" else solver.own_recipe(manifold)
        try:
            recipe = make(**settings)
        except TypeError as error:
            raise InputError(f"--set: {error}") from error
        with keeping(partial):
            kernel = solver.solve(manifold, recipe, key=jr.key(options.seed), resume=partial)
        checkpoint.save(out, kernel)
    certificate = kernel.certificate  # pyright: ignore
    if options.json:
        print(json.dumps({"file": str(options.out), **_as_dict(certificate)}, indent=2))
    else:
        print(f"{certificate}\n\nSaved: {options.out}")
    return DONE


def _settings(pairs):
    """NAME=VALUE pairs as keyword arguments: whole numbers, numbers, true and false."""
    settings = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        try:
            settings[name] = json.loads(text)
        except ValueError as error:
            raise InputError(f"--set wants NAME=VALUE with a number, got {pair}") from error
        if not equals or not isinstance(settings[name], bool | int | float):
            raise InputError(f"--set wants NAME=VALUE with a number, got {pair}")
    return settings


def _check(options) -> int:
    readable(options.file)
    with progress() as show, input_errors():
        show("starting JAX")
        import jax.random as jr

        from .._public import load  # with all that a file may hold
        from ..solvers import check as validation

        kernel = load(options.file)
        if not hasattr(kernel, "certificate"):
            raise InputError(
                f"{options.file} holds a model, not a kernel; calor check is for kernels"
            )
        show("measuring residuals at new points")
        certificate = validation.certify_again(kernel, jr.key(options.seed))
        show("comparing with the exact kernel, if there is one")
        errors = validation.against_exact(kernel, jr.key(options.seed))
    if options.json:
        rows = {"errors": errors} if errors else {}
        print(json.dumps({"file": str(options.file), **_as_dict(certificate), **rows}, indent=2))
        return DONE
    print(certificate)
    if errors:
        print(f"\nErrors against the exact kernel, {validation.POINTS} points each\n")
        print(f"{'t':>6} {'points':>8} {'log p':>9} {'relative':>9} {'score':>9} {'relative':>9}")
        for row in errors:
            print(
                f"{row['t']:6g} {row['points']:>8} {row['log_prob']:9.1e} "
                f"{row['log_prob_relative']:9.1e} {row['score']:9.1e} "
                f"{row['score_relative']:9.1e}"
            )
    return DONE


def _as_dict(certificate):
    names = ("initial_error", "t0", "points", "law", "poor")
    rows = ("times", "largest", "mean", "normalized", "log_mass", "radius")
    return {
        "manifold": str(certificate.manifold),
        **{name: getattr(certificate, name) for name in names},
        **{name: list(getattr(certificate, name)) for name in rows},
        "bound": [certificate.bound(t) for t in certificate.times],
    }
