"""Colors, and what every figure does in the same way: panels, titles, the scale of densities."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

# Perceptually uniform; its first colors, almost black, are left out.
COLORS = ListedColormap(colormaps["magma"](np.linspace(0.1, 1, 256)))
INK, GRATICULE, SOURCE, PAPER = "#333333", "#8c8c8c", "#00c8ff", "#f6f6f6"
# Okabe and Ito's blue, orange and green: told apart by every kind of color vision.
AXIS_COLORS = ("#0072B2", "#D55E00", "#009E73")
# Points on paper, and points on top of a density.
DOTS: dict[str, Any] = {"s": 4, "linewidths": 0, "alpha": 0.8}
OVER: dict[str, Any] = {"s": 5, "linewidths": 0.35, "edgecolors": "#222222", "alpha": 0.9}
# Colors of log-densities reach so many nats below the peak.
DEPTH = 8.0
# From above, from the left and toward the eye, in screen coordinates.
_LIGHT = np.array([-0.45, 0.6, 0.66])

Density = Callable[[np.ndarray], np.ndarray]
Groups = Mapping[str, Any] | Any


def named(groups: Groups, title: str) -> dict[str, np.ndarray]:
    """Arrays by the title of their panel; one array alone gets `title`."""
    if isinstance(groups, Mapping):
        return {name: np.asarray(values, float) for name, values in groups.items()}
    return {title: np.asarray(groups, float)}


def panels(
    axes: Axes | Sequence[Axes] | None, count: int, size: tuple[float, float]
) -> tuple[Figure, list[Axes]]:
    """The axes to draw on and their figure, new ones side by side unless they are given.

    Args:
        axes: as the user gave it: nothing, axes, or one for each panel.
        count: how many panels there are.
        size: of a panel, in inches.
    """
    if axes is None:
        # A `Figure` without pyplot: no window, no global state.
        figure = Figure(figsize=(size[0] * count, size[1]), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)  # pyright: ignore
        return figure, list(np.atleast_1d(figure.subplots(1, count)))
    found = [axes] if isinstance(axes, Axes) else list(np.ravel(np.asarray(axes, object)))
    if len(found) != count:
        raise ValueError(f"plots: {count} panels are drawn, but axes has {len(found)}; give all.")
    figure = found[0].get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure, found


def points_over(is_density: bool) -> dict[str, Any]:
    """How points look on top of a density, or on paper."""
    return {"c": "white", **OVER} if is_density else {"c": AXIS_COLORS[0], **DOTS}


def mark(axes: Axes, spot: np.ndarray, **style: Any) -> None:
    """Mark where a source is."""
    axes.plot(*spot, "+", color=SOURCE, markersize=7, markeredgewidth=1.3, **style)


def set_title(axes: Axes, text: str) -> None:
    """Write the title of a panel."""
    axes.set_title(text, fontsize=10, color=INK)


def open_frame(axes: Axes) -> None:
    """Axes of a curve: light grid, no lines at the top and on the right."""
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.tick_params(labelsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def bare(axes: Axes, right: tuple[float, float], up: tuple[float, float]) -> None:
    """Axes of a picture: no lines and no numbers, both directions to one scale."""
    axes.set(xlim=right, ylim=up, aspect="equal")
    axes.axis("off")


def color_limits(
    values: np.ndarray, logarithmic: bool, limits: tuple[float, float] | None = None
) -> dict[str, Any]:
    """The range of colors: densities from zero, log-densities from some nats below the peak."""
    if limits is not None:
        return {"vmin": limits[0], "vmax": limits[1]}
    if not logarithmic:
        return {"vmin": 0.0, "vmax": float(np.nanmax(values))}
    peak = float(np.nanquantile(values, 0.995))
    return {"vmin": peak - DEPTH, "vmax": peak}


def draw_values(
    axes: Axes,
    values: np.ndarray,
    extent: tuple[float, float, float, float],
    logarithmic: bool,
    limits: tuple[float, float] | None = None,
) -> AxesImage:
    """A density on a grid, in the colors of densities; `extent` is left, right, bottom, top."""
    scale = color_limits(values, logarithmic, limits)
    style = {"origin": "lower", "interpolation": "bilinear"}
    return axes.imshow(values, COLORS, extent=extent, **style, **scale)


def one_of(density: Density | None, log_density: Density | None) -> tuple[Density | None, bool]:
    """The function that colors a picture, and whether its values are logarithms."""
    if density is not None and log_density is not None:
        raise ValueError("plots: give density or log_density, not both.")
    return (density, False) if log_density is None else (log_density, True)


def on_some(function: Density, points: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The values of a function at chosen points of a grid, NaN at the others."""
    values = np.full(chosen.shape, np.nan)
    values[chosen] = np.asarray(function(points[chosen]), float)
    return values


def color_bar(axes: Axes | None = None) -> Figure:
    """The scale of the densities: from zero to the largest value of each panel.

    Args:
        axes: where to draw, tall and narrow; by default a new figure.
    """
    figure, [axes] = panels(axes, 1, (0.5, 2.6))
    axes.imshow(np.linspace(0, 1, 256)[:, None], origin="lower", aspect="auto", cmap=COLORS)
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.set_yticks([0, 255], ["0", "max"])
    axes.tick_params(labelsize=9, length=0, labelcolor=INK)
    for spine in axes.spines.values():
        spine.set_linewidth(0.5)
    return figure


def brightness(normals: np.ndarray) -> np.ndarray:
    """How much of the light falls on a surface, from its normals in screen coordinates."""
    return np.maximum(normals @ (_LIGHT / np.linalg.norm(_LIGHT)), 0)
