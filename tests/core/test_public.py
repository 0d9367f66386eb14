"""What is public is documented and annotated, also where a class overrides a method."""

import importlib
import inspect
import pkgutil

import calor


def modules():
    """All modules of calor that can be imported here."""
    yield calor
    for info in pkgutil.walk_packages(calor.__path__, "calor."):
        if info.name.endswith("__main__"):  # runs when it is imported
            continue
        try:
            yield importlib.import_module(info.name)
        except ImportError:  # of a package that is not installed
            continue


def function_in(value):
    """The function that a value is or wraps, or None."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    value = inspect.unwrap(value) if hasattr(value, "__wrapped__") else value
    return value if inspect.isfunction(value) and value.__module__.startswith("calor.") else None


def public():
    """Name, function, and the functions it overrides, of every public function and method."""
    for module in modules():
        for name, value in vars(module).items():
            if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
                continue
            if not inspect.isclass(value):
                if function := function_in(value):
                    yield f"{module.__name__}.{name}", function, []
                continue
            for attribute, member in vars(value).items():
                function = function_in(member)
                # Not what a field or a generated method holds.
                if attribute.startswith("_") or not function or function.__name__ != attribute:
                    continue
                above = [
                    vars(base)[attribute] for base in value.__mro__[1:] if attribute in vars(base)
                ]
                yield f"{module.__name__}.{name}.{attribute}", function, above


def test_everything_public_has_a_docstring():
    silent = [
        f"{module.__name__}.{name}"
        for module in modules()
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
        and not (value.__doc__ or "").strip()
    ]
    for name, function, above in public():
        docs = [each.__doc__ for each in (function, *map(function_in, above)) if each]
        if not any((doc or "").strip() for doc in docs):
            silent.append(name)
    assert not silent


def test_everything_public_is_annotated():
    found = list(public())
    assert len(found) > 500
    bare = []
    for name, function, _ in found:
        signature = inspect.signature(function)
        for parameter in signature.parameters.values():
            if parameter.name not in ("self", "cls") and parameter.annotation is parameter.empty:
                bare.append(f"{name}: {parameter.name}")
        if signature.return_annotation is signature.empty:
            bare.append(f"{name}: what it returns")
    assert not bare
