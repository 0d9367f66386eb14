r"""Symmetric positive definite matrices with the affine-invariant metric tr(X^-1 U X^-1 V).

Congruence X -> A X A^T is an isometry for every invertible A.  With X = L L^T (Cholesky) it carries
X to the identity, where geodesics are exp(tS): every verb is one Cholesky factorization and one
eigendecomposition.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..core.checks import is_concrete, positive_integer
from ..core.numerics import coth_remainder, even_features, log_sinhc
from ..core.types import Key, Point, Scalar, Tangent
from .matrices import (
    cholesky,
    eigenvalues,
    eigh,
    log_eigenvalues,
    log_norm,
    random_rotation,
    solve_lower,
    symmetric_exp,
    symmetric_log,
    symmetric_sqrt,
)
from .names import kind
from .symmetric import AbstractSymmetricSpace


@kind("spd", "size")
class SPD(AbstractSymmetricSpace):
    """Symmetric positive definite n x n matrices, affine-invariant; dimension n(n+1)/2."""

    size: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, n: int):
        """The manifold of `n` x `n` matrices."""
        self.size = positive_integer(n, "n", "SPD")
        self.dim = n * (n + 1) // 2
        self.shape = (n, n)

    def exp_at(self, x: Point, v: Tangent) -> Point:
        factor = cholesky(x)
        return _congruence(factor, symmetric_exp(_whiten(factor, v)))

    def log_at(self, x: Point, y: Point) -> Tangent:
        factor = cholesky(x)
        return _congruence(factor, symmetric_log(_whiten(factor, y)))

    def dist_at(self, x: Point, y: Point) -> Scalar:
        return log_norm(_whiten(cholesky(x), y))

    def inner_at(self, x: Point, u: Tangent, v: Tangent) -> Scalar:
        factor = cholesky(x)
        return jnp.sum(_whiten(factor, u) * _whiten(factor, v))

    def project_at(self, x: Point) -> Point:
        # The nearest symmetric matrix, its eigenvalues lifted above rounding.
        w, q = eigh(_symmetric_part(x))
        floor = 4 * jnp.finfo(x.dtype).eps * jnp.maximum(jnp.max(jnp.abs(w)), 1e-30)
        return jnp.where(w[0] > floor, _symmetric_part(x), (q * jnp.maximum(w, floor)) @ q.T)

    def tangent_at(self, x: Point, v: Tangent) -> Tangent:
        return _symmetric_part(v)

    def offset_at(self, x: Point) -> Scalar:
        asymmetry = jnp.max(jnp.abs(x - x.T))
        scale = jnp.maximum(jnp.max(jnp.abs(x)), jnp.finfo(x.dtype).tiny)
        lowest = eigenvalues(_symmetric_part(x) / scale)[0]
        return asymmetry / scale + jnp.maximum(-lowest, 0.0)

    def check_point(self, x: Point, name: str = "x") -> Point:
        """`x` as an array; an error says what is wrong if it is not symmetric positive definite."""
        x = self.check_shape(x, name)
        if is_concrete(x):
            values = np.asarray(x, dtype=np.float64)
            scale = np.max(np.abs(values))
            asymmetry = np.max(np.abs(values - values.T))
            if asymmetry > 1e-4 * scale:
                raise ValueError(
                    f"{name} is not on {self}: it is not symmetric, entries differ by up to "
                    f"{asymmetry:.3g}. Use (x + x.T) / 2 if that was meant."
                )
            lowest = np.linalg.eigvalsh((values + values.T) / 2)[0]
            # What rounding in the working precision could make singular counts as singular.
            if not lowest > 0.5 * float(jnp.finfo(x.dtype).eps) * scale:
                raise ValueError(
                    f"{name} is not on {self}: it is not positive definite, its smallest "
                    f"eigenvalue is {lowest:.3g}. Add a multiple of the identity, or use "
                    "project(x)."
                )
        return x

    def draw_point(self, key: Key) -> Point:
        return symmetric_exp(self.draw_tangent(key, jnp.eye(self.size)))

    def draw_tangent(self, key: Key, x: Point) -> Tangent:
        # Diagonal of variance 1, off-diagonal 1/2: a standard Gaussian for the norm tr(S^2).
        noise = _symmetric_part(jr.normal(key, self.shape, x.dtype))
        return _congruence(cholesky(x), noise)

    def frame(self, x: Point) -> Float[Array, "m n n"]:
        """x^(1/2) S x^(1/2) for an orthonormal basis S of the symmetric matrices.

        A rotation of x turns these vectors with it, and log_x(I) is -x^(1/2) log(x) x^(1/2): the
        way to the identity has the coefficients of minus the embedding.
        """
        return _moved_basis(symmetric_sqrt(x))

    def basis(self, x: Point) -> Float[Array, "m ..."]:
        """L S L^T with x = L L^T, which takes no eigendecomposition."""
        return _moved_basis(cholesky(x))

    def coordinate_laplacian(self, x: Point) -> Tangent:
        """(n + 1)/2 x, so that E tr X_t grows like exp((n + 1) t / 2)."""
        return (self.size + 1) / 2 * x

    def embedding(self, x: Point) -> Float[Array, " d"]:
        """The matrix logarithm, in an orthonormal basis of the symmetric matrices."""
        i, j = np.tril_indices(self.size)
        return symmetric_log(x)[i, j] * jnp.asarray(np.where(i == j, 1.0, np.sqrt(2.0)), x.dtype)

    def code_size(self) -> int:
        """A symmetric matrix in that basis."""
        return self.dim

    def decode(self, code: Float[Array, " c"]) -> Point:
        """The matrix exponential."""
        basis = _symmetric_basis(self.size, code.dtype)
        return symmetric_exp(jnp.tensordot(code, basis, axes=1))

    def has_chart(self) -> bool:
        """The matrix logarithm."""
        return True

    def moves_to_origin(self) -> bool:
        """By congruences."""
        return True

    def along_frame(self, x: Point, coefficients: Float[Array, " m"]) -> Tangent:
        """x^(1/2) S x^(1/2), without the frame itself."""
        basis = _symmetric_basis(self.size, coefficients.dtype)
        return _congruence(symmetric_sqrt(x), jnp.tensordot(coefficients, basis, axes=1))

    def slopes_along_frame(self, x: Point, slope: Float[Array, "n n"]) -> Float[Array, " m"]:
        """The entries of x^(1/2) G x^(1/2), without the frame itself."""
        i, j = np.tril_indices(self.size)
        inside = _congruence(symmetric_sqrt(x), _symmetric_part(slope))
        return inside[i, j] * jnp.asarray(np.where(i == j, 1.0, np.sqrt(2.0)), slope.dtype)

    def noise_reuse(self) -> int:
        """Noise is a Markov chain, or a random walk, but for two rows."""
        return 1 if self.size < 3 else 8

    def log_chart_volume(self, x: Point) -> Scalar:
        """log of the volume that a unit cube of embedded coordinates has at x."""
        return self.log_distortion(self.kernel_coordinates(x, self.origin().astype(x.dtype)))

    def to_origin(self, x: Point, centre: Point) -> Point:
        """c^(-1/2) x c^(-1/2): the isometry that takes the centre c to the identity."""
        w, q = eigh(centre)
        root = (q * jnp.exp(-log_eigenvalues(w) / 2)) @ q.T
        return _congruence(root, x)

    def from_origin(self, x: Point, centre: Point) -> Point:
        """c^(1/2) x c^(1/2): the inverse of `to_origin`."""
        return _congruence(symmetric_sqrt(centre), x)

    def kernel_coordinates(self, x: Point, x0: Point) -> Float[Array, " k"]:
        """The logarithms r of the eigenvalues of x relative to x0, in increasing order."""
        return log_eigenvalues(eigenvalues(_whiten(cholesky(x0), x)))

    def lifted_coordinates(
        self, x: Point, x0: Point
    ) -> tuple[Float[Array, " k"], Callable[[Float[Array, " k"]], Tangent]]:
        """The lift is the sum of df/dr_i e^{r_i} a_i a_i^T.

        With x0 = L L^T, L^-1 x L^-T = Q diag(e^r) Q^T and A = L Q, the unit tangent vector at x
        along which r_i grows is e^{r_i} a_i a_i^T, with a_i the columns of A.
        """
        factor = cholesky(x0)
        w, q = eigh(_whiten(factor, x))
        r, columns = log_eigenvalues(w), factor @ q
        return r, lambda slope: (columns * (jnp.exp(r) * slope)) @ columns.T

    def log_distortion(self, y: Float[Array, " k"]) -> Scalar:
        """Sum over pairs of log(sinh(x/2) / (x/2)), x the difference of two log-eigenvalues."""
        return jnp.sum(log_sinhc(self._pairs(y) / 2))

    def log_and_distortion(self, x: Point, y: Point) -> tuple[Tangent, Scalar]:
        """Both from one eigendecomposition."""
        factor = cholesky(x)
        w, q = eigh(_whiten(factor, y))
        r = log_eigenvalues(w)
        return _congruence(factor, (q * r) @ q.T), self.log_distortion(r)

    def first_order(self, y: Float[Array, " k"]) -> Scalar:
        """-|rho|^2 - (1/8) sum over pairs of (2/x) coth(x/2) - 4/x^2."""
        n = self.size
        return -n * (n * n - 1) / 48 - jnp.sum(coth_remainder(self._pairs(y) / 2)) / 8

    def scalar_curvature(self) -> float:
        """-n(n - 1)(n + 2)/8."""
        n = self.size
        return -n * (n - 1) * (n + 2) / 8

    def log_area(self, y: Float[Array, " k"]) -> Scalar:
        """Sum over pairs of log sinh(|x|/2), x the difference of two log-eigenvalues."""
        x = self._pairs(y) / 2
        # Eigenvalues that are equal to rounding get a finite drift.
        apart = jnp.where(jnp.abs(x) > 1e-6, jnp.abs(x), 1e-6)
        return jnp.sum(log_sinhc(x) + jnp.log(apart))

    def invariants(self, y: Float[Array, " k"]) -> Float[Array, "m f"]:
        """Two even functions of each difference of two log-eigenvalues."""
        return even_features(self._pairs(y))

    def grouping(self) -> np.ndarray:
        """Each log-eigenvalue groups the pairs that it takes part in."""
        pairs = np.stack(np.triu_indices(self.size, 1))
        return np.any(np.arange(self.size)[:, None, None] == pairs, axis=1).astype(float)

    def tangent_coordinates(
        self, v: Tangent
    ) -> tuple[Float[Array, " k"], Callable[[Float[Array, " k"]], Tangent]]:
        """The eigenvalues of v."""
        w, q = eigh(v)
        return w, lambda slope: (q * slope) @ q.T

    def point_at(self, y: Float[Array, " k"], x0: Point, key: Key) -> Point:
        """L Q diag(e^y) Q^T L^T with x0 = L L^T and a random rotation Q."""
        columns = cholesky(x0) @ random_rotation(key, self.size, x0.dtype)
        return _symmetric_part((columns * jnp.exp(y)) @ columns.T)

    def relative(self, x: Point, x0: Point) -> Float[Array, " d"]:
        """The entries of L^-1 x L^-T, x0 = L L^T."""
        return _whiten(cholesky(x0), x).ravel()

    def origin(self) -> Point:
        """The identity."""
        return jnp.eye(self.size)

    def injectivity_radius(self) -> float:
        """Infinite."""
        return math.inf

    def _pairs(self, r):
        i, j = np.triu_indices(self.size, 1)
        return r[i] - r[j]

    def __str__(self) -> str:
        return f"SPD({self.size})"


def _symmetric_part(x):
    return (x + x.T) / 2


def _whiten(factor, v):
    """L^-1 V L^-T."""
    return _symmetric_part(solve_lower(factor, solve_lower(factor, v).T))


def _congruence(factor, s):
    return _symmetric_part(factor @ s @ factor.T)


def _symmetric_basis(n, dtype):
    """Orthonormal matrices (m, n, n), one for each entry on and below the diagonal."""
    i, j = np.tril_indices(n)
    basis, number = np.zeros((len(i), n, n)), np.arange(len(i))
    basis[number, i, j] = basis[number, j, i] = np.where(i == j, 1.0, np.sqrt(0.5))
    return jnp.asarray(basis, dtype)


def _moved_basis(factor):
    """A S A^T for every S of the basis."""
    basis = _symmetric_basis(len(factor), factor.dtype)
    return jnp.einsum("ia,mab,jb->mij", factor, basis, factor)
