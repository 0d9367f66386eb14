"""`calor.fit`: a model of data on a manifold, from any heat kernel.

By default several kinds of models are fitted and weighed together (`weighed`); one kind by itself
is asked for by name.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.doors import door
from ..core.types import Key, Points
from ..data.prepare import Given
from ..heat.kernel import AbstractHeatKernel
from ..training.run import Run
from ..training.settings import Training
from .diffusion import diffusion_kind
from .families import family_of
from .fields import AbstractField
from .fit import fit_model
from .network import AbstractNetwork
from .plan import Plan
from .specification import Choices, check_kernel
from .weighed import PARTS, fit_weighed


@door("fit")
def fit(
    kernel: AbstractHeatKernel,
    data: Points,
    *,
    parts: str | Sequence[str] | None = None,
    minutes: float = 3.0,
    plan: Plan | dict[str, Any] | None = None,
    condition: Any = None,
    groups: Any = None,
    weights: Any = None,
    concentration: Any = None,
    key: Key,
    validation: float | Any = None,
    score: type[AbstractField] | None = None,
    network: AbstractNetwork | None = None,
    training: Training | None = None,
    t_min: float | None = None,
    t1: float | None = None,
    time_power: float = 0.0,
    centres: int = 1,
    stops: Sequence[float] | None = None,
    centred: bool = True,
    progress: bool | None = None,
    resume: str | Path | None = None,
) -> Any:
    """Fit a model to data.

    Args:
        kernel: a heat kernel, from `calor.heat_kernel` or `calor.solve`; it gives the noise.
        data: points of its manifold along the first axis.
        parts: `"density"`, `"mixture"`, `"diffusion"` or `"flow"` for a model of one kind, such as
            a `Diffusion`; several of them for a `Stacked` of those that help, weighed together.  By
            default all that suit the manifold; a diffusion alone if `score` is given, or if the
            kernel is a short-time law, whose mass is not one.
        minutes: about how long several parts may take, on one core or more.  It only sizes the
            plan: how many members and steps there are.
        plan: what an earlier fit did, its `model.about["plan"]`; the same plan, data and key give
            the same model, however fast the machine is.
        condition: numbers (n,) or (n, c), or labels (n,), that come with each point.  Parts that
            cannot be conditioned on them are left out.
        groups: names of what points belong to, such as a recording or a place, if new points will
            come from others: whole groups are put aside, and on SPD(n) the first guess for a group
            comes from all other groups.
        weights: how much each point counts, if they do not count the same.
        concentration: how well each point was measured, one over the variance in each direction
            (the kappa of directions): the diffusion of a point starts at its own time, and the
            density is that of the true points.  It takes a diffusion, which is the default then.
        key: a random key.
        validation: the fraction of the data to put aside for early stopping and for all weights, by
            default a tenth, or, of several parts, what is enough to weigh them; or a pair (points,
            conditions), or points alone.
        score: the class of the score, `TangentScore` or `DenoisedScore`; on a `PointCloud` it is
            always `CloudScore`.
        network: its size; on a `PointCloud` a `CloudNetwork`.
        training: the budget of each trained part; `minutes` is not asked for then.
        t_min: the smallest time; by default the squared distance of neighbours in the data, by
            its lower quartile, over twice the dimension; on SPD(n) a twentieth of the smallest
            variance of the logarithms, given the condition.
        t1: the last time; by default six over the first eigenvalue on compact manifolds, and four
            times the variance of the data on others; on SPD(n) the largest variance of the
            logarithms, given the condition.
        time_power: the law of the times in training, see `times.Times`.
        centres: of the prior on a manifold that is not compact: 1 is the Frechet mean of the data,
            more are so many of the data points.
        stops: times at which the density is read off; by default multiples of t_min.
        centred: whether an isometry takes the Frechet mean of the data to the origin first, where
            there is one (SPD(n)).
        progress: whether to show progress bars; by default on a terminal only.
        resume: a file for the state of an unfinished fit, which goes on from it if it exists.  Of
            several parts it holds the plan, and files whose names begin with its name the states.
    """
    check_kernel(kernel)
    family = family_of(kernel.manifold)
    choices = Choices(network, training, t_min, t1, time_power, centres, stops, centred)
    choices.network_for(family, kernel.manifold)
    usual = family.parts or tuple(PARTS)
    if parts is None:
        is_pure = score is not None or concentration is not None
        is_pure = is_pure or not kernel.has_unit_mass() or len(usual) == 1
        parts = "diffusion" if is_pure else usual
    if concentration is not None and parts != "diffusion":
        raise ValueError(
            f"concentration takes parts='diffusion', got {parts!r:.80}: other models are of the "
            "points as they were measured."
        )
    if score is not None and parts != "diffusion":
        raise ValueError(
            f"score takes parts='diffusion', got {parts!r:.80}: no other part has one."
        )
    if isinstance(parts, str):
        _checked([parts])
        if plan is not None:
            raise ValueError(
                f"a plan is for several parts weighed together, not for {parts!r} alone."
            )
        held = 0.1 if validation is None else validation
        given = Given(data, condition, groups, held, weights, concentration)
        kind, alone = PARTS[parts].kind, PARTS[parts].alone
        if kind is None:
            assert alone is not None, f"{parts} is neither trained nor fitted by itself"
            asked = {"condition": condition, "groups": groups, "weights": weights, "key": key}
            if t_min is not None and "t_min" not in PARTS[parts].takes:
                raise ValueError(f"parts={parts!r} takes no t_min; leave it out.")
            asked |= {} if t_min is None else {"t_min": t_min}
            return alone(kernel, data, **asked, validation=given.validation)
        kind = kind if score is None else diffusion_kind(score)
        run = Run(f"fit {parts}", progress=progress, resume=resume)
        return fit_model(kind, kernel, given, choices, key=key, run=run)
    parts = _checked(parts)
    if not minutes > 0:
        raise ValueError(f"minutes must be positive, got {minutes!r}.")
    if plan is not None:
        plan = Plan.of(plan)
        plan = dataclasses.replace(plan, parts=_checked(plan.parts))
        others = [name for name in plan.parts if name not in parts]
        if others:
            raise ValueError(f"the plan has the part {others[0]!r}, parts are {parts!r:.80}.")
    return fit_weighed(
        kernel,
        Given(data, condition, groups, validation, weights),
        choices,
        key=key,
        parts=parts,
        minutes=float(minutes),
        plan=plan,
        progress=progress,
        resume=resume,
    )


def _checked(parts: Sequence[str]) -> tuple[str, ...]:
    """Names of parts, each once and in the order in which they are tried."""
    unknown = [name for name in parts if name not in PARTS]
    if unknown or not parts:
        known = ", ".join(repr(name) for name in PARTS)
        raise ValueError(f"parts must be some of {known}, got {list(parts)!r:.80}.")
    return tuple(name for name in PARTS if name in parts)
