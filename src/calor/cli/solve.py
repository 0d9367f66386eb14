"""`calor solve`: learned heat kernels."""

import argparse
import json

from . import _files, _own
from ._shared import InputError, add_training, input_errors, report


def describe(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = (
        "Solve the heat equation on a manifold by a small network, print the certificate of its "
        "accuracy and save it. Takes about a minute (spheres, tori) to five (spd:10). Ctrl-C keeps "
        "what was done in FILE.partial; --resume goes on from it. A manifold of your own is named "
        "by the Python file that defines it, which is run."
    )
    parser.epilog = "Example: calor solve sphere:2 --out s2.calor"
    parser.add_argument("manifold", help=_own.MANIFOLDS)
    add_training(parser)
    parser.add_argument(
        "--recipe",
        choices=["default", "paper"],
        default="default",
        help="calor's own way to train, or the paper's (default: %(default)s)",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="settings of the recipe, such as steps=1000 t1=2",
    )
    parser.set_defaults(run=_solve)


def _solve(options) -> int:
    _own.check_manifold(options.manifold)
    out, partial = _files.unfinished(options)
    settings = _settings(options.set)
    with input_errors():
        import jax.random as jr

        from ..solvers import recipes
        from ..solvers import solve as solver
        from ..store.stored import save

        manifold = _own.manifold_from(options.manifold)
        make = recipes.paper if options.recipe == "paper" else solver.own_recipe(manifold)
        try:
            recipe = make(**settings)
        except TypeError as error:
            raise InputError(f"--set: {error}") from error
        with _files.keeping(partial):
            kernel = solver.solve(manifold, recipe, key=jr.key(options.seed), resume=partial)
        save(out, kernel)
    certificate = kernel.certificate  # pyright: ignore
    found = {"file": str(options.out), **certificate.record()}
    return report(options, found, f"{certificate}\n\nSaved: {options.out}")


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
