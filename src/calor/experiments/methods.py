"""What the experiments compare: models of points and of clouds, fitted and timed."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..core.types import Key, Points
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import AbstractManifold, PointCloud
from ..models.density import fit_density
from ..models.fitting import fit
from ..models.flow import fit_flow
from ..solvers.choose import heat_kernel
from .experiment import Job, timed


class Method(NamedTuple):
    """How a model is made."""

    kernel: str
    """The method of its heat kernel."""
    fit: Callable[..., Any] = partial(fit, parts="diffusion")
    trained: bool = True
    """Whether it has a network."""


EXACT, LEARNED = "calor, exact kernel", "calor, learned kernel"
FLOW = "flow matching, here"
DENSITY, ADAPTIVE = "kernel density, one bandwidth", "kernel density, adaptive"
_POINTS = {
    EXACT: Method("exact"),
    LEARNED: Method("pinn"),
    FLOW: Method("exact", fit_flow),
    DENSITY: Method("exact", fit_density, trained=False),
    ADAPTIVE: Method("exact", partial(fit_density, adaptive=True), trained=False),
}

CLOUD_EXACT, CLOUD_LEARNED = "quotient, exact kernel", "quotient, learned kernel"
CLOUD_FLOW, CLOUD_MATCHED = "flow matching, labelled", "flow matching, matched"
_CLOUDS = {
    CLOUD_EXACT: Method("exact"),
    CLOUD_LEARNED: Method("pinn"),
    CLOUD_FLOW: Method("labelled", fit_flow),
    CLOUD_MATCHED: Method("bethe", fit_flow),
}
_LABELLED = Method("labelled")


def fit_points(
    method: str,
    manifold: AbstractManifold,
    data: Points,
    *,
    trained: Mapping[str, Any],
    **choices: Any,
) -> tuple[Any, float]:
    """A model of points, and the seconds that it took to fit it.

    Args:
        method: one of the above.
        manifold: of the points.
        data: the points.
        trained: arguments of methods with a network alone.
        **choices: arguments of all methods.
    """
    kernel, run, learns = _POINTS[method]
    heat = heat_kernel(manifold, kernel)
    return timed(lambda: run(heat, data, **choices, **(trained if learns else {})))


class Whole(NamedTuple):
    """Models of the same data, and how they are weighed together."""

    models: tuple[Any, ...]
    weights: tuple[float, ...]
    names: tuple[str, ...]
    plan: dict[str, Any]
    """What the fit did."""


def fit_everything(
    kernel: AbstractHeatKernel,
    data: Points,
    *,
    condition: Any,
    groups: Any,
    minutes: float,
    key: Key,
) -> Whole:
    """What `calor.fit` makes of data by default.

    Args:
        kernel: of their manifold.
        data: the points.
        condition: what came with them.
        groups: what they belong to.
        minutes: for which it plans.
        key: a random key.
    """
    given: dict[str, Any] = {"condition": condition, "groups": groups, "key": key}
    model = fit(kernel, data, **given, minutes=minutes, progress=False)
    plan = model.about.get("plan")
    if plan is None:  # a pure model: the kernel is a law for early times
        return Whole((model,), (1.0,), ("diffusion",), {})
    return Whole(model.models, model.weights, model.names, plan)


def likelihood(model: Any, test: Points, seconds: float) -> dict[str, float]:
    """The mean log-likelihood of points that a model has not seen, and seconds.

    Args:
        model: of points.
        test: the points.
        seconds: that fitting took.
    """
    values, scoring = timed(lambda: np.asarray(model.log_prob(test)))
    return {
        "log_prob": float(np.mean(values)),
        "fit_seconds": round(seconds, 1),
        "score_seconds": round(scoring, 1),
    }


def fit_clouds(
    job: Job[Any], manifold: PointCloud, data: Points, **more: Any
) -> tuple[Any, dict[str, float]]:
    """A model of clouds, and how fast it was fitted.

    Args:
        job: its method is one of the above, or any other name for points with labels; its choices
            have a network and a training.
        manifold: of the clouds.
        data: the clouds.
        **more: other arguments of `calor.fit`.
    """
    kernel, run, _ = _CLOUDS.get(job.method, _LABELLED)
    heat = heat_kernel(manifold, kernel)
    more |= {"network": job.choices.network, "training": job.choices.training}
    model, seconds = timed(lambda: run(heat, data, progress=False, **more))
    steps = int(model.history.steps[-1])
    speed = {
        "fit_seconds": round(seconds, 1),
        "steps": steps,
        "steps_per_second": round(steps / max(float(model.history.seconds[-1]), 1e-9), 2),
    }
    return model, speed
