"""What the commands share: errors of the user's input, Ctrl-C, files that are written whole."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

DONE, DEFECT, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


class InputError(Exception):
    """What the user asked for cannot be done; the message says why and what to do."""


_interrupted = False


@contextlib.contextmanager
def interrupts():
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
        stop_if_interrupted()
    finally:
        signal.signal(signal.SIGINT, before)


def stop_if_interrupted():
    """Stop here if Ctrl-C was pressed."""
    if _interrupted:
        raise KeyboardInterrupt


@contextlib.contextmanager
def input_errors():
    """Errors of the library about its arguments are errors of the user's input here."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from error


def writable(path: Path) -> Path:
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
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when all went well, and leaves no trace otherwise."""
    path = writable(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        file = open(temporary, "xb")
    except OSError as error:
        raise InputError(f"cannot write in {path.parent}: {error.strerror}") from error
    try:
        with file:
            yield file
        stop_if_interrupted()
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def progress():
    """A function that says what is being done, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda message: stop_if_interrupted()
        return
    start = time.perf_counter()

    def show(message):
        stop_if_interrupted()
        print(f"{time.perf_counter() - start:6.1f} s  {message}", file=sys.stderr, flush=True)

    yield show
