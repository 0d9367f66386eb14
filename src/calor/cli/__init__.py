"""The command line `calor`.

Exit codes: 0 done, 2 bad usage or input, 130 interrupted; 1 is a defect of calor itself.  Messages
are one line on stderr, with a stack trace only if `--debug` asks for it.

Open `fit` first.  Every command has a file with its name: `describe` tells the parser what it takes
and what to run.  Only the file of the command that is called is opened, and JAX and matplotlib are
imported when it needs them, so `calor --help` does not wait.
"""

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from .. import __version__
from ._shared import BAD_INPUT, DEFECT, DONE, INTERRUPTED, InputError, interrupts

COMMANDS = {
    "demo": "fit, score and draw a model of the world's airports",
    "fit": "fit a diffusion model to points in a file",
    "sample": "draw points from a saved model",
    "score": "log-likelihoods of points under a saved model",
    "solve": "solve the heat kernel of a manifold and save it",
    "check": "measure the accuracy of a saved kernel again",
    "bench": "measure the errors of the exact heat kernels",
    "reproduce": "run an experiment of the paper",
    "completion": "print a script that completes commands in a shell",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments, without the name of the program; by default those of the process.

    Returns:
        The exit code.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    named = next((word for word in arguments if not word.startswith("-")), "")
    try:
        parser, _ = parsers({named} & COMMANDS.keys())
        options = parser.parse_args(arguments)
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


def parsers(
    described: Collection[str],
) -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The parser, and those of all commands; only some are told what their command takes."""
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
    for name, about in COMMANDS.items():
        command = commands.add_parser(name, help=about, parents=[common])
        if name in described:
            importlib.import_module(f".{name}", __name__).describe(command)
    return parser, commands.choices


SEES = (
    "store",
    "training",
    "manifolds",
    "solvers",
    "data",
    "models",
    "plots",
    "experiments",
)
