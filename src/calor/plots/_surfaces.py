"""Surfaces in R^3 that are given by an equation, drawn from the equation itself.

There is no mesh.  For every pixel a ray is followed from the eye until the equation changes its
sign, and bisected there; the gradient of the equation is the normal that the light falls on.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ..core.pictures import picture
from ..manifolds import Submanifold
from ._globe import view_from
from ._style import (
    COLORS,
    INK,
    Density,
    bare,
    brightness,
    color_limits,
    mark,
    on_some,
    one_of,
    panels,
    points_over,
    set_title,
)

# Steps along a ray; thinner walls than the width of the surface over this are missed.
_STEPS, _BISECTIONS = 160, 16
_AMBIENT = 0.45


def surface(
    manifold: Submanifold,
    points: Any = None,
    *,
    density: Density | None = None,
    log_density: Density | None = None,
    source: np.ndarray | None = None,
    view: tuple[float, float] = (25.0, 30.0),
    pixels: int = 300,
    limits: tuple[float, float] | None = None,
    title: str = "",
    axes: Axes | None = None,
) -> Figure:
    """A surface in R^3 with points or a density on it.

    Args:
        manifold: a `Submanifold` of R^3 with one equation.
        points: points (m, 3) of it; those that are hidden are not drawn.
        density: takes points (m, 3) to values (m,), colored from zero to the largest.
        log_density: or its logarithm, colored over eight nats below the peak.
        source: a point (3,) to mark.
        view: latitude and longitude, in degrees, of the eye, as for `globe`.
        pixels: of a side of the picture, at which the density is evaluated.
        limits: the values of the first and the last color, instead of those above.
        title: of the panel.
        axes: where to draw; by default a new figure.

    Returns:
        The figure.
    """
    if not isinstance(manifold, Submanifold) or manifold.shape != (3,) or manifold.dim != 2:
        raise ValueError(
            f"plots.surface: draws a Submanifold of R^3 with one equation, got {manifold}."
        )
    figure, [axes] = panels(axes, 1, (3.6, 3.7))
    function, logarithmic = one_of(density, log_density)
    eye = _Eye(manifold, view_from(*view))
    seen = eye.look(pixels)
    colors = np.broadcast_to(to_rgb("#dfe6ec"), (pixels, pixels, 3))
    if function is not None:
        values = on_some(function, seen.places, seen.is_hit)
        scale = color_limits(values, logarithmic, limits)
        span = max(scale["vmax"] - scale["vmin"], 1e-12)
        colors = COLORS(np.nan_to_num((values - scale["vmin"]) / span))[..., :3]
    # Colors of a density are read off, so light changes them little, and a gloss shows the shape.
    ambient, gloss = (_AMBIENT, 0.0) if function is None else (0.8, 0.15)
    light = seen.light[..., None]
    shaded = colors * (ambient + (1 - ambient) * light) + gloss * light**2
    picture = np.concatenate([np.clip(shaded, 0, 1), seen.cover[..., None]], axis=-1)
    reach = eye.reach
    extent = (-reach, reach, -reach, reach)
    axes.imshow(picture, extent=extent, origin="lower", interpolation="bilinear")
    side = ((np.arange(pixels) + 0.5) / pixels * 2 - 1) * reach
    axes.contour(side, side, seen.cover, levels=[0.5], colors=INK, linewidths=0.7)
    if points is not None:
        front = eye.in_front(np.asarray(points, float))
        axes.scatter(*front.T, zorder=3, **points_over(function is not None))
    if source is not None:
        for spot in eye.in_front(np.asarray(source, float)[None]):
            mark(axes, spot, zorder=4)
    set_title(axes, title)
    bare(axes, (-reach, reach), (-reach, reach))
    return figure


@picture(Submanifold, when=lambda manifold: manifold.shape == (3,) and manifold.dim == 2)
def _points(values: Any, manifold: Submanifold, axes: Any) -> Figure:
    return surface(manifold, values, title=f"{len(values)} points", axes=axes)


class _Seen(NamedTuple):
    """What the eye sees, pixel by pixel."""

    places: np.ndarray
    """Points of the surface."""
    is_hit: np.ndarray
    light: np.ndarray
    """How much light falls there, from zero to one."""
    cover: np.ndarray
    """The part of the pixel that the surface covers."""


class _Eye:
    """An eye far away, and the part of the screen that the surface fills."""

    def __init__(self, manifold, view):
        self.view = view
        equation = lambda x: jnp.reshape(manifold.constraint(x), ())
        self._value = jax.vmap(equation)
        self._slope = jax.jit(jax.vmap(jax.grad(equation)))
        anchors = np.asarray(manifold.anchors)
        self.middle = (anchors.min(axis=0) + anchors.max(axis=0)) / 2
        self.reach = 1.3 * float(np.max(np.linalg.norm(anchors - self.middle, axis=1)))
        self._depth = self.reach  # rays begin so far before the middle, and end so far behind
        # The points that are known need not be the outermost: look, then move closer.
        _, is_hit, screen = self._cast(64)
        if not is_hit.any():
            raise ValueError(
                f"plots.surface: {manifold} is not seen: its equation must change its sign there."
            )
        shift = (screen[is_hit].min(axis=0) + screen[is_hit].max(axis=0)) / 2
        size = np.max(screen[is_hit].max(axis=0) - screen[is_hit].min(axis=0)) / 2
        self.middle = self.middle + shift @ view[:2]
        self.reach = float(size + 2.5 * self.reach / 64)

    def look(self, pixels):
        """The picture; light and cover are averages over four rays for each pixel."""
        places, is_hit, _ = self._cast(2 * pixels)
        normals = np.zeros_like(places)
        normals[is_hit] = np.asarray(self._slope(jnp.asarray(places[is_hit], jnp.float32)))
        normals = normals @ self.view.T
        normals /= np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), 1e-12)
        normals *= np.where(normals[..., 2:] < 0, -1.0, 1.0)  # toward the eye
        light = brightness(normals)
        cover = _blocks(is_hit.astype(float)).mean(axis=-1)
        light = _blocks(np.where(is_hit, light, 0)).mean(axis=-1) / np.maximum(cover, 1e-9)
        # One of the four rays that hits stands for the pixel.
        first = np.argmax(_blocks(is_hit), axis=-1)
        chosen = [
            np.take_along_axis(_blocks(places[..., i]), first[..., None], -1)[..., 0]
            for i in range(3)
        ]
        return _Seen(np.stack(chosen, axis=-1), cover > 0, light, cover)

    def in_front(self, points):
        """Screen coordinates of those points that nothing hides."""
        away = np.geomspace(0.02, 2.5, _STEPS) * self.reach
        rays = points[:, None] + away[:, None] * self.view[2]
        values = np.asarray(self._value(jnp.asarray(rays.reshape(-1, 3), jnp.float32)))
        signs = np.sign(values.reshape(len(points), _STEPS))
        is_free = np.all(signs == signs[:, :1], axis=1)
        return ((points - self.middle) @ self.view[:2].T)[is_free]

    def _cast(self, pixels):
        """Where a ray for every pixel first meets the surface, and the screen coordinates."""
        side = (np.arange(pixels) + 0.5) / pixels * 2 * self.reach - self.reach
        screen = np.stack(np.meshgrid(side, side), axis=-1)
        starts = self.middle + screen @ self.view[:2]
        return *_march(self._value, starts, self.view[2], self._depth), screen


def _march(value, starts, toward, depth):
    """Points where lines of sight first change the sign of a function, and which do."""
    toward = jnp.asarray(toward, jnp.float32)
    steps = jnp.linspace(depth, -depth, _STEPS)

    @jax.jit
    def row(starts):
        at = lambda s: value(starts + s[:, None] * toward)
        signs = jax.lax.map(lambda s: jnp.sign(at(jnp.full(len(starts), s))), steps)
        changes = signs[1:] != signs[:-1]
        first = jnp.argmax(changes, axis=0)
        near, far, sign = steps[first], steps[first + 1], signs[first, jnp.arange(len(starts))]

        def halve(ends, _):
            near, far = ends
            middle = (near + far) / 2
            is_same = jnp.sign(at(middle)) == sign
            return (jnp.where(is_same, middle, near), jnp.where(is_same, far, middle)), None

        (near, far), _ = jax.lax.scan(halve, (near, far), length=_BISECTIONS)
        return starts + ((near + far) / 2)[:, None] * toward, jnp.any(changes, axis=0)

    found = [row(jnp.asarray(line, jnp.float32)) for line in starts]
    places, is_hit = (np.stack([np.asarray(pair[i]) for pair in found]) for i in range(2))
    return places.astype(float), is_hit


def _blocks(image):
    """Blocks of two by two pixels along a last axis."""
    height, width = image.shape
    parts = image.reshape(height // 2, 2, width // 2, 2)
    return np.moveaxis(parts, 2, 1).reshape(height // 2, width // 2, 4)
