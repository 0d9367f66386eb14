"""Heat kernels of products and of finite quotients, from the kernels of their parts."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ..core.registry import Registry
from ..core.types import Key, Point, Scalar, Tangent
from ..manifolds import AbstractManifold, AbstractQuotient, Product
from ..store.stored import stored
from .certificate import AbstractCertificate
from .kernel import AbstractHeatKernel, AbstractSolvedKernel

Make = Callable[[AbstractManifold, Key | None], AbstractHeatKernel]
"""What makes a kernel of a part, with a key or without."""

COMBINED = Registry("manifolds whose kernels come from those of parts")


def components(manifold: AbstractManifold) -> tuple[AbstractManifold, ...]:
    """The manifolds whose kernels make the kernel of this one; none if it stands alone."""
    entry = COMBINED.find(manifold)
    return () if entry is None else entry.facts["components"](manifold)


def combine(
    manifold: AbstractManifold, make: Make, key: Key | None = None, *, by_cover: bool = True
) -> AbstractHeatKernel | None:
    """The kernel of a product or a quotient from kernels of its parts; None if it stands alone.

    Args:
        manifold: the product or quotient.
        make: makes the kernel of a part, which may be a product or quotient itself.
        key: a random key; the factors of a product get one each.
        by_cover: whether a quotient is a sum over images on its cover; else it stands alone.
    """
    entry = COMBINED.find(manifold)
    if entry is None or not (by_cover or entry.facts["factors"]):
        return None
    return entry.made(manifold, make, key)


@stored("ProductKernel")
class ProductKernel(AbstractHeatKernel):
    """Independent Brownian motions on the factors: log p is the sum."""

    manifold: Product
    kernels: tuple[AbstractHeatKernel, ...]

    def _factors(self, *points):
        """The kernel of each factor, with the parts of points on it."""
        return zip(self.kernels, *map(self.manifold.split, points), strict=True)

    def log_prob_at(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        each = [kernel.log_prob_at(t, *parts) for kernel, *parts in self._factors(x, x0)]
        return jnp.sum(jnp.stack(each))

    def score_at(self, t: Scalar, x: Point, x0: Point) -> Tangent:
        each = [kernel.score_at(t, *parts) for kernel, *parts in self._factors(x, x0)]
        return self.manifold.join(*each)

    def draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        keys = jr.split(key, len(self.kernels))
        each = zip(self._factors(x0), keys, strict=True)
        return self.manifold.join(*(kernel.draw(t, part, k) for (kernel, part), k in each))

    def join(self, x: Point, y: Point) -> Tangent:
        """Those of the factors."""
        return self.manifold.join(*(kernel.join(*parts) for kernel, *parts in self._factors(x, y)))

    def has_unit_mass(self) -> bool:
        return all(kernel.has_unit_mass() for kernel in self.kernels)

    def latest(self) -> float:
        """The earliest of the factors."""
        return min(kernel.latest() for kernel in self.kernels)


@COMBINED.register(Product, components=lambda product: product.manifolds, factors=True)
def product_kernel(manifold: Product, make: Make, key: Key | None) -> ProductKernel:
    """The kernel of a product from those of its factors."""
    count = len(manifold.manifolds)
    keys = [None] * count if key is None else jr.split(key, count)
    parts = zip(manifold.manifolds, keys, strict=True)
    return ProductKernel(manifold, tuple(make(factor, k) for factor, k in parts))


@stored("QuotientKernel", root="kernel")
class QuotientKernel(AbstractHeatKernel):
    """Brownian motion on M/G is the shadow of the one on M: p is a sum over the group."""

    manifold: AbstractQuotient
    cover: AbstractHeatKernel

    def log_prob_at(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        return self.compare_at(t, x, x0[None])[0]

    def score_at(self, t: Scalar, x: Point, x0: Point) -> Tangent:
        return self.compare_at(t, x, x0[None])[2][0]

    def draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        return self.cover.draw(t, x0, key)

    def has_unit_mass(self) -> bool:
        return self.cover.has_unit_mass()

    def latest(self) -> float:
        """As on the cover."""
        return self.cover.latest()

    def solved(self) -> AbstractSolvedKernel | None:
        """That of the cover.

        p is a sum of densities of the cover, so a bound on their relative errors bounds its own,
        and its residual is a weighted mean of theirs.
        """
        return self.cover.solved()

    @property
    def certificate(self) -> AbstractCertificate:
        """The one of the cover, if its kernel was solved for."""
        solved = self.solved()
        if solved is None:
            raise AttributeError(f"{self} was not solved for: it has no certificate.")
        return solved.certificate

    def compare_at(
        self, t: Scalar, x: Point, sources: Float[Array, "m ..."]
    ) -> tuple[Scalar, Float[Array, " m"], Float[Array, "m ..."]]:
        # All images of all sources at once: next to ties the cover knows differences best, and a
        # quotient of a quotient asks for them here.
        images = jax.vmap(self.manifold.orbit)(sources)
        flat = images.reshape(-1, *self.manifold.shape)
        largest, differences, scores = self.cover.compare_at(t, x, flat)
        differences = differences.reshape(images.shape[:2])
        scores = scores.reshape(images.shape)
        values = logsumexp(differences, axis=1)
        best = jnp.max(values)
        averages = jax.vmap(lambda d, s: jnp.tensordot(jax.nn.softmax(d), s, axes=1))
        return largest + best, values - best, averages(differences, scores)


@COMBINED.register(AbstractQuotient, components=lambda quotient: (quotient.cover,), factors=False)
def quotient_kernel(manifold: AbstractQuotient, make: Make, key: Key | None) -> QuotientKernel:
    """The kernel of a quotient from that of its cover."""
    return QuotientKernel(manifold, make(manifold.cover, key))
