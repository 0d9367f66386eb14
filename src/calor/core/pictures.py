"""Pictures of points: each family says how its points are drawn.

A picture is a function of points, their manifold and where to draw, which returns a figure.  It
imports matplotlib inside, so that it can be registered where matplotlib is not installed.
"""

from collections.abc import Callable
from typing import Any

from .registry import Registry, T, always

PICTURES = Registry("picture")


def picture(family: type, *, when: Callable[[Any], bool] = always) -> Callable[[T], T]:
    """Register a function `draw(points, manifold, axes)` for those of a class of manifolds."""
    return PICTURES.register(family, when=when)
