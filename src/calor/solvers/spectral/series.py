"""Heat kernels as sums over eigenfunctions, with a law for small times below."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.types import Point, Scalar
from ...heat.certificate import Certificate
from ...heat.kernel import AbstractHeatKernel, compare_separately
from ...manifolds import Submanifold, calculus
from ...store.stored import stored
from .polynomials import Polynomials, derivatives


@stored("SpectralKernel", root="kernel")
class SpectralKernel(AbstractHeatKernel):
    """A sum over eigenfunctions from t0 on, the law along shot geodesics (or a network) below."""

    manifold: Submanifold
    law: AbstractHeatKernel
    functions: Polynomials
    coefficients: Float[Array, "k m"]
    """Of the eigenfunctions, one in each column, of mean square one."""
    eigenvalues: Float[Array, " m"]
    log_volume: Float[Array, ""]
    t0: float = eqx.field(static=True)
    certificate: Certificate

    def source(self, t, x0):
        """Coefficients of p(t, . | x0), times the volume, in the polynomials."""
        damped = jnp.exp(-self.eigenvalues * t) * (self.functions(x0) @ self.coefficients)
        return self.coefficients @ damped

    def log_series(self, t, x, x0):
        source = self.source(t, x0)
        return jnp.log(self._lifted(self.functions(x) @ source, x0, source)) - self.log_volume

    def _lifted(self, series, x0, source):
        """The value of the series, where rounding took it below what it can resolve lifted."""
        resolved = 32 * jnp.finfo(series.dtype).eps * (self.functions(x0) @ source)
        return jnp.maximum(series, resolved)

    def _slope(self, t, x, x0):
        source = self.source(t, x0)

        def log_series(y):
            return jnp.log(self._lifted(self.functions(y) @ source, x0, source))

        return calculus.gradient(log_series, x, self.manifold.orthonormal(x))

    def log_prob_at(self, t, x, x0):
        return self._joined(self.law.log_prob_at, self.log_series, t, x, x0)

    def score_at(self, t, x, x0):
        return self._joined(self.law.score_at, self._slope, t, x, x0)

    def draw(self, t, x0, key):
        return self.manifold.walk(t, x0, key)

    def draw_with_score(self, t, x0, key):
        def late(t, x0, key):
            x = self.manifold.walk(t, x0, key)
            return x, self._slope(t, x, x0)

        # Not `cond`: in training every point has its own time, and the coefficients would be copied
        # for each of them.
        early = self.law.draw_with_score(jnp.minimum(t, self.t0), x0, key)
        return jax.tree.map(
            lambda a, b: jnp.where(t < self.t0, a, b), early, late(jnp.maximum(t, self.t0), x0, key)
        )

    def _joined(self, early, late, t, *rest):
        # One of the two only, where t is the same for all points of a batch.
        return jax.lax.cond(t < self.t0, lambda: early(t, *rest), lambda: late(t, *rest))

    def compare_at(self, t, x, sources):
        return compare_separately(self, t, x, sources)

    def found_volume(self):
        """The logarithm of the volume that was found."""
        return self.log_volume

    def spectral_gap(self):
        """The first eigenvalue that was found."""
        return float(self.eigenvalues[1])

    def residual(self, t: Scalar, x: Point, x0: Point) -> tuple[Scalar, Scalar]:
        """(dp/dt - Delta p) / p of the series, and the largest of the terms of the log equation."""
        manifold = self.manifold
        source = self.source(t, x0)
        rate = self.coefficients @ (
            -self.eigenvalues
            * jnp.exp(-self.eigenvalues * t)
            * (self.functions(x0) @ self.coefficients)
        )
        frame = manifold.orthonormal(x)
        slopes, laplacians = derivatives(self.functions, x, frame, manifold.coordinate_laplacian(x))
        values = self.functions(x)
        p, change = values @ source, values @ rate
        bend, slope = laplacians @ source, slopes @ source
        squared = jnp.sum(slope * slope) / p**2
        largest = jnp.max(jnp.abs(jnp.stack([change / p, bend / p - squared, squared])))
        return (change - bend) / p, largest
