"""Files of the command line: asked about before anything is computed, and written whole."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..store import atomic
from ._shared import InputError, stop_if_interrupted


def readable(path: Path) -> Path:
    """The path, if there is a file to read."""
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a file")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path} may not be read: permission denied")
    return path


def check_picture(path: Path, option: str) -> None:
    """Refuse a name that does not say that the file is a picture."""
    if path.suffix.lower() != ".png":
        raise InputError(f"{option} must end in .png, got {path}")


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


def unfinished(options: argparse.Namespace) -> tuple[Path, Path]:
    """The file to write, and the one beside it for the state of an unfinished run."""
    out = writable(options.out)
    partial = out.with_name(f"{out.name}.partial")
    if partial.exists() and not options.resume:
        raise InputError(
            f"{partial} holds an unfinished run; add --resume to go on from it, or remove it"
        )
    if options.resume and not partial.exists():
        raise InputError(f"there is no unfinished run {partial} to resume")
    return out, partial


@contextlib.contextmanager
def keeping(partial: Path) -> Iterator[None]:
    """Say where an interrupted run is kept."""
    try:
        yield
    except KeyboardInterrupt:
        if partial.exists():
            print(f"calor: kept in {partial}; --resume goes on from it", file=sys.stderr)
        raise
    stop_if_interrupted()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when all went well and Ctrl-C was not pressed."""
    with atomic.replacing(writable(path)) as file:
        yield file
        stop_if_interrupted()
