"""Public doors: who was called stands before the message of an error, at the outermost one."""

import contextvars
import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# The name of the outermost door.
_inside: contextvars.ContextVar[str] = contextvars.ContextVar("inside a door", default="")


def door(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator for public functions: their errors about arguments begin with their name.

    What is called inside need not know who called.

    Args:
        name: of the function, as users write it.
    """

    def wrapped(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def entered(*args: P.args, **kwargs: P.kwargs) -> R:
            if _inside.get():
                return function(*args, **kwargs)
            token = _inside.set(name)
            try:
                return function(*args, **kwargs)
            except (ValueError, TypeError) as error:
                # Only messages: errors of libraries with arguments of their own stay as they are.
                if len(error.args) == 1 and isinstance(error.args[0], str):
                    error.args = (f"{name}: {error.args[0]}",)
                raise
            finally:
                _inside.reset(token)

        return entered

    return wrapped


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning that begins with the name of the outermost door, at the line that entered it."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_globals):
        level, frame = level + 1, frame.f_back
    name = _inside.get()
    warnings.warn(f"{name}: {message}" if name else message, category, stacklevel=level)


def _is_ours(names: dict[str, Any]) -> bool:
    """Whether a frame is one of calor, or of what calls its methods."""
    return str(names.get("__name__", "")).partition(".")[0] in ("calor", "equinox")
