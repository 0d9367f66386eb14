"""`calor.solve`: run a recipe on a manifold, and certify what it found.

Quotients are solved on their cover and products factor by factor, so a recipe sees neither.
"""

import json
import math
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from .. import __version__
from ..core.checks import key_numbers, random_key
from ..core.types import Key
from ..heat.combined import combine, components
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import AbstractManifold
from ..training.run import Run
from .certify import certify_solution
from .forms.collocation import trusted_radius
from .recipes import RECIPES, REVISION, AbstractRecipe
from .solved import learned_kernel

# Points at each time of a certificate.
_POINTS = 512


def solve(
    manifold: AbstractManifold,
    recipe: AbstractRecipe | None = None,
    *,
    key: Key,
    progress: bool | None = None,
    resume: str | Path | None = None,
    certificate_points: int = _POINTS,
) -> AbstractHeatKernel:
    """Solve the heat equation on a manifold from its short-time law.

    Args:
        manifold: a symmetric space of calor, or a finite quotient or a product of them; or a
            compact `Submanifold`; or a `PointCloud`.
        recipe: how to train; by default `recipes.default()`, on a `Submanifold` `recipes.pairs()`,
            on a `PointCloud` `recipes.clouds()`.
        key: a random key.
        progress: whether to show a progress bar; by default on a terminal only.
        resume: a file to save the state of an unfinished run in, every half minute and when it is
            interrupted.  If it exists, the run goes on from it, to the same result as if it had
            not been interrupted; it is removed at the end.
        certificate_points: the number of points at each time of the certificate.

    Returns:
        A kernel with `log_prob`, `score`, `sample` and a `certificate`.
    """
    if not isinstance(manifold, AbstractManifold):
        raise TypeError(
            f"solve: manifold must be a manifold such as calor.Sphere(2), got {manifold!r:.80}."
        )
    if recipe is not None and not isinstance(recipe, AbstractRecipe):
        raise TypeError(f"solve: recipe must come from calor.recipes, got {recipe!r:.80}.")
    key = random_key(key, "solve")
    if resume is not None and not Path(resume).parent.is_dir():
        raise FileNotFoundError(
            f"solve: the folder {Path(resume).parent} of resume does not exist; make it first."
        )

    def make(part: AbstractManifold, key: Any) -> AbstractHeatKernel:
        if len(components(part)) > 1 and resume is not None:
            raise ValueError("solve: solve the factors of a product one by one to resume them.")
        by_cover = recipe is None or recipe.by_cover
        combined = combine(part, make, key, by_cover=by_cover)
        if combined is not None:
            return combined
        return _solved(
            part, recipe or own_recipe(part)(), key, progress, resume, certificate_points
        )

    kernel = make(manifold, key)
    if resume is not None:
        Path(resume).unlink(missing_ok=True)
    return kernel


def own_recipe(manifold: AbstractManifold) -> type[AbstractRecipe]:
    """The class of the recipe that a manifold is solved with by default."""
    entry = RECIPES.find(manifold)
    assert entry is not None  # there is one for all manifolds
    return entry.made


def _solved(manifold, recipe, key, progress, resume, certificate_points):
    """The kernel of a manifold that stands alone."""
    plan, numbers = recipe.plan(manifold), key_numbers(key).tolist()
    record = {"manifold": str(manifold), "recipe": recipe.name}
    record |= {"settings": recipe.settings(), "key": numbers}
    t0, _ = plan.interval
    if not plan.law.is_costly() and trusted_radius(manifold, t0) < math.sqrt(2 * t0):
        raise ValueError(
            f"solve: t0 = {t0:g} is too late for the short-time law of {manifold}, whose draws "
            "then reach beyond its cut locus; give a smaller t0."
        )
    # What a saved state must agree with to be continued.
    identity = {**record, "revision": REVISION, "equations": manifold.fingerprint()}
    run = Run(f"solving {manifold}", identity, progress, resume)
    found, seconds = plan.find(key=key, run=run)
    with jax.enable_x64(True):
        # What was found in float64 is kept, and certified, in float32.
        solution = jax.tree.map(lambda a: a.astype(jnp.float32) if eqx.is_array(a) else a, found)
        measured = {"points": certificate_points, "key": jr.fold_in(key, 2**20)}
        certificate = certify_solution(solution, plan.law, plan.interval, **measured)
    versions = {"calor": __version__, "jax": jax.__version__}
    text = json.dumps({**record, "seconds": round(seconds, 1), **versions})
    return learned_kernel(manifold, plan.law, solution, plan.interval, certificate, text)
