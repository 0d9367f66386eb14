"""The command line `calor`.

Exit codes: 0 done, 2 bad usage or input, 130 interrupted; 1 is a defect of calor itself.  Messages
are one line on stderr, with a stack trace only if `--debug` asks for it.

JAX and matplotlib are imported by the commands that need them, so `calor --help` does not wait.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from .. import __version__
from . import bench, completion, demo, kernels, models, reproduce
from ._shared import BAD_INPUT, DEFECT, DONE, INTERRUPTED, InputError, interrupts


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
        with interrupts():
            return options.run(options)
    except SystemExit as done:  # --help and --version
        return int(done.code or 0)
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
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


def _narrow(prog):
    formatter = argparse.HelpFormatter(prog)
    # argparse forgets that the names of commands are indented, and would wrap the longest.
    formatter._action_max_length = 14
    return formatter


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
        description="Heat kernels and diffusion models on Riemannian manifolds.",
        epilog="Example: calor demo",
        formatter_class=_narrow,
        parents=[common],
    )
    parser.add_argument("--version", action="version", version=f"calor {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (demo, models, kernels, bench, reproduce, completion):
        module.add(commands, common)
    return parser


SEES = (
    "_public",
    "core",
    "store",
    "training",
    "manifolds",
    "heat",
    "solvers",
    "data",
    "models",
    "plots",
    "experiments",
)
