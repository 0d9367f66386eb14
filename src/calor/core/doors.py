"""Public doors: who was called stands before the message of an error, at the outermost one."""

import contextvars
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("inside a door", default=False)


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
            token = _inside.set(True)
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
