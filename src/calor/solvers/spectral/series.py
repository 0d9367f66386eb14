"""Heat kernels as sums over eigenfunctions, with a law for small times below."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ...core.types import Key, Point, Scalar, Tangent
from ...heat.certificate import FURTHER, Certificate, assembled, column
from ...heat.joined import AbstractJoinedKernel
from ...heat.kernel import AbstractHeatKernel
from ...manifolds import Submanifold, calculus
from ...store.stored import stored
from .polynomials import Polynomials, derivatives


@stored("SpectralKernel", root="kernel")
class SpectralKernel(AbstractJoinedKernel):
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

    def source(self, t: Scalar, x0: Point) -> Float[Array, " k"]:
        """Coefficients of p(t, . | x0), times the volume, in the polynomials."""
        damped = jnp.exp(-self.eigenvalues * t) * (self.functions(x0) @ self.coefficients)
        return self.coefficients @ damped

    def late_log_prob(self, t: Scalar, x: Point, x0: Point) -> Scalar:
        """The series."""
        return self._log_series(t, x0)(x) - self.log_volume

    def late_both(self, t: Scalar, x: Point, x0: Point) -> tuple[Scalar, Tangent]:
        """The score is the gradient of the series over the series."""
        log_series = self._log_series(t, x0)
        score = calculus.gradient(log_series, x, self.manifold.basis(x))
        return log_series(x) - self.log_volume, score

    def _log_series(self, t, x0):
        """The logarithm of p(t, . | x0) times the volume."""
        source = self.source(t, x0)
        here = self.functions(x0) @ source
        # Rounding takes it below what it can resolve.
        lowest = 32 * jnp.finfo(here.dtype).eps * here
        return lambda x: jnp.log(jnp.maximum(self.functions(x) @ source, lowest))

    def draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        return self.manifold.walk(t, x0, key)

    def late_draw(self, t: Scalar, x0: Point, key: Key) -> Point:
        """A random walk in steps."""
        return self.manifold.walk(t, x0, key)

    def warn(self) -> None:
        """Never: the certificate is for the user to see."""

    def found_volume(self) -> Scalar | None:
        """The logarithm of the volume that was found."""
        return self.log_volume

    def spectral_gap(self) -> float:
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
        frame = manifold.basis(x)
        slopes, laplacians = derivatives(self.functions, x, frame, manifold.coordinate_laplacian(x))
        values = self.functions(x)
        p, change = values @ source, values @ rate
        bend, slope = laplacians @ source, slopes @ source
        squared = jnp.sum(slope * slope) / p**2
        largest = jnp.max(jnp.abs(jnp.stack([change / p, bend / p - squared, squared])))
        return (change - bend) / p, largest

    def measured(
        self, times: np.ndarray, sources: Float[Array, "n N"], key: Key, **parts: Any
    ) -> Certificate:
        """The certificate from random walks that start at the sources.

        Args:
            times: at which to measure.
            sources: where the walks start.
            key: a random key.
            **parts: the fields that are not measured here, as in `assembled`.
        """
        manifold, count = self.manifold, len(sources)
        factors = jnp.where(jnp.arange(count) % 2 == 0, 1.0, FURTHER)

        def measure(row):
            t, key = row
            walk = lambda x0, factor, key: manifold.walk(factor * t, x0, key)
            x = jax.vmap(walk)(sources, factors, jr.split(key, count))
            residual, largest = jax.vmap(lambda x, x0: self.residual(t, x, x0))(x, sources)
            return residual, jnp.abs(residual) / largest, jnp.linalg.norm(x - sources, axis=1)

        keys = jr.split(key, len(times))
        rows = jax.jit(lambda rows: jax.lax.map(measure, rows))((jnp.asarray(times), keys))
        columns = [column(*row) for row in zip(*map(np.asarray, rows), strict=True)]
        return assembled(manifold, self.t0, times, columns, count, **parts)

    def certified_again(self, *, points: int, key: Key) -> Certificate:
        """The residual at new points; its volume and what it says of the law are as they were."""
        key_source, key_inside = jr.split(key)
        before, sources = self.certificate, self.manifold.sources(points, key_source)
        return self.measured(
            np.array(before.times),
            sources,
            key_inside,
            log_mass=np.array(before.log_mass),
            initial_error=before.initial_error,
            initial_mean=before.initial_mean,
            earlier=before.earlier,
        )
