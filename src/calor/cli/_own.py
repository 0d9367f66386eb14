"""Manifolds on the command line: by name, or from a Python file of the user's, `FILE.py:NAME`.

This is the one door through which the command line runs a user's file, and only because it was
typed: what a file of calor holds never leads here.
"""

import argparse
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from . import _files
from ._shared import InputError

if TYPE_CHECKING:
    from ..manifolds import AbstractManifold

# Known without JAX, for help.
MANIFOLDS = (
    "sphere:N, so3, torus:N, hyperbolic:N, spd:N, euclidean:N, cloud:NxK, a product as "
    "so3*euclidean:3, or your own as FILE.py:NAME"
)
_HELP = "FILE.py:NAME, where FILE.py defines the manifold of the model or kernel, if it is your own"


def add_manifold(parser: argparse.ArgumentParser) -> None:
    """The option of commands that read a file of calor, which may live on the user's manifold."""
    parser.add_argument("--manifold", metavar="FILE.py:NAME", help=_HELP)


def check_manifold(text: str | None) -> None:
    """Refuse a file that is not there, before JAX is imported."""
    if text is not None and (place := _place(text)) is not None:
        _files.readable(place[0])


def manifold_from(text: str) -> "AbstractManifold":
    """The manifold that is meant by a name such as `sphere:2`, or by `FILE.py:NAME`."""
    from ..manifolds import AbstractManifold
    from ..manifolds.names import manifold_named

    place = _place(text)
    if place is None:
        return manifold_named(text)
    path, name = place
    module = _run(_files.readable(path))
    if name not in vars(module):
        known = [word for word, value in vars(module).items() if _is_choice(value, module)]
        raise InputError(f"{path} defines no {name!r}; it defines {', '.join(known) or 'nothing'}")
    found = vars(module)[name]
    if callable(found) and not isinstance(found, AbstractManifold):
        try:
            found = found()
        except (Exception, SystemExit) as error:
            raise InputError(f"{text}() failed: {_described(error, path)}") from error
    if not isinstance(found, AbstractManifold):
        raise InputError(
            f"{text} is {found!r:.80}, neither a manifold nor a function without arguments that "
            "returns one"
        )
    return found


def load(path: Path, text: str | None, kind: Literal["kernel", "model"]) -> Any:
    """What a file holds, after the user's file has defined what it is made of."""
    from .._public import load as open_file  # with all that a file may hold

    if text is None:
        return open_file(path, kind=kind)
    own = manifold_from(text)
    found = open_file(path, own, kind=kind)
    if found.manifold.fingerprint() != own.fingerprint():
        raise InputError(f"{path} lives on {found.manifold}, but --manifold is {own}")
    return found


def _place(text):
    """The file and the name in it, if a file is meant."""
    file, colon, name = text.rpartition(":")
    return (Path(file), name) if colon and file.endswith(".py") else None


def _run(path: Path) -> ModuleType:
    """The module that a file is, run once."""
    whole = path.resolve()
    for module in list(sys.modules.values()):
        file = Path(getattr(module, "__dict__", {}).get("__file__") or "")
        if file.name == whole.name and file.resolve() == whole:
            return module
    print(f"calor: running {path}", file=sys.stderr)
    name = f"{path.stem} in {whole.parent}"  # no file of that name elsewhere takes its place
    spec = importlib.util.spec_from_file_location(name, whole)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(whole.parent) not in sys.path:
        sys.path.append(str(whole.parent))  # it may import its neighbours
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(_described(error, path)) from error
    return module


def _described(error, path):
    """An error in a user's file, with the line of that file."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == path.resolve()]
    where = f"{path}, line {lines[-1]}" if lines else f"{path}"
    return f"{where}: {type(error).__name__}: {error}"


def _is_choice(value, module):
    """Whether a value looks like what a user would name."""
    from ..manifolds import AbstractManifold

    is_own = getattr(value, "__module__", None) == module.__name__
    return isinstance(value, AbstractManifold) or (callable(value) and is_own)
