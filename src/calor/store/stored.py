"""`calor.save` and `calor.load`: kernels and models in one file, their structure as JSON.

A value is written as the tag of its class and its parts by name; numbers, words and None stand for
themselves, sequences are lists, arrays are put aside:

    {"class": "Settling", "fields": {"manifold": {"class": "manifold", "fields": {...}}}}

Classes say with `stored`, above them, that files may hold them and how.  Nothing in a file is code:
only classes that were registered are ever built, from the numbers and names in the file.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from . import format1
from .files import FileError, read, write

T = TypeVar("T")


class Form(NamedTuple):
    """How the values of a class are written and read."""

    tag: str
    parts: Callable[[Any], dict[str, Any]]
    build: Callable[..., Any]
    root: str | None
    arrays: Mapping[str, Callable[[np.ndarray], Any]]
    asks: bool


_FORMS: dict[str, tuple[type, Form]] = {}
_CLASSES: dict[type, Form] = {}


def stored(
    tag: str,
    *,
    derived: tuple[str, ...] = (),
    parts: Callable[[Any], dict[str, Any]] | None = None,
    build: Callable[..., Any] | None = None,
    root: Literal["kernel", "model"] | None = None,
    arrays: Mapping[str, Callable[[np.ndarray], Any]] | None = None,
    asks: bool = False,
) -> Callable[[type[T]], type[T]]:
    """A decorator for classes that a file may hold.

    An abstract class speaks for those of its subclasses that do not speak for themselves.  With
    several above one class the topmost writes, and all of them read.

    Args:
        tag: of the class in files; it stays when the class is renamed.
        derived: fields that are not kept, since `build` makes them from the others.
        parts: what of a value is kept, by name; by default its fields.
        build: makes a value of its parts, given by name; by default the class itself.
        root: what a file of such a value is called, if it may be saved by itself.
        arrays: what makes of those of NumPy the parts that are arrays; by default they have to be
            finite and become JAX's, in its precision.
        asks: whether `build` is first given what `load` was given, since parts do not say all.
    """

    def registered(family: type[T]) -> type[T]:
        refuse_taken(tag, _FORMS.get(tag, (family,))[0], family)

        def fields(value: Any) -> dict[str, Any]:
            names = (field.name for field in dataclasses.fields(value))
            return {name: getattr(value, name) for name in names if name not in derived}

        form = Form(tag, parts or fields, build or family, root, arrays or {}, asks)
        _FORMS[tag], _CLASSES[family] = (family, form), form
        return family

    return registered


def refuse_taken(word: str, known: type, family: type) -> None:
    """Raise if a word in files stands for another class; one that is defined again is the same."""
    if (known.__module__, known.__qualname__) != (family.__module__, family.__qualname__):
        raise ValueError(
            f"{family.__qualname__}: in files {word!r} stands for {known.__module__}."
            f"{known.__qualname__}; take another word."
        )


def save(path: str | Path, value: Any) -> None:
    """Save a learned kernel or a model in one file.

    The functions that a `Submanifold` was given are not in it: a file never holds code.

    Args:
        path: the file to write; it is replaced if it exists.
        value: a kernel from `calor.solve`, or a model from `calor.fit` or `calor.fit_flow`.
    """
    form = _form_of(value)
    if form is None or form.root is None:
        raise TypeError(
            f"save: expected a kernel from calor.solve or a model from calor.fit, got "
            f"{value!s:.80}; exact and short-time kernels are made by calor.heat_kernel in no time."
        )
    tensors: dict[str, np.ndarray] = {}
    files: set[str] = set()
    code = _encode(value, tensors, files)
    header = {"kind": form.root, "value": code}
    write(Path(path), tensors, {**header, "files": sorted(files)} if files else header)


def load(
    path: str | Path, manifold: Any = None, *, kind: Literal["kernel", "model"] | None = None
) -> Any:
    """Load what `save` wrote.

    Args:
        path: the file to read.
        manifold: the `Submanifold` that the kernel or model lives on, if it lives on one.
        kind: what the file must hold, if not either.
    """
    header, tensors = read(Path(path), [kind] if kind else ["kernel", "model"])
    try:
        code = header["value"]
        return _decode(format1.read(code) if header["format"] == 1 else code, tensors, manifold)
    except FileError as error:
        raise FileError(f"{path}: {error}{_whence(header)}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise FileError(f"{path} is damaged: {error}; make it again.") from error


def _form_of(value: Any) -> Form | None:
    own, *above = type(value).__mro__
    spoken = [own, *(family for family in above if inspect.isabstract(family))]
    return next((_CLASSES[family] for family in spoken if family in _CLASSES), None)


def _file_of(family: type) -> str | None:
    """The name of the file that defines a class of a user's own, as far as it has one."""
    module = family.__module__.partition(" in ")[0]  # as the command line calls what it runs
    if module.partition(".")[0] == "calor":
        return None
    try:
        return "/".join(Path(inspect.getfile(family)).parts[-1 - module.count(".") :])
    except (TypeError, OSError):
        return module


def _whence(header: dict[str, Any]) -> str:
    """Which files the writer had imported; only for the message."""
    files = header.get("files", ())
    return f" It was written with classes of {', '.join(map(str, files))}." if files else ""


def _encode(value: Any, tensors: dict[str, np.ndarray], files: set[str]) -> Any:
    """A value as JSON; arrays are put aside into `tensors`, names of users' files into `files`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [_encode(item, tensors, files) for item in value]
    if isinstance(value, jax.Array | np.ndarray):
        name = f"{len(tensors):04d}"
        tensors[name] = np.asarray(value, order="C")  # `ascontiguousarray` makes scalars vectors
        return {"tensor": name}
    form = _form_of(value)
    if form is None:
        raise TypeError(f"save: cannot save a {type(value).__name__}.")
    file = _file_of(type(value))
    files |= {file} if file else set()
    fields = {name: _encode(part, tensors, files) for name, part in form.parts(value).items()}
    return {"class": form.tag, "fields": fields}


def _decode(code: Any, tensors: dict[str, np.ndarray], given: Any) -> Any:
    """The value, its arrays taken from `tensors`; `given` is for those whose parts ask for more."""
    if isinstance(code, list):
        return tuple(_decode(item, tensors, given) for item in code)
    if not isinstance(code, dict):
        return code
    if "tensor" in code:
        return _finite(tensors[code["tensor"]])
    tag, fields = code["class"], code["fields"]
    if tag not in _FORMS:
        raise FileError(
            f"it is damaged, or holds a value of a class that is not known here; import the file "
            f"that defines {tag} first."
        )
    form = _FORMS[tag][1]
    parts = {
        name: form.arrays[name](tensors[part["tensor"]])
        if name in form.arrays and part is not None
        else _decode(part, tensors, given)
        for name, part in fields.items()
    }
    return form.build(given, **parts) if form.asks else form.build(**parts)


def _finite(array: np.ndarray) -> jax.Array:
    if not np.all(np.isfinite(array)):
        raise ValueError("it contains numbers that are not finite")
    return jnp.asarray(array)
