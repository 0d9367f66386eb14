"""Pictures of points: each family says how its points are drawn.

A picture is a function of points, their manifold and where to draw, which returns a figure.  It
imports matplotlib inside, so that it can be registered where matplotlib is not installed.
"""

from .registry import Registry

PICTURES = Registry("picture")
picture = PICTURES.register
"""Register a function `draw(points, manifold, axes)` for a class of manifolds."""
