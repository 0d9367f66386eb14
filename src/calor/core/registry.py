"""Registries: what suits a family of values is said where the family is defined.

A registry maps classes to entries.  It is filled by decorators beside the classes, inside calor or
in a user's own file, and asked by value: the entry of the nearest class along the method resolution
order whose condition holds.  So nothing outside a family's own file needs to know its name.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")


def _always(value: Any) -> bool:
    return True


class Entry(NamedTuple):
    """What was registered for a family."""

    made: Any
    """What the decorator was put on."""
    when: Callable[[Any], bool]
    """For which values of the family it is meant."""
    facts: dict[str, Any]
    """What else was said of it."""


class Register(Protocol):
    """The method `register` of a registry."""

    def __call__(
        self, family: type, *, when: Callable[[Any], bool] = _always, **facts: Any
    ) -> Callable[[T], T]:
        """A decorator that registers what it is put on for values of a class."""
        ...


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
        self, family: type, *, when: Callable[[Any], bool] = _always, **facts: Any
    ) -> Callable[[T], T]:
        """A decorator that registers what it is put on for values of a class.

        Args:
            family: the class, which stands for its subclasses too.
            when: for which of its values; for all by default.
            **facts: what else is to be known.
        """

        def registered(made: T) -> T:
            self._entries.setdefault(family, []).append(Entry(made, when, facts))
            return made

        return registered

    def all(self, value: Any) -> list[Entry]:
        """The entries that hold for a value, of the nearest class first, in the order they came."""
        families = [self._entries.get(family, []) for family in type(value).__mro__]
        return [entry for entries in families for entry in entries if entry.when(value)]

    def find(self, value: Any) -> Entry | None:
        """The first of them, or None."""
        return next(iter(self.all(value)), None)

    def entries(self) -> Iterator[tuple[type, Entry]]:
        """All entries with their families, in the order they came."""
        for family, entries in self._entries.items():
            yield from ((family, entry) for entry in entries)
