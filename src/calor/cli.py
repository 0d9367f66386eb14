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
    return parser


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


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when all went well, and leaves no trace otherwise."""
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} does not exist; make it first")
    if path.exists() and not path.is_file():
        raise InputError(f"{path} exists and is not a file; choose another name for --out")
    if path.exists() and not os.access(path, os.W_OK):
        raise InputError(f"{path} may not be written to; choose another name for --out")
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
