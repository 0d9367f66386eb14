"""Populations of matrices by class: their logarithms in a plane, and their means."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ._style import AXIS_COLORS, DOTS, open_frame, panels, set_title

# Okabe and Ito's: the three of axes and two more.
_CLASSES = (*AXIS_COLORS, "#CC79A7", "#E69F00")


def scatter(
    groups: Mapping[str, Any], labels: Any, *, axes: Axes | Sequence[Axes] | None = None
) -> Figure:
    """Vectors of several populations in the plane of most variance of the first, by class.

    Args:
        groups: arrays (m, d) by the title of their panel, all with the same classes row by row.
        labels: the class of each row.
        axes: where to draw, one for each group; by default a new figure.

    Returns:
        The figure.
    """
    arrays = {title: np.asarray(values, float) for title, values in groups.items()}
    labels = np.asarray(labels)
    first = next(iter(arrays.values()))
    middle = first.mean(axis=0)
    plane = np.linalg.svd(first - middle, full_matrices=False)[2][:2].T
    figure, found = panels(axes, len(arrays), (3.6, 3.4))
    seen = (first - middle) @ plane
    limits = [np.quantile(seen[:, i], [0.005, 0.995]) for i in range(2)]
    for one, (title, values) in zip(found, arrays.items(), strict=True):
        places = (values - middle) @ plane
        for number, label in enumerate(np.unique(labels)):
            rows = labels == label
            color = _CLASSES[number % len(_CLASSES)]
            one.scatter(*places[rows].T, color=color, label=str(label), **{**DOTS, "s": 9})
        for (low, high), change in zip(limits, (one.set_xlim, one.set_ylim), strict=True):
            change(low - 0.3 * (high - low), high + 0.3 * (high - low))
        set_title(one, title)
        open_frame(one)
    found[0].legend(fontsize=8, frameon=False, markerscale=1.5)
    return figure


def mean_matrices(groups: Mapping[str, Any], labels: Any) -> Figure:
    """The mean matrix of each class (columns) in each population (rows), to one scale of colors.

    Args:
        groups: arrays (m, n, n) by the title of their row, all with the same classes row by row.
        labels: the class of each matrix.

    Returns:
        The figure.
    """
    labels = np.asarray(labels)
    classes = np.unique(labels)
    means = {
        title: [np.asarray(values, float)[labels == label].mean(axis=0) for label in classes]
        for title, values in groups.items()
    }
    largest = max(float(np.max(np.abs(row))) for row in means.values())
    size = (1.9 * len(classes) + 0.5, 2.0 * len(means))
    figure = Figure(figsize=size, layout="constrained")
    found = figure.subplots(len(means), len(classes), squeeze=False)
    for row, (title, matrices) in zip(found, means.items(), strict=True):
        for one, label, matrix in zip(row, classes, matrices, strict=True):
            one.imshow(matrix, cmap="RdBu_r", vmin=-largest, vmax=largest)
            one.set_xticks([])
            one.set_yticks([])
            set_title(one, f"{title}: {label}")
    return figure
