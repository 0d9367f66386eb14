r"""Diffusion models of data on a manifold, from any heat kernel.

The model is the score of the noised data for times from t_min to t1, learned by denoising score
matching.  The probability flow dx/dt = -s carries the law of the noised data from time to time.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.checks import positive_time
from ..core.doors import door
from ..core.types import Key, Point, Scalar, Tangent
from ..store.stored import stored
from .few import level_of, time_of
from .fields import AbstractField, TangentScore
from .flow_model import AbstractFlowModel
from .generate import STEPS
from .objectives import Denoising
from .specification import Kind


@stored("Diffusion", root="model", arrays={"centre": np.asarray})
class Diffusion(AbstractFlowModel):
    """A diffusion model; `calor.fit` makes it."""

    def methods(self) -> tuple[str, ...]:
        return *STEPS, "multistep"

    @door("score")
    def score(self, t: Scalar, x: Point, *, condition: Any = None) -> Tangent:
        """The score of the noised data at one point."""
        x = self.manifold.check_point(x)
        features = self.features(condition, 1)[0]
        t = positive_time(t).astype(x.dtype)
        if self.centre is None:
            return self.field(t, x, features)
        centre, manifold = jnp.asarray(self.centre, x.dtype), self.manifold
        inside = manifold.to_origin(x, centre)
        out = lambda y: manifold.from_origin(y, centre)
        return jax.jvp(out, (inside,), (self.field(t, inside, features),))[1]

    # The model's own time is log t, so that every scale takes about equally long.

    def velocity(self, tau: Scalar, x: Point, features: Float[Array, " c"]) -> Tangent:
        t = jnp.exp(tau)
        return -t * self.field(t, x, features)

    def span(self, stop: Scalar) -> tuple[Scalar, Scalar]:
        return jnp.log(stop), jnp.log(jnp.asarray(self.t1, stop.dtype))

    def level(self, t: Scalar) -> Scalar:
        return level_of(t, self.manifold.spectral_gap())

    def time(self, level: Scalar) -> Scalar:
        return time_of(level, self.manifold.spectral_gap())

    def reach(self, level: Scalar, x: Point, features: Float[Array, " c"]) -> Tangent:
        # The level is the integral of c(t), the size of a score: x moves by -s/c with it.
        gap, t = self.manifold.spectral_gap(), self.time(level)
        over_size = jnp.sqrt(jnp.expm1(2 * gap * t) / gap) if gap else level
        return level * over_size * self.field(t, x, features)

    def generator(self, method: str) -> Callable[..., Point]:
        if method == "multistep":
            return self.bare().run_few
        return eqx.Partial(self.bare()._draw_one, STEPS[method])

    def _draw_one(self, move, times, key, stop, features):
        """A draw of the prior that is moved down the times until the stop."""
        key_start, key_run = jr.split(key)
        start = self.prior.sample(key_start, features)
        times, stop = times.astype(start.dtype), stop.astype(start.dtype)

        def score(t: Scalar, x: Point) -> Tangent:
            return self.field(t, x, features)

        def step(x: Point, inputs: tuple[Scalar, Scalar, Key]) -> tuple[Point, None]:
            t, after, key = inputs
            moved = move(score, self.manifold, t, jnp.maximum(after, stop), x, key)
            return jnp.where(t > stop, moved, x), None

        inputs = times[:-1], times[1:], jr.split(key_run, len(times) - 1)
        return jax.lax.scan(step, start, inputs)[0]


def diffusion_kind(score: type[AbstractField] = TangentScore) -> Kind[Diffusion]:
    """Diffusion models with such scores, where a family of manifolds has none of its own."""
    return Kind(
        Diffusion,
        lambda family: family.score or score,
        lambda times, kernel, prior: Denoising(times, kernel),
    )
