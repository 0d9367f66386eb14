"""The command line `calor`.

Exit codes: 0 done, 2 bad usage or input, 130 interrupted; 1 is a defect of calor itself.  Messages
are one line on stderr, with a stack trace only if `--debug` asks for it.

JAX and matplotlib are imported by the commands that need them, so `calor --help` does not wait.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NoReturn

from . import __version__

DONE, DEFECT, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


class InputError(Exception):
    """What the user asked for cannot be done; the message says why and what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments, without the name of the program; by default those of the process.

    Returns:
        The exit code.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    try:
        options = _parser().parse_args(arguments)
        with _interrupts():
            return options.run(options)
    except SystemExit as done:  # --help and --version
        return int(done.code or 0)
    except KeyboardInterrupt:
        return _failure("interrupted", INTERRUPTED, debug)
    except (InputError, OSError) as error:
        return _failure(f"error: {error}", BAD_INPUT, debug)
    except Exception as error:
        message = f"unexpected {type(error).__name__}: {error}"
        return _failure(f"{message} (--debug shows where)", DEFECT, debug)


def _failure(message, code, debug):
    if debug:
        traceback.print_exc()
    print("calor:", " ".join(message.split()), file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    common = _Parser(add_help=False)
    common.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show the stack trace of an error",
    )
    parser = _Parser(
        prog="calor",
        description="Heat kernels on Riemannian manifolds.",
        epilog="Example: calor demo --out heat.png",
        parents=[common],
    )
    parser.add_argument("--version", action="version", version=f"calor {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
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
    _add_solve(commands, common)
    _add_check(commands, common)
    return parser


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
    solve.add_argument("--seed", type=int, default=0, help="of the random numbers (default: 0)")
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
    check.add_argument("--seed", type=int, default=1, help="of the new points (default: 1)")
    check.add_argument("--json", action="store_true", help="print the measurements as JSON")
    check.set_defaults(run=_check)


def _demo(options) -> int:
    if options.out.suffix.lower() != ".png":
        raise InputError(f"--out must end in .png, got {options.out}")
    try:
        import matplotlib  # noqa: F401  # asked for before anything is computed
    except ImportError as error:
        raise InputError(
            "the picture needs matplotlib, which is not installed; run: pip install 'calor[demo]'"
        ) from error
    with _replacing(options.out) as file, _progress() as progress:
        progress("starting JAX")
        from . import demo

        report = demo.run(file, progress)
    if options.json:
        print(json.dumps({"picture": str(options.out), **dataclasses.asdict(report)}, indent=2))
    else:
        print(f"{report}\n\nPicture: {options.out}. Time: {report.seconds:.0f} s.")
    return DONE


_interrupted = False


@contextlib.contextmanager
def _interrupts():
    """Remember Ctrl-C: the exception it raises is lost if it hits a callback inside a library."""
    global _interrupted
    _interrupted = False
    if threading.current_thread() is not threading.main_thread():  # only that one gets signals
        yield
        return

    def interrupt(signal_number, frame):
        global _interrupted
        _interrupted = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
        _stop_if_interrupted()
    finally:
        signal.signal(signal.SIGINT, before)


def _stop_if_interrupted():
    if _interrupted:
        raise KeyboardInterrupt


def _solve(options) -> int:
    out = _writable(options.out)
    partial = out.with_name(f"{out.name}.partial")
    if partial.exists() and not options.resume:
        raise InputError(
            f"{partial} holds an unfinished run; add --resume to go on from it, or remove it"
        )
    if options.resume and not partial.exists():
        raise InputError(f"there is no unfinished run {partial} to resume")
    with _input_errors():
        import jax.random as jr

        from . import checkpoint, recipes, solver
        from .names import manifold_named

        manifold = manifold_named(options.manifold)
        settings = _settings(options.set)
        make = recipes.paper if options.recipe == "paper" else recipes.default
        try:
            recipe = make(**settings)
        except TypeError as error:
            raise InputError(f"--set: {error}") from error
        try:
            kernel = solver.solve(manifold, recipe, key=jr.key(options.seed), resume=partial)
        except KeyboardInterrupt:
            if partial.exists():
                print(f"calor: kept in {partial}; --resume goes on from it", file=sys.stderr)
            raise
        _stop_if_interrupted()
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
    with _input_errors():
        import jax.random as jr

        from . import checkpoint, validation

        kernel = checkpoint.load(options.file)
        certificate = validation.certify_again(kernel, jr.key(options.seed))
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


@contextlib.contextmanager
def _input_errors():
    """Errors of the library about its arguments are errors of the user's input here."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from error


def _writable(path: Path) -> Path:
    """Where `path` leads, if a file may be written there."""
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} does not exist; make it first")
    if path.exists() and not path.is_file():
        raise InputError(f"{path} exists and is not a file; choose another name for --out")
    if path.exists() and not os.access(path, os.W_OK):
        raise InputError(f"{path} may not be written to; choose another name for --out")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"cannot write in {path.parent}: permission denied")
    return path


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when all went well, and leaves no trace otherwise."""
    path = _writable(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        file = open(temporary, "xb")
    except OSError as error:
        raise InputError(f"cannot write in {path.parent}: {error.strerror}") from error
    try:
        with file:
            yield file
        _stop_if_interrupted()
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _progress():
    """A function that says what is being done, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda message: _stop_if_interrupted()
        return
    start = time.perf_counter()

    def show(message):
        _stop_if_interrupted()
        print(f"{time.perf_counter() - start:6.1f} s  {message}", file=sys.stderr, flush=True)

    yield show


if __name__ == "__main__":
    sys.exit(main())
