r"""The heat kernel of a surface from eigenfunctions on elements.

    p(t, x | x0) = sum_k exp(-lambda_k t) f_k(x) f_k(x0)

from a time t0 on, before which the law along shot geodesics speaks.  With the values c of
p(t, . | x0) at the nodes of the triangle of x, the density and its gradient are short sums there.

Draws: a triangle by its mass, which is known from the integrals of the eigenfunctions over it, then
a point of it by rejection from the uniform law.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ...core.types import Key, Point, Scalar, Tangent
from ...heat.joined import AbstractJoinedKernel
from ...heat.kernel import AbstractHeatKernel
from ...manifolds import Submanifold
from ...store.stored import stored
from .certificate import ElementCertificate
from .functions import Elements, Place

# Below this, relative to its value at x0, rounding decides about the density.
_SMALLEST = 32
# What densities on a triangle may be above those at its finer nodes, and the points proposed at a
# time.
_ABOVE, _PROPOSED = 1.2, 8


class Source(NamedTuple):
    """Where heat came from."""

    coefficients: Float[Array, " k"]
    """Of p(t, . | x0) in the eigenfunctions."""
    here: Scalar
    """p(t, x0 | x0)."""

    def smallest(self) -> Scalar:
        """What a density that is smaller is rounded up to: terms are as large as at x0."""
        return _SMALLEST * jnp.finfo(self.here.dtype).eps * self.here


@stored("ElementKernel", root="kernel")
class ElementKernel(AbstractJoinedKernel):
    """A sum over eigenfunctions from t0 on, the law along shot geodesics below."""

    manifold: Submanifold
    law: AbstractHeatKernel
    elements: Elements
    eigenvalues: Float[Array, " k"]
    functions: Float[Array, "n k"]
    """Values of the eigenfunctions at the nodes, of mean square one over the area."""
    integrals: Float[Array, "m k"]
    """Of the eigenfunctions over the triangles."""
    factors: Float[Array, "m j"]
    """How much area there is at the nodes for that of u."""
    log_volume: Float[Array, ""]
    t0: float = eqx.field(static=True)
    certificate: ElementCertificate

    def source(self, t: Scalar, x0: Point) -> Source:
        """The density p(t, . | x0)."""
        place = self.elements.find(x0)
        values = place.basis @ self.functions[self.elements.nodes[place.face]]
        damped = jnp.exp(-self.eigenvalues * t) * values
        return Source(damped, damped @ values)

    def around(self, source: Source, face: Array) -> Float[Array, " j"]:
        """The values of the density at the nodes of a triangle."""
        return self.functions[self.elements.nodes[face]] @ source.coefficients

    def late_log_prob(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        """The series."""
        source, place = self.source(t, x0), self.elements.find(x)
        density = place.basis @ self.around(source, place.face)
        return jnp.log(jnp.maximum(density, source.smallest()))

    def late_both(self, t: Scalar, x: Point, x0: Point) -> tuple[Scalar, Tangent]:
        """The score is the gradient of the series over the series."""
        return self._both(self.source(t, x0), self.elements.find(x))

    def _both(self, source, place):
        values = self.around(source, place.face)
        density = jnp.maximum(place.basis @ values, source.smallest())
        return jnp.log(density), self.elements.slopes(place) @ values / density

    def draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        return self._selected(t, self.law.draw, self.late_draw, x0, key)

    def late_draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        """A triangle by its mass, a point by rejection."""
        return self._drawn(self.source(t, x0), key)[1]

    def late_draw_with_score(self, t: Scalar, x0: Point, key: Key) -> tuple[Point, Tangent]:
        """The score comes without looking for the triangle."""
        source = self.source(t, x0)
        place, x = self._drawn(source, key)
        return x, self._both(source, place)[1]

    def _drawn(self, source, key):
        key_face, key_point = jr.split(key)
        masses = jnp.maximum(self.integrals @ source.coefficients, 0.0)
        face = jr.categorical(key_face, jnp.log(masses))
        values, factors = self.around(source, face), self.factors[face]
        fine = self.elements.fine
        top = _ABOVE * jnp.max((fine @ values) * (fine @ factors))

        def propose(state):
            u, basis, _, key = state
            key, key_u, key_accept = jr.split(key, 3)
            new = jr.uniform(key_u, (_PROPOSED, 2), values.dtype)
            new = jnp.where(jnp.sum(new, axis=1, keepdims=True) > 1, 1 - new, new)
            bases = jax.vmap(self.elements.basis)(new)
            density = (bases @ values) * (bases @ factors)
            kept = jr.uniform(key_accept, (_PROPOSED,), values.dtype) * top < density
            first = jnp.argmax(kept)
            return new[first], bases[first], kept[first], key

        # Where nothing is accepted for ever, as with NaN, the middle of the triangle remains.
        start = jnp.full(2, 1 / 3, values.dtype)
        state = (start, self.elements.basis(start), ~jnp.isfinite(top) | (top <= 0), key_point)
        u, basis, _, _ = jax.lax.while_loop(lambda state: ~state[2], propose, state)
        return Place(face, u, basis), self.elements.point(face, u)

    def warn(self) -> None:
        """Never: the certificate is for the user to see."""

    def found_volume(self) -> Scalar | None:
        """The logarithm of the area."""
        return self.log_volume

    def spectral_gap(self) -> float:
        """The first eigenvalue that was found."""
        return float(self.eigenvalues[1])

    def __str__(self) -> str:
        return (
            f"ElementKernel({self.manifold}: {len(self.eigenvalues)} eigenfunctions by elements of "
            f"order {self.elements.order} from t = {self.t0:.2g} on, {self.law} before)"
        )

    def certified_again(self, *, points: int, key: Key) -> Any:
        """As it was: what it compares with is not kept."""
        return self.certificate
