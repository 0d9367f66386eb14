"""Registries: what suits a family of values is said where the family is defined.

A registry maps classes to entries.  It is filled by decorators beside the classes, inside calor or
in a user's own file, and asked by value: the entry of the nearest class along the method resolution
order whose condition holds.  So nothing outside a family's own file needs to know its name.
"""

import re
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


def always(value: Any) -> bool:
    """The condition of an entry that is meant for all values of its family."""
    return True


class Entry(NamedTuple):
    """What was registered for a family."""

    made: Any
    """What the decorator was put on."""
    when: Callable[[Any], bool]
    """For which values of the family it is meant."""
    facts: dict[str, Any]
    """What else was said of it."""


class Registry:
    """Entries by class."""

    def __init__(self, what: str):
        """An empty registry.

        Args:
            what: it holds, in a word or two, for messages.
        """
        self.what = what
        self._entries: dict[type, list[Entry]] = {}

    def register(
        self, family: type, *, when: Callable[[Any], bool] = always, **facts: Any
    ) -> Callable[[T], T]:
        """A decorator that registers what it is put on for values of a class.

        Args:
            family: the class, which stands for its subclasses too.
            when: for which of its values; for all by default.
            **facts: what else is to be known.
        """

        def registered(made: T) -> T:
            entries, name = self._entries.setdefault(family, []), facts.get("name")
            for known in entries:
                if known.when is always and known.facts.get("name") == name:
                    _refuse_other(known.made, made, family, name or self.what)
            entries.append(Entry(made, when, facts))
            return made

        return registered

    def all(self, value: Any) -> list[Entry]:
        """The entries that hold for a value, of the nearest class first, in the order they came."""
        families = [self._entries.get(family, []) for family in type(value).__mro__]
        return [entry for entries in families for entry in entries if entry.when(value)]

    def find(self, value: Any) -> Entry | None:
        """The first of them, or None."""
        return next(iter(self.all(value)), None)


def _refuse_other(known: Any, made: Any, family: type, what: str) -> None:
    """What is there for all values of a class answers first: another would never be asked."""
    whence = _whence(known)
    if whence != _whence(made):  # a file that is run again registers the same
        raise ValueError(
            f"{family.__name__} has its {what!r} already, {whence:.200}; register for a subclass, "
            "or under another name."
        )


def _whence(made: Any) -> str:
    """Where a class or function is defined; a value stands for itself."""
    if isinstance(made, type | FunctionType):
        return f"{made.__module__}.{made.__qualname__}"
    return re.sub(" at 0x[0-9a-f]+", "", repr(made))
