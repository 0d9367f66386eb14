"""A globe seen from far away: where its points are on the screen, its lines and its outline."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle

from ._style import (
    AXIS_COLORS,
    DOTS,
    GRATICULE,
    INK,
    PAPER,
    Density,
    bare,
    draw_values,
    on_some,
)


def place(latitude: Any, longitude: Any) -> np.ndarray:
    """Unit vectors (..., 3) of latitudes and longitudes in radians."""
    latitude, longitude = np.broadcast_arrays(latitude, longitude)
    flat = np.cos(latitude)
    parts = [flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude)]
    return np.stack(parts, axis=-1)


def view_from(latitude: float, longitude: float) -> np.ndarray:
    """The rotation to screen coordinates (right, up, toward the eye) of an eye above a place.

    Args:
        latitude: degrees north of the place below the eye.
        longitude: degrees east of it.

    Returns:
        A matrix (3, 3) that takes points of the unit sphere to screen coordinates.
    """
    lat, lon = np.deg2rad([latitude, longitude])
    toward, right = place(lat, lon), [-np.sin(lon), np.cos(lon), 0.0]
    return np.stack([right, np.cross(toward, right), toward])


# An eye that sees the x, y and z axis at the same angle.
CORNER = view_from(float(np.rad2deg(np.arctan(np.sqrt(0.5)))), 45.0)


def draw_density(
    axes: Axes,
    function: Density,
    view: np.ndarray,
    pixels: int,
    logarithmic: bool,
    limits: tuple[float, float] | None = None,
) -> None:
    """Color the globe by a function of its points."""
    side = np.linspace(-1, 1, pixels)
    right, up = np.meshgrid(side, side)
    # Pixels just outside take the value of the edge, and the clip below cuts them off smoothly.
    radius = np.hypot(right, up)
    scale = 1 / np.maximum(radius, 1)
    depth = np.sqrt(np.maximum(1 - radius**2, 0))
    points = np.stack([right * scale, up * scale, depth], axis=-1) @ view
    values = on_some(function, points, radius < 1 + 4 / pixels)
    image = draw_values(axes, values, (-1, 1, -1, 1), logarithmic, limits)
    image.set_clip_path(Circle((0, 0), 1, transform=axes.transData))
    draw_lines(axes, view, color="white", alpha=0.28)


def draw_groups(
    axes: Axes,
    groups: Sequence[np.ndarray],
    view: np.ndarray,
    colors: Sequence[str] = AXIS_COLORS,
    dots: Mapping[str, Any] = DOTS,
) -> None:
    """Points in front, in one color for each group, in random order so that none hides another."""
    shades = [
        np.broadcast_to(color, len(group)) for color, group in zip(colors, groups, strict=False)
    ]
    points, shades = np.concatenate(groups) @ view.T, np.concatenate(shades)
    order = np.random.default_rng(0).permutation(np.flatnonzero(points[:, 2] > 0))
    axes.scatter(*points[order, :2].T, **{**dots, "c": shades[order]})


def draw_ball(axes: Axes, view: np.ndarray) -> None:
    """The empty globe."""
    axes.add_patch(Circle((0, 0), 1, facecolor=PAPER, edgecolor="none", zorder=0))
    draw_lines(axes, view, color=GRATICULE, alpha=0.45)


def draw_lines(axes: Axes, view: np.ndarray, color: str, alpha: float) -> None:
    """Meridians and parallels every 30 degrees, as far as they are in front."""
    along = np.deg2rad(np.linspace(-180, 180, 361))
    lines = [place(latitude, along) for latitude in np.deg2rad(range(-60, 90, 30))]
    # From pole to pole.
    lines += [place(along / 2, longitude) for longitude in np.deg2rad(range(-180, 180, 30))]
    for line in lines:
        right, up, depth = view @ line.T
        seen = np.where(depth < 0, np.nan, [right, up])
        axes.plot(*seen, color=color, alpha=alpha, linewidth=0.5)


def frame(axes: Axes) -> None:
    """The outline."""
    axes.add_patch(Circle((0, 0), 1, fill=False, edgecolor=INK, linewidth=0.7))
    bare(axes, (-1.02, 1.02), (-1.02, 1.02))
