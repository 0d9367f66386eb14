"""`calor check`: the accuracy of a learned heat kernel, measured again."""

import argparse
from pathlib import Path

from . import _files, _own
from ._shared import add_json, input_errors, progress, report, whole


def describe(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = (
        "Compute the certificate of a saved kernel again, at new points, and, where the exact "
        "kernel is known, its errors of log p and score."
    )
    parser.epilog = "Example: calor check s2.calor"
    parser.add_argument("file", type=Path, help="a file written by calor solve")
    parser.add_argument("--seed", type=whole, default=1, help="of the new points (default: 1)")
    _own.add_manifold(parser)
    add_json(parser)
    parser.set_defaults(run=_check)


def _check(options) -> int:
    _files.readable(options.file)
    _own.check_manifold(options.manifold)
    with progress() as show, input_errors():
        import jax.random as jr

        from ..solvers import check as validation

        kernel = _own.load(options.file, options.manifold, "kernel")
        show("measuring residuals at new points")
        certificate = validation.certify_again(kernel, jr.key(options.seed))
        show("comparing with the exact kernel, if there is one")
        errors = validation.against_exact(kernel, jr.key(options.seed))
    found = {"file": str(options.file), **certificate.record()}
    found |= {"errors": errors} if errors else {}
    return report(options, found, f"{certificate}{_table(errors, validation.POINTS)}")


def _table(errors, points):
    """The errors against the exact kernel, if there is one."""
    if not errors:
        return ""
    rows = [
        f"\n\nErrors against the exact kernel, {points} points each\n",
        f"{'t':>6} {'points':>8} {'log p':>9} {'relative':>9} {'score':>9} {'relative':>9}",
    ]
    for row in errors:
        rows.append(
            f"{row['t']:6g} {row['points']:>8} {row['log_prob']:9.1e} "
            f"{row['log_prob_relative']:9.1e} {row['score']:9.1e} {row['score_relative']:9.1e}"
        )
    return "\n".join(rows)
