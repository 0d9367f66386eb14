"""Names of manifolds, for files and the command line: `sphere:2`, `so3*euclidean:3`, `spd:10`.

Clouds of 9 points of R^3 are `cloud:9x3`, of 3 to 29 points of R^8 whose first three coordinates
are centred `cloud:3-29x8c3`.  A manifold says its name with `kind`, above its class; one that is
given by functions has none, and files hold some of their values.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..store.files import FileError
from ..store.stored import refuse_taken, stored
from .base import AbstractManifold

T = TypeVar("T")


class Kind(NamedTuple):
    """How the manifolds of a class are called."""

    family: type
    form: str
    """What names look like, for messages."""
    parse: Callable[[str], AbstractManifold]
    spell: Callable[[Any], str]


_KINDS: dict[str, Kind] = {}


def kind(
    word: str,
    *sizes: str,
    form: str | None = None,
    parse: Callable[[str], AbstractManifold] | None = None,
    spell: Callable[[Any], str] | None = None,
) -> Callable[[type[T]], type[T]]:
    """A decorator for manifolds that have names: a word and sizes, as in `grassmannian:4x2`.

    Args:
        word: of the class.
        *sizes: integer attributes, in the order in which the class takes them.
        form: what names look like, if that is not it; nothing if messages need not say it.
        parse: the manifold of a name.
        spell: the name of a manifold.
    """

    def called(numbers: Iterable[str]) -> str:
        return f"{word}:{'x'.join(numbers)}" if sizes else word

    def parsed(name: str) -> AbstractManifold:
        _, colon, rest = name.partition(":")
        numbers = rest.split("x") if colon else []
        if len(numbers) != len(sizes) or not all(
            number.isdecimal() and 1 <= int(number) <= 1000 for number in numbers
        ):
            needs = "its size, a whole number from 1 to 1000"
            if len(sizes) != 1:
                needs = f"{len(sizes) or 'no'} sizes, whole numbers from 1 to 1000"
            example = called("2" for _ in sizes)
            raise ValueError(f"the manifold {word} needs {needs}, as in {example}; got {name!r}")
        return _KINDS[word].family(*map(int, numbers))

    def spelled(manifold: Any) -> str:
        return called(str(getattr(manifold, size)) for size in sizes)

    def registered(family: type[T]) -> type[T]:
        if word in _KINDS:
            refuse_taken(word, _KINDS[word].family, family)
        usual = called("N" for _ in sizes) if form is None else form
        _KINDS[word] = Kind(family, usual, parse or parsed, spell or spelled)
        return family

    return registered


def manifold_named(name: str) -> AbstractManifold:
    """The manifold with a name such as `sphere:2`."""
    name = name.strip().lower()
    if _word(name) not in _KINDS:
        forms = sorted(kind.form for kind in _KINDS.values() if kind.form)
        known = ", ".join(sorted(forms, key=lambda form: ":" in form))  # words alone come first
        raise ValueError(f"unknown manifold {name!r}; known are {known}")
    return _KINDS[_word(name)].parse(name)


def _word(name: str) -> str:
    return "*" if "*" in name else name.partition(":")[0]


def name_of(manifold: AbstractManifold) -> str:
    """The name of a manifold; the inverse of `manifold_named`."""
    for kind in _KINDS.values():
        if type(manifold) is kind.family:
            return kind.spell(manifold)
    known = ", ".join(kind.family.__name__ for kind in _KINDS.values())
    raise ValueError(f"{manifold} has no name to be saved under; {known} have.")


# Manifolds in files.


def _in_file(name: str) -> AbstractManifold:
    for part in name.split("*"):
        if _word(part) not in _KINDS:
            raise FileError(
                f"it lives on {part!r}; import the file that defines this manifold first."
            )
    return manifold_named(name)


stored("manifold", parts=lambda manifold: {"name": name_of(manifold)}, build=_in_file)(
    AbstractManifold
)


def recognized(given: Any, **expected: Any) -> Any:
    """The manifold that was given to `load`, if its values are those that a file expects.

    Args:
        given: a manifold with a method `probe`, or None.
        **expected: what that of the manifold in the file said.
    """
    if given is None:
        raise FileError(
            f"it lives on a Submanifold of dimension {expected['dim']} in "
            f"R^{expected['shape'][0]}, whose functions no file holds; give it, as in load(path, "
            "manifold)."
        )
    found = given.probe()
    for name, values in expected.items():
        ours, theirs = (np.array(v, float) for v in (found.get(name, ()), values))
        if ours.shape != theirs.shape or not np.allclose(ours, theirs, 1e-3, 1e-4, equal_nan=True):
            raise FileError(
                f"it lives on another Submanifold than {given}: their {name} differs. Give the "
                "one it was made for."
            )
    return given
