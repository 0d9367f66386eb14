"""`calor.solve`: run a recipe on a manifold, and certify what it found.

Quotients are solved on their cover and products factor by factor, so a recipe sees neither.
"""

import json
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int
from tqdm import tqdm

from ..core.checks import random_key
from ..core.types import Key
from ..heat.combined import ProductKernel, QuotientKernel
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import AbstractManifold, AbstractQuotient, PointCloud, Product, Submanifold
from ..store import files
from . import recipes
from .certify import certify_solution
from .recipes import AbstractRecipe, Done
from .solved import learned_kernel

# Points at each time of a certificate.
_POINTS = 512
# A state is saved this often, in seconds.
_SAVE_EVERY = 30.0


class Progress(eqx.Module):
    """How far a run is: everything that is needed to go on."""

    stage: Int[Array, ""]
    step: Int[Array, ""]
    seconds: Float[Array, ""]
    state: Any
    done: Done


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
    options = (progress, resume, certificate_points)
    if isinstance(manifold, Product):
        if resume is not None:
            raise ValueError("solve: solve the factors of a product one by one to resume them.")
        keys = jr.split(key, len(manifold.manifolds))
        factors = zip(manifold.manifolds, keys, strict=True)
        parts = tuple(_solve(factor, recipe, k, *options) for factor, k in factors)
        return ProductKernel(manifold, parts)
    return _solve(manifold, recipe, key, *options)


def _solve(manifold, recipe, key, show, resume, certificate_points):
    if isinstance(manifold, AbstractQuotient) and (recipe is None or recipe.by_cover):
        options = (show, resume, certificate_points)
        return QuotientKernel(manifold, _solve(manifold.cover, recipe, key, *options))
    if recipe is None:
        own = {Submanifold: recipes.pairs, PointCloud: recipes.clouds}
        recipe = own.get(type(manifold), recipes.default)()
    recipe.check(manifold)
    with jax.enable_x64(recipe.precision == "float64"):
        done, seconds = _train(manifold, recipe, key, show, resume)
        # What was found in float64 is kept, and certified, in float32.
        solution = jax.tree.map(
            lambda a: a.astype(jnp.float32) if eqx.is_array(a) else a,
            recipe.solution(manifold, done),
        )
    interval, law = recipe.interval(manifold), recipe.law(manifold)
    with jax.enable_x64(True):
        certificate = certify_solution(
            solution, law, interval, points=certificate_points, key=jr.fold_in(key, 2**20)
        )
    record = json.dumps(_record(manifold, recipe, key, seconds))
    kernel = learned_kernel(manifold, law, solution, interval, certificate, record)
    if resume is not None:
        Path(resume).unlink(missing_ok=True)
    return kernel


def _record(manifold, recipe, key, seconds):
    from .. import __version__

    data = np.asarray(jr.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key)
    settings = {name: getattr(recipe, name) for name in recipe.__dataclass_fields__}
    return {
        "manifold": str(manifold),
        "recipe": type(recipe).__name__.lower(),
        "settings": settings,
        "key": data.tolist(),
        "seconds": round(seconds, 1),
        "calor": __version__,
        "jax": jax.__version__,
    }


def _train(manifold, recipe, key, show, resume):
    """Run all stages; returns what they found and the seconds it took."""
    stages = recipe.stages(manifold)
    identity = _identity(manifold, recipe, key)
    advance = recipe.advance(manifold)

    def fresh(stage, done, seconds):
        state = recipe.begin(manifold, stage, done, jr.fold_in(key, 2 * stage))
        zero = jnp.zeros((), int)
        return Progress(zero + stage, zero, jnp.asarray(seconds), state, done)

    nothing = Done(jnp.zeros((0, 0)), jnp.zeros(0))
    first = recipe.begin(manifold, 0, nothing, jr.fold_in(key, 0))
    size = len(recipe.parameters(first))
    run = fresh(0, Done(jnp.zeros((len(stages), size)), jnp.zeros(len(stages))), 0.0)
    if resume is not None and Path(resume).exists():
        run = files.load_state(resume, run, identity)
    bar = tqdm(
        total=sum(stages),
        initial=sum(stages[: int(run.stage)]) + int(run.step),
        desc=f"solving {manifold}",
        unit="step",
        disable=None if show is None else not show,
        dynamic_ncols=True,
        leave=False,
    )
    begun, saved, before = time.monotonic(), time.monotonic(), float(run.seconds)

    def save():
        if resume is not None:
            seconds = jnp.asarray(before + time.monotonic() - begun)
            saving = eqx.tree_at(lambda r: r.seconds, run, seconds)
            files.save_state(resume, saving, identity)

    try:
        with bar:
            while int(run.stage) < len(stages):
                stage, step = int(run.stage), int(run.step)
                data = recipe.data(manifold, stage, run.done, jr.fold_in(key, 2 * stage + 1))
                state = run.state
                for number in range(step, stages[stage]):
                    state = jax.block_until_ready(advance(state, data))
                    run = Progress(run.stage, jnp.asarray(number + 1), run.seconds, state, run.done)
                    bar.update()
                    if not bar.disable:
                        terms = recipe.losses(state).items()
                        bar.set_postfix({name: f"{float(v):.1e}" for name, v in terms})
                    if time.monotonic() - saved > _SAVE_EVERY:
                        save()
                        saved = time.monotonic()
                loss = sum(recipe.losses(state).values())
                done = Done(
                    run.done.parameters.at[stage].set(recipe.parameters(state)),
                    run.done.losses.at[stage].set(loss),
                )
                if stage + 1 < len(stages):
                    run = fresh(stage + 1, done, float(run.seconds))
                else:
                    run = Progress(run.stage + 1, run.step, run.seconds, state, done)
    except KeyboardInterrupt:
        save()
        raise
    save()  # the certificate may be interrupted too
    return run.done, before + time.monotonic() - begun


def _identity(manifold, recipe, key):
    """What a saved state must agree with to be continued."""
    record = _record(manifold, recipe, key, 0.0)
    identity = {name: record[name] for name in ("manifold", "recipe", "settings", "key")}
    identity["revision"] = recipes.REVISION
    if isinstance(manifold, Submanifold):
        identity["equations"] = manifold.probe()
    return identity
