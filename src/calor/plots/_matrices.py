"""Positive definite matrices: as ellipses, as ellipsoids, and by their eigenvalues."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from matplotlib.ticker import LogLocator, NullFormatter

from ..core.pictures import picture
from ..manifolds import SPD
from ._globe import view_from
from ._style import AXIS_COLORS, Groups, bare, brightness, named, open_frame, panels, set_title

# No more matrices are drawn in one panel, and the side of an ellipsoid in pixels.
_MOST, _TILE = 64, 96


def ellipses(groups: Groups, *, axes: Axes | Sequence[Axes] | None = None) -> Figure:
    """Matrices of SPD(2) as the ellipses x' A^-1 x = 1, in rows, all to the same scale.

    Args:
        groups: an array (m, 2, 2), or several by the title of their panel; of each the first 64.
        axes: where to draw, one for each group; by default a new figure.

    Returns:
        The figure.
    """
    return _in_cells(groups, 2, _draw_ellipses, axes)


def ellipsoids(groups: Groups, *, axes: Axes | Sequence[Axes] | None = None) -> Figure:
    """Matrices of SPD(3) as the ellipsoids x' A^-1 x = 1, in rows, all to the same scale.

    The color is the direction of the longest axis, red along x, green along y and blue along z, as
    is usual for diffusion tensors.

    Args:
        groups: an array (m, 3, 3), or several by the title of their panel; of each the first 64.
        axes: where to draw, one for each group; by default a new figure.

    Returns:
        The figure.
    """
    return _in_cells(groups, 3, _draw_ellipsoids, axes)


def spectra(groups: Groups, *, axes: Axes | None = None) -> Figure:
    """Eigenvalues of matrices of SPD(n), from the largest: medians, and where most of them are.

    Args:
        groups: an array (m, n, n), or up to three of them by name, drawn over each other.
        axes: where to draw; by default a new figure.

    Returns:
        The figure.
    """
    groups = _matrices(groups, None)
    figure, [axes] = panels(axes, 1, (5.2, 3.4))
    if len(groups) > len(AXIS_COLORS):
        raise ValueError(
            f"plots.spectra: at most three groups can be told apart, got {len(groups)}."
        )
    for color, (name, matrices) in zip(AXIS_COLORS, groups.items(), strict=False):
        values = np.linalg.eigvalsh(matrices)[:, ::-1]
        number = np.arange(1, values.shape[1] + 1)
        low, middle, high = np.quantile(values, [0.05, 0.5, 0.95], axis=0)
        axes.fill_between(number, low, high, color=color, alpha=0.18, linewidth=0)
        axes.plot(number, middle, ".-", color=color, label=f"{name} ({len(matrices)})")
        axes.set_xticks(number)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    low, high = axes.get_ylim()
    axes.yaxis.set_minor_formatter("{x:g}" if high < 100 * low else NullFormatter())
    axes.set_xlabel("eigenvalue, from the largest")
    axes.set_ylabel("median, and 5 % to 95 %")
    open_frame(axes)
    axes.legend(fontsize=8, frameon=False)
    return figure


@picture(SPD, when=lambda spd: spd.size > 1)
def _points(values: Any, manifold: SPD, axes: Any) -> Figure:
    draw = {2: ellipses, 3: ellipsoids}.get(manifold.size, spectra)
    return draw(values, axes=axes)


def _matrices(groups, size):
    groups = named(groups, "matrices")
    for name, matrices in groups.items():
        sides = matrices.shape[1:]
        if matrices.ndim != 3 or sides[0] != sides[1] or size not in (None, sides[0]):
            wanted = f"(m, {size}, {size})" if size else "(m, n, n)"
            raise ValueError(f"plots: {name} must have shape {wanted}, got {matrices.shape}.")
    return groups


def _in_cells(groups, size, draw, axes):
    """A panel of unit cells, row by row from the top, for the first matrices of each group.

    `draw(axes, matrices, cells)` draws them, the largest eigenvalue of all being one, into the
    cells with given lower left corners.
    """
    groups = _matrices(groups, size)
    figure, found = panels(axes, len(groups), (3.6, 3.7))
    drawn = [matrices[:_MOST] for matrices in groups.values()]
    largest = np.max(np.linalg.eigvalsh(np.concatenate(drawn)))
    for one, first, (title, matrices) in zip(found, drawn, groups.items(), strict=True):
        rows, columns = np.divmod(np.arange(len(first)), int(np.ceil(np.sqrt(len(first)))))
        cells = np.stack([columns, rows[-1] - rows], axis=1)
        draw(one, first / largest, cells)
        set_title(one, f"{title} ({len(matrices)})")
        bare(one, (0, columns.max() + 1), (0, rows[-1] + 1))
    return figure


def _draw_ellipses(axes, matrices, cells):
    values, vectors = np.linalg.eigh(matrices)
    widths = 0.9 * np.sqrt(values[:, ::-1])  # a diameter of at most nine tenths of a cell
    turns = np.rad2deg(np.arctan2(vectors[:, 1, 1], vectors[:, 0, 1]))
    for place, (width, height), turn in zip(cells + 0.5, widths, turns, strict=True):
        colors = {"facecolor": f"{AXIS_COLORS[0]}44", "edgecolor": AXIS_COLORS[0]}
        axes.add_patch(Ellipse(place, width, height, angle=turn, linewidth=0.9, **colors))


def _draw_ellipsoids(axes, matrices, cells):
    columns, rows = cells.max(axis=0) + 1
    picture = np.zeros((rows * _TILE, columns * _TILE, 4))
    for matrix, (left, bottom) in zip(matrices, cells * _TILE, strict=True):
        picture[bottom : bottom + _TILE, left : left + _TILE] = _ellipsoid(matrix)
    axes.imshow(picture, extent=(0, columns, 0, rows), origin="lower")


def _ellipsoid(matrix):
    """A picture (tile, tile, 4) of one ellipsoid, its longest half axis at most one."""
    view = view_from(20.0, 30.0)
    fine = 2 * _TILE  # four rays for each pixel
    side = ((np.arange(fine) + 0.5) / fine * 2 - 1) / 0.92
    right, up = np.meshgrid(side, side)
    inverse = np.linalg.inv(view @ matrix @ view.T)
    # The depth w solves a w^2 + 2 b w + c = 0.
    a = inverse[2, 2]
    b = inverse[0, 2] * right + inverse[1, 2] * up
    c = inverse[0, 0] * right**2 + 2 * inverse[0, 1] * right * up + inverse[1, 1] * up**2 - 1
    inside = b**2 - a * c
    depth = (np.sqrt(np.maximum(inside, 0)) - b) / a
    normals = np.stack([right, up, depth], axis=-1) @ inverse
    normals /= np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), 1e-12)
    light = brightness(normals)
    direction = np.abs(np.linalg.eigh(matrix)[1][:, -1])
    color = 0.25 + 0.7 * direction / np.max(direction)
    shaded = color * (0.4 + 0.6 * light[..., None])
    fine_picture = np.concatenate([shaded, np.ones((fine, fine, 1))], axis=-1)
    fine_picture *= (inside > 0)[..., None]
    picture = fine_picture.reshape(_TILE, 2, _TILE, 2, 4).mean(axis=(1, 3))
    picture[..., :3] /= np.maximum(picture[..., 3:], 1e-9)
    return np.clip(picture, 0, 1)
