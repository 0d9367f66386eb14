r"""`calor.fit`: several kinds of models of the same data, weighed together.

    p(x | c) = sum_k w_k p_k(x | c)

A kernel density knows where single points are, a mixture what they look like from far, a diffusion
and a flow what is between them; each sees what the others miss.  The cheap ones are fitted first,
and a part stays if it helps.

*Cross-fitting*: several small parts of the data are put aside in turn, and each kind of model is
fitted without each of them.  So every point that was put aside is judged by models that have not
seen it, and the weights w_k are those under which these points are most likely (expectation and
maximization, with a few more observations shared by all parts).  Models of one kind that were
fitted to different parts are averaged, which is worth more than tuning one.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Float

from .. import __version__
from ..core.checks import key_numbers, random_key
from ..core.doors import warn
from ..core.types import Key
from ..data.folds import Folds
from ..data.prepare import Given, prepare
from ..heat.kernel import AbstractHeatKernel
from ..training.run import Run
from ..training.settings import Training
from . import chart_mixture, density
from .diffusion import diffusion_kind
from .families import family_of
from .fit import Untrained, begin, digest_of
from .flow import FLOW
from .model import AbstractModel, mixture_value, mixture_weights
from .plan import MEMBERS, POINTS, VALIDATIONS, Pace, Plan, sized
from .specification import Choices, Kind
from .stacked import Stacked, even
from .unfinished import Unfinished
from .verdict import draws_against_data, mean_and_error, simple_laws, warn_if_useless

_FEWEST_POINTS = 10
# What of the time that is left is planned; the rest is for judging the whole.
_SHARE = 0.85
# Beyond so many dimensions likelihoods are long sums, and few points are judged.
_MANY_DIMENSIONS = 10
# Points a step of a trained part.
_BATCH = 512
# How many validations in a row may be worse than the best.
_PATIENCE = 3
# Observations that the weights of parts are shared by beforehand.
_PRIOR = 4.0


class Setting(NamedTuple):
    """What all parts are fitted from."""

    kernel: AbstractHeatKernel
    folds: Folds
    """As seen from their centre."""
    plain: Folds
    """As they came."""
    choices: Choices
    plan: Plan
    key: Key
    run: Run


class Fitted(NamedTuple):
    """A part."""

    model: AbstractModel
    held: Float[np.ndarray, " h"]
    """The log-density of what was put aside, by what has not seen it."""


def _density(setting: Setting) -> Fitted | None:
    """A kernel density, unless every pair of points is a boundary value problem."""
    if setting.kernel.is_costly():
        return None
    how: dict[str, Any] = {"key": setting.key, "t_min": setting.choices.t_min}
    return Fitted(*density.fit_folds(setting.kernel, setting.plain, **how))


def _mixture(setting: Setting) -> Fitted | None:
    """A mixture in the chart, if there is one."""
    found = chart_mixture.fit_folds(setting.kernel.manifold, setting.folds, key=setting.key)
    return None if found is None else Fitted(*found)


def _trained(name: str) -> Callable[[Setting], Fitted]:
    """Members of a kind, trained together."""

    def fit_part(setting: Setting) -> Fitted:
        models, held = _untrained(name, setting).train(setting.run, judged=True)
        return Fitted(next(iter(models)) if len(models) == 1 else even(models), held)

    return fit_part


def _untrained(name: str, setting: Setting) -> Untrained[Any]:
    choices, plan = setting.choices, setting.plan
    manifold, family = setting.kernel.manifold, family_of(setting.kernel.manifold)
    training = choices.training_for(manifold, Training(batch=_BATCH))
    if choices.training is None:
        often = {"validate_every": -(-plan.steps // VALIDATIONS), "patience": _PATIENCE}
        training = dataclasses.replace(training, **often)
    every = min(training.validate_every, plan.steps)
    training = dataclasses.replace(training, steps=plan.steps, validate_every=every)
    network = choices.network_for(family, manifold, family.members.get(name))
    choices = dataclasses.replace(choices, training=training, network=network)
    key, members = setting.key, plan.members
    # Judged as what they are, an average.
    folds = setting.folds.crossed()
    kind = PARTS[name].kind
    assert kind is not None, f"{name} is not trained"
    return begin(kind, setting.kernel, folds, choices, key=key, members=members)


class Part(NamedTuple):
    """A kind of models that are weighed with others."""

    fit: Callable[[Setting], Fitted | None]
    """One for each part of the data, or None if there is no such model of them."""
    kind: Kind[Any] | None = None
    """What is trained, if anything is."""
    alone: Callable[..., AbstractModel] | None = None
    """Fits one by itself, if nothing is trained."""
    takes: tuple[str, ...] = ()
    """Choices of a diffusion that it takes too."""


# In the order in which they are tried: what is cheap first.
PARTS: dict[str, Part] = {
    "density": Part(_density, alone=partial(density.fit_density, adaptive=True), takes=("t_min",)),
    "mixture": Part(_mixture, alone=chart_mixture.fit_mixture),
    "diffusion": Part(_trained("diffusion"), diffusion_kind()),
    "flow": Part(_trained("flow"), FLOW),
}


def fit_weighed(
    kernel: AbstractHeatKernel,
    given: Given,
    choices: Choices,
    *,
    key: Key,
    parts: Sequence[str],
    minutes: float,
    plan: Plan | None,
    progress: bool | None = None,
    resume: str | Path | None = None,
) -> Stacked:
    """Fit parts and weigh them together.

    Args:
        kernel: a heat kernel of unit mass.
        given: points, and what came with them.
        choices: of the trained parts.
        key: a random key.
        parts: the names of those to try.
        minutes: about how long it may take.
        plan: what to do instead of what these minutes allow.
        progress: whether to show progress bars.
        resume: a file for the plan of an unfinished fit; beside it are the states of its parts.
    """
    began = time.monotonic()
    key_split, key_fit, key_whole = jr.split(random_key(key), 3)
    store = Unfinished(
        resume,
        {
            "kernel": str(kernel),
            "key": key_numbers(key).tolist(),
            "parts": list(parts),
            "choices": str(choices),
        },
    )
    plan, data = (plan, None) if plan else store.plan()

    def setting(plan: Plan) -> Setting:
        how: dict[str, Any] = {"key": key_split, "parts": plan.members, "most": plan.points}
        folds = prepare(kernel.manifold, given, centred=choices.centred, **how)
        if len(folds.whole.points) < _FEWEST_POINTS:
            raise ValueError(
                f"{len(folds.whole.points)} points are too few to weigh parts by, "
                f"{_FEWEST_POINTS} are needed; one part takes less, such as parts='density'."
            )
        plain = folds
        if folds.whole.centre is not None:
            plain = prepare(kernel.manifold, given, centred=False, **how)
        return Setting(kernel, folds, plain, choices, plan, key_fit, Run("fit", progress=progress))

    def fit_part(name: str, setting: Setting) -> Fitted | None:
        run = Run(f"fit {name}", progress=progress, resume=store.beside(name))
        key = jr.fold_in(key_fit, list(PARTS).index(name))
        try:
            return PARTS[name].fit(setting._replace(key=key, run=run))
        except FloatingPointError as error:  # the others are of use without it
            warn(f"{name} is left out: {error}")
            return None

    tried: dict[str, Fitted | None] = {}
    if plan is None:
        few = kernel.manifold.dim > _MANY_DIMENSIONS
        steps = choices.training.steps if choices.training else 1
        plan = Plan(tuple(parts), MEMBERS, steps, POINTS[-1] if few else POINTS[0])
        if choices.training is None:
            plan, tried = _planned(setting(plan), fit_part, 60 * minutes, began)
    chosen = setting(plan)
    store.keep(plan, digest_of(chosen.folds, kernel), data)
    left = {name: fit_part(name, chosen) for name in plan.parts if name not in tried}
    made = {**tried, **left}
    found = {name: part for name in plan.parts if (part := made[name]) is not None}
    if not found:
        raise ValueError(
            f"none of the parts {', '.join(plan.parts)} can be fitted to these points of "
            f"{kernel.manifold}, with what came with them; take others."
        )
    model = _weighed(found, chosen, key_whole, began)
    store.remove()
    return model


def _planned(
    trial: Setting,
    fit_part: Callable[[str, Setting], Fitted | None],
    seconds: float,
    began: float,
) -> tuple[Plan, dict[str, Fitted | None]]:
    """The plan that these seconds allow, from a few steps that are made and forgotten.

    What is not trained is fitted on the way, to know how much time that leaves; it is returned too,
    unless the plan looks at other points.
    """
    plan = trial.plan
    trained = [name for name in plan.parts if PARTS[name].kind is not None]
    tried = {name: fit_part(name, trial) for name in plan.parts if name not in trained}
    if not trained:
        return plan, tried
    seconds, begun = max(seconds - (time.monotonic() - began), 0.0), time.monotonic()
    first = _untrained(trained[0], trial._replace(plan=dataclasses.replace(plan, steps=1000)))
    members = len(first.models)
    look, last = first.seconds_to_judge()
    step, points = first.seconds_of_a_step() / members, len(trial.folds.weights())
    pace = Pace(step, look, first.seen(), last, points)
    # Each kind compiles its own steps and likelihoods, about as long as the first one did.
    left = max(_SHARE * seconds - len(trained) * (time.monotonic() - begun), seconds / 4)
    found = sized(plan.parts, trained, pace, left, plan.points, members)
    same = (found.members, found.points) == (plan.members, plan.points)
    return found, tried if same else {}


def _helpful(found: dict[str, Fitted], folds: Folds) -> tuple[list[str], Float[np.ndarray, " k"]]:
    """The parts that help by more than the standard error of it, the best first, and weights."""
    columns, count = {name: part.held for name, part in found.items()}, folds.weights()

    def value(names: Sequence[str]) -> Float[np.ndarray, " h"]:
        return mixture_value(np.stack([columns[name] for name in names], axis=1), count, _PRIOR)

    kept = [max(columns, key=lambda name: np.average(columns[name], weights=count))]
    while left := [name for name in columns if name not in kept]:
        gains = {name: value([*kept, name]) - value(kept) for name in left}
        best = max(left, key=lambda name: np.average(gains[name], weights=count))
        mean, error = mean_and_error(gains[best], count)
        if not mean > error:
            break
        kept.append(best)
    together = np.stack([columns[name] for name in kept], axis=1)
    return kept, mixture_weights(together, counts=count, prior=_PRIOR)


def _weighed(found: dict[str, Fitted], setting: Setting, key: Key, began: float) -> Stacked:
    """The parts that help as one model, with an account of what was put aside."""
    names, weights = _helpful(found, setting.folds)
    order = [name for name in found if name in names]
    share = dict(zip(names, weights.tolist(), strict=True))
    columns = np.stack([found[name].held for name in order], axis=1)
    counts = setting.folds.weights()
    whole = mixture_value(columns, counts, _PRIOR, setting.folds.blocks())
    manifold = setting.kernel.manifold
    simple = simple_laws(manifold, setting.folds, key=key)
    for name, values in simple.items():
        warn_if_useless(whole - values, counts, name)
    model = Stacked(  # pyright: ignore[reportCallIssue]
        models=tuple(found[name].model for name in order),
        weights=tuple(share[name] for name in order),
        names=tuple(order),
    )
    judged = {name: part.held for name, part in found.items()}
    record = {
        "manifold": str(manifold),
        "kernel": str(setting.kernel),
        "plan": setting.plan.record(),
        "held_out": {
            "points": len(columns),
            "parts": {name: mean_and_error(of, counts) for name, of in judged.items()},
            "whole": {
                name: mean_and_error(of, counts)
                for name, of in {"all together": whole, **simple}.items()
            },
            "auc": draws_against_data(model, setting.plain, key=key),
        },
        "key": key_numbers(setting.key).tolist(),
        "seconds": round(time.monotonic() - began, 1),
        "calor": __version__,
        "models": [part.about for part in model.models],
    }
    return dataclasses.replace(model, record=json.dumps(record))
