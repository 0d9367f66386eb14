r"""Scores and velocities: tangent vector fields that a network gives, for every time.

The score of the noised data is s(t, x) = grad log p_t(x).  Two ways to write one with a network N
of the embedded point:

* `TangentScore`, extrinsic: coefficients in the tangent frame e_j of the manifold,

      s = c(t) sum_j N_j e_j(x),     c = sqrt(lambda / (e^(2 lambda t) - 1)),

  so that N is of order one: c ~ 1/sqrt(2t) early, and c ~ e^(-lambda t), like the score itself,
  late on a compact manifold whose first eigenvalue is lambda.

* `DenoisedScore`, intrinsic: N names a point y of the manifold, and the denoised point of the
  paper, exp_x(2t s), lies on the geodesic from x to it,

      s = log_x(y) / (a (1 + a)),    a = sqrt(2t).

A network may be told of a first guess, the score of a noised mixture of Gaussians that the embedded
data look like (`guesses.mixture`), or of a Gaussian given the condition (`guesses.gaussian`); in a
`TangentScore` it is added to N.

On a quotient both are equivariant by construction: the field is averaged over those images of x
that the network can tell apart.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.types import Point, Scalar, Tangent
from ..manifolds import AbstractManifold
from ..store.stored import stored
from .guesses.base import AbstractGuess
from .network import AbstractNetwork, FieldNetwork


class AbstractField(eqx.Module):
    """A tangent vector field for every time; a new one supplies `vector_at`."""

    manifold: eqx.AbstractVar[AbstractManifold]
    network: eqx.AbstractVar[Any]
    guess: eqx.AbstractVar[AbstractGuess | None]
    """A law that embedded data look like, if the network is told of one."""

    @staticmethod
    def outputs(manifold: AbstractManifold) -> int:
        """How many numbers the network returns: a coefficient for each vector of the frame."""
        return frame_size(manifold)

    @staticmethod
    def network_of(chosen: AbstractNetwork) -> AbstractNetwork:
        """Its network: the one that was chosen, unless it has one of its own."""
        return chosen

    @staticmethod
    def adds_guess() -> bool:
        """Whether the field is about the score of its guess until the network is trained."""
        return False

    @abstractmethod
    def vector_at(self, t: Scalar, x: Point, condition: Float[Array, " c"]) -> Tangent:
        """The field, not yet averaged."""

    def __call__(self, t: Scalar, x: Point, condition: Float[Array, " c"]) -> Tangent:
        """The tangent vector at x."""
        return _averaged(self, t, x, condition)


@eqx.filter_jit
def _averaged(field: AbstractField, t: Scalar, x: Point, condition: Float[Array, " c"]) -> Tangent:
    """The field, averaged over images; traced once for training, likelihoods and draws together."""
    manifold = field.manifold
    images = jax.eval_shape(manifold.lookalikes, x).shape[0]
    if images == 1:
        return field.vector_at(t, x, condition)
    # Each image g x has a vector there; the differential of g brings it back to x.
    frame = manifold.frame(x)
    points, moved = jax.vmap(
        lambda e: jax.jvp(manifold.lookalikes, (x,), (e,)), out_axes=(None, 0)
    )(frame)
    vectors = jax.vmap(lambda point: field.vector_at(t, point, condition))(points)
    along = jax.vmap(jax.vmap(manifold.inner_at), (None, None, 0))(points, vectors, moved)
    return jnp.tensordot(jnp.mean(along, axis=1), frame, axes=1)


def frame_size(manifold: AbstractManifold) -> int:
    """The number of vectors of the frame."""
    return jax.eval_shape(manifold.frame, jax.ShapeDtypeStruct(manifold.shape, float)).shape[0]


def guessed(
    manifold: AbstractManifold,
    guess: AbstractGuess,
    t: Scalar,
    x: Point,
    condition: Float[Array, " c"],
) -> Float[Array, " f"]:
    """sqrt(2t) times the score of a noised guess, as coefficients in the frame at x."""
    place, pull_back = jax.vjp(manifold.embedding, x)
    (slope,) = pull_back(jnp.sqrt(2 * t) * guess.score(place, t, condition))
    if guess.has_volume():  # the density of points is that of places over the volume of the chart
        slope = slope - jnp.sqrt(2 * t) * jax.grad(manifold.log_chart_volume)(x)
    return manifold.slopes_along_frame(x, slope)


def network_output(
    field: AbstractField, t: Scalar, x: Point, condition: Float[Array, " c"]
) -> tuple[Float[Array, " o"], Float[Array, " f"] | None]:
    """What the network of a field returns at x, and the guess that it was told of."""
    place = field.manifold.embedding(x)
    if field.guess is None:
        return field.network(place, t, condition), None
    told = guessed(field.manifold, field.guess, t, x, condition)
    return field.network(place, t, jnp.concatenate([condition, told])), told


def toward(manifold: AbstractManifold, t: Scalar, x: Point, y: Point) -> Tangent:
    """The score at x whose denoised point lies on the geodesic to y."""
    length = jnp.sqrt(2 * t)
    return manifold.log_at(x, y) / (length * (1 + length))


@stored("TangentScore")
class TangentScore(AbstractField):
    """An ambient field, projected to the tangent space and scaled with time."""

    manifold: AbstractManifold
    network: FieldNetwork
    guess: AbstractGuess | None = None

    @staticmethod
    def adds_guess() -> bool:
        """The guess is added to what the network gives."""
        return True

    def vector_at(self, t: Scalar, x: Point, condition: Float[Array, " c"]) -> Tangent:
        rate = self.manifold.spectral_gap()
        scale = jax.lax.rsqrt(2 * t)
        if rate > 0:
            scale = jnp.sqrt(rate / jnp.expm1(2 * rate * t))
        coefficients, told = network_output(self, t, x, condition)
        if told is not None:
            coefficients = coefficients + told
        return scale * self.manifold.along_frame(x, coefficients)


@stored("DenoisedScore")
class DenoisedScore(AbstractField):
    """A point of the manifold, toward which noise is taken away."""

    manifold: AbstractManifold
    network: FieldNetwork
    guess: AbstractGuess | None = None

    @staticmethod
    def outputs(manifold: AbstractManifold) -> int:
        """What a point is made from."""
        return manifold.code_size()

    def vector_at(self, t: Scalar, x: Point, condition: Float[Array, " c"]) -> Tangent:
        code, _ = network_output(self, t, x, condition)
        # Untrained networks return almost zero, from which no direction can be read.
        return toward(self.manifold, t, x, self.manifold.decode(code + 1e-3))


@stored("TangentVelocity")
class TangentVelocity(AbstractField):
    """An ambient field of order one, projected to the tangent space."""

    manifold: AbstractManifold
    network: FieldNetwork
    guess: AbstractGuess | None = None

    def vector_at(self, t: Scalar, x: Point, condition: Float[Array, " c"]) -> Tangent:
        coefficients, _ = network_output(self, t, x, condition)
        return self.manifold.along_frame(x, coefficients)
