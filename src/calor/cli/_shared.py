"""What the commands share: errors of the user's input, options, reports, progress, Ctrl-C."""

import argparse
import contextlib
import importlib
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DONE, DEFECT, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


class InputError(Exception):
    """What the user asked for cannot be done; the message says why and what to do."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C was pressed.

    A class of its own: Python notes a plain KeyboardInterrupt that leaves a string given to `exec`,
    as happens within imports, and at the end kills itself by that signal, caught or not.
    """


_interrupted = False


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Remember Ctrl-C: the exception it raises is lost if it hits a callback inside a library."""
    global _interrupted
    _interrupted = False
    if threading.current_thread() is not threading.main_thread():  # only that one gets signals
        yield
        return

    def interrupt(signal_number, frame):
        global _interrupted
        _interrupted = True
        raise Interrupted

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
        stop_if_interrupted()
    finally:
        signal.signal(signal.SIGINT, before)


def stop_if_interrupted() -> None:
    """Stop here if Ctrl-C was pressed."""
    if _interrupted:
        raise Interrupted


@contextlib.contextmanager
def input_errors() -> Iterator[None]:
    """Errors of the library about its arguments are errors of the user's input here."""
    try:
        yield
    except (ValueError, TypeError, FloatingPointError) as error:
        raise InputError(str(error)) from error


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option of every command that `report`s."""
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def add_training(parser: argparse.ArgumentParser) -> None:
    """The options of every command that trains, and `report`s."""
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file to write")
    parser.add_argument("--seed", type=whole, default=0, help="of the random numbers (default: 0)")
    parser.add_argument("--resume", action="store_true", help="go on from FILE.partial")
    add_json(parser)


def report(options: argparse.Namespace, found: dict[str, Any], text: str) -> int:
    """Print what was found, for people or as JSON; all is done then."""
    print(json.dumps(found, indent=2) if options.json else text)
    return DONE


def whole(text: str) -> int:
    """A whole number that is not negative, for argparse."""
    return _number(text, 0)


def positive(text: str) -> int:
    """A whole number of at least one, for argparse."""
    return _number(text, 1)


def _number(text, at_least):
    # Digits only: int() would take 1_000 and full-width digits as well.
    if not (text.isascii() and text.isdecimal()) or int(text) < at_least:
        raise argparse.ArgumentTypeError(
            f"must be a whole number of at least {at_least}, got {text!r}"
        )
    return int(text)


def require(package: str, extra: str, what: str) -> None:
    """Ask for an optional package before anything is computed."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise InputError(
            f"{what} needs {package}, which is not installed; run: pip install 'calor[{extra}]'"
        ) from error


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A function that says what is being done, on a terminal only; JAX is started first."""
    start, watched = time.perf_counter(), sys.stderr.isatty()

    def show(message):
        stop_if_interrupted()
        if watched:
            print(f"{time.perf_counter() - start:6.1f} s  {message}", file=sys.stderr, flush=True)

    show("starting JAX")
    yield show
