"""Which heat kernels there are: classes and functions that make them register with `method`.

They do so in calor or in a user's own file.  For a manifold those of its nearest class come first.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..core.registry import Registry, always
from ..core.types import Key
from ..manifolds import AbstractManifold
from .combined import combine, components
from .kernel import AbstractHeatKernel

T = TypeVar("T", bound=Callable[..., AbstractHeatKernel])
Ready = Callable[[AbstractManifold, Key | None], bool]

KERNELS = Registry("methods of heat kernels")


class Method(NamedTuple):
    """One way to a kernel of a manifold."""

    build: Callable[[Key | None, str | Path | None], AbstractHeatKernel]
    """With a key, if there is one, and where kernels are kept that take long to solve for."""
    rank: int
    ready: Ready


def with_key(manifold: AbstractManifold, key: Key | None) -> bool:
    """Whether there is a key, which asks for solving now."""
    return key is not None


def method(
    family: type,
    name: str,
    *,
    when: Callable[..., bool] = always,
    rank: int = 0,
    ready: Ready = lambda manifold, key: True,
) -> Callable[[T], T]:
    """A decorator: what it is put on makes heat kernels of a class of manifolds.

    That is a kernel, a class that is called with the manifold, or a function that is called with
    the manifold and `key=` and `cache=`, which are those of `calor.heat_kernel`.

    Args:
        family: the class of manifolds, which stands for its subclasses too.
        name: of the method, as in `heat_kernel(manifold, name)`; one named `"auto"` makes the
            choice, if none is asked for, itself.
        when: for which manifolds of the class.
        rank: of the methods that are ready the lowest is taken if none is asked for: 0 for exact
            kernels, 1 for series, 2 for networks, 3 and more for approximations.
        ready: whether it may be taken then, for a manifold and a key or None.
    """
    return KERNELS.register(family, when=when, name=name, rank=rank, ready=ready)


def methods(manifold: AbstractManifold) -> dict[str, Method]:
    """The methods of a manifold by name; products and quotients have those of all their parts."""
    own: dict[str, Method] = {}
    for entry in KERNELS.all(manifold):
        build = _builder(entry.made, manifold)
        own.setdefault(
            entry.facts["name"], Method(build, entry.facts["rank"], entry.facts["ready"])
        )
    parts = [methods(part) for part in components(manifold)]
    found = {
        name: first._replace(build=_combined(manifold, name))
        for name, first in (parts[0].items() if parts else ())
        if name != "auto" and all(name in part for part in parts)
    }
    return {**found, **own}


def _builder(made: Any, manifold: AbstractManifold) -> Any:
    if inspect.isclass(made):
        return lambda key, cache: made(manifold)  # pyright: ignore
    return lambda key, cache: made(manifold, key=key, cache=cache)


def _combined(manifold: AbstractManifold, name: str) -> Any:
    def build(key, cache):
        return combine(manifold, lambda part, key: methods(part)[name].build(key, cache), key)

    return build
