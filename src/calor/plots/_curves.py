"""Curves against time: certificates of kernels, and the training of models."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ._style import AXIS_COLORS, open_frame, panels, set_title

_STYLES = (":", "--", "-.")


def certificate(measured: Any, axes: Axes | None = None) -> Figure:
    """What was measured of a solved kernel, its estimated error and bound against time.

    Args:
        measured: a `Certificate`.
        axes: where to draw; by default a new figure.

    Returns:
        The figure.
    """
    figure, [axes] = panels(axes, 1, (5.2, 3.4))
    times = np.asarray(measured.times)
    blue, orange, green = AXIS_COLORS
    for style, (name, values) in zip(_STYLES, measured.curves().items(), strict=False):
        axes.loglog(times, values, style, color=green, label=name)
    bounds = [measured.bound(t) for t in times]
    axes.loglog(times, bounds, color=orange, label="bound on |error of log p|")
    estimates = [measured.estimate(t) for t in times]
    axes.loglog(times, estimates, color=blue, label="estimate of it")
    axes.set_xlabel("time t")
    set_title(axes, f"heat kernel of {measured.manifold}")
    open_frame(axes)
    axes.legend(fontsize=8, frameon=False)
    return figure


def histories(models: Mapping[str, Any] | Any, title: str = "", axes: Axes | None = None) -> Figure:
    """The log-likelihood of held out data against the time of training.

    Args:
        models: models, or their histories, by name; or one of them.
        title: of the figure.
        axes: where to draw; by default a new figure.

    Returns:
        The figure.
    """
    if not isinstance(models, Mapping):
        models = {"": models}
    figure, [axes] = panels(axes, 1, (5.2, 3.4))
    axes.set_prop_cycle(color=AXIS_COLORS)
    for name, model in models.items():
        history = getattr(model, "history", model)
        likelihoods = -np.asarray(history.validations)
        axes.plot(history.seconds, likelihoods, marker=".", linewidth=1.2, label=name)
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("held out log-likelihood")
    set_title(axes, title)
    open_frame(axes)
    if any(models):
        axes.legend(fontsize=8, frameon=False)
    return figure
