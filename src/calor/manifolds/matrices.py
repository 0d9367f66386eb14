r"""Exponential and logarithm of symmetric matrices, differentiable twice at repeated eigenvalues.

For S = Q diag(w) Q^T and f(S) = Q diag(f(w)) Q^T the derivatives are (Daleckii and Krein), in the
basis Q and with divided differences f[a, b] and f[a, b, c],

    df(S)[E]_ij      = f[w_i, w_j] E_ij,
    d^2 f(S)[E, F]_ij = sum_k f[w_i, w_k, w_j] (E_ik F_kj + F_ik E_kj).

Divided differences are smooth where eigenvalues meet, the derivative of Q is not, and it is never
used.  The logarithm is the inverse function of the exponential, and so are its divided differences:
with u = log a etc., log[a, b] = 1 / exp[u, v] and log[a, b, c] = -exp[u, v, w] / (exp[u, v]
exp[v, w] exp[u, w]).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ..core.numerics import sinhc
from ..core.types import Key

Matrix = Float[Array, "n n"]


@jax.custom_jvp
def eigh(s: Matrix) -> tuple[Float[Array, " n"], Matrix]:
    """Eigenvalues, in increasing order, and eigenvectors of a symmetric matrix."""
    return _decompose(s)


@eigh.defjvp
def _(primals, tangents):
    (s,), (e,) = primals, tangents
    w, q = eigh(s)
    inside = q.T @ e @ q
    gaps = w - w[:, None]
    turn = jnp.where(gaps == 0, 0.0, inside / jnp.where(gaps == 0, 1.0, gaps))
    return (w, q), (jnp.diagonal(inside), q @ turn)


@jax.custom_batching.custom_vmap
def _decompose(s):
    return tuple(jnp.linalg.eigh(s, symmetrize_input=False))


@_decompose.def_vmap
def _(size, batched, s):
    # On a CPU one by one, which takes as long: two decompositions of batches that XLA runs side by
    # side wait for each other's threads, now and then for ever.
    values = jax.lax.platform_dependent(
        s,
        cpu=lambda s: jax.lax.map(_decompose, s),
        default=lambda s: tuple(jnp.linalg.eigh(s, symmetrize_input=False)),
    )
    return values, (True, True)


def cholesky(s: Matrix) -> Matrix:
    """The lower triangular L with L L^T = S, for a positive definite S, column by column.

    Batches of LAPACK's, like its decompositions above, wait for each other's threads: on two CPU
    cores the likelihood of a model on SPD(10) never ended (jax 0.10.2).
    """
    places = jnp.arange(len(s))

    def column(factor, j):
        rest = s[:, j] - factor @ factor[j]
        return factor.at[:, j].set(jnp.where(places < j, 0.0, rest / jnp.sqrt(rest[j]))), None

    return jax.lax.scan(column, jnp.zeros_like(s), places)[0]


def solve_lower(factor: Matrix, b: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """L^-1 B for a lower triangular L, row by row."""

    def row(solution, i):
        return solution.at[i].set((b[i] - factor[i] @ solution) / factor[i, i]), None

    return jax.lax.scan(row, jnp.zeros_like(b), jnp.arange(len(b)))[0]


def random_rotation(key: Key, size: int, dtype: jnp.dtype) -> Matrix:
    """A uniformly random orthogonal matrix, up to the signs of its columns.

    The product of reflections, each along a Gaussian vector of one dimension less (Stewart 1980).
    """
    noise = jnp.triu(jr.normal(key, (size, size), dtype))

    def reflect(q, inputs):
        row, place = inputs
        away = jnp.where(row[place] < 0, -1.0, 1.0) * jnp.linalg.norm(row)
        v = row.at[place].add(away)
        v = v / jnp.linalg.norm(v)
        return q - 2 * jnp.outer(q @ v, v), None

    return jax.lax.scan(reflect, jnp.eye(size, dtype=dtype), (noise, jnp.arange(size)))[0]


def _of_symmetric(
    function: Callable[[Array], Array],
    times_pairs: Callable[[Array, Array], Array],
    triples: Callable[[Array], Array],
) -> Callable[[Matrix], Matrix]:
    """f(S) with the derivatives above, from f(w), f[w_i, w_j] E_ij and f[w_i, w_k, w_j].

    The latter are functions of w and E, and of w, its values with the indices i, k, j.
    """

    @jax.custom_jvp
    def value(s: Matrix) -> Matrix:
        """f(S) of a symmetric matrix, positive definite where f asks for that."""
        w, q = eigh(s)
        return (q * function(w)) @ q.T

    @value.defjvp
    def _(primals, tangents):
        (s,), (e,) = primals, tangents
        return value(s), derivative(s, e)

    @jax.custom_jvp
    def derivative(s, e):
        w, q = eigh(s)
        return q @ times_pairs(w, q.T @ e @ q) @ q.T

    @derivative.defjvp
    def _(primals, tangents):
        (s, e), (ds, de) = primals, tangents
        w, q = eigh(s)
        first, second, three = q.T @ e @ q, q.T @ ds @ q, triples(w)
        mixed = jnp.einsum("ikj,ik,kj->ij", three, first, second)
        mixed = mixed + jnp.einsum("ikj,ik,kj->ij", three, second, first)
        return derivative(s, e), derivative(s, de) + q @ mixed @ q.T

    return value


def _exp_pair(u, v):
    """exp[u, v]."""
    return jnp.exp((u + v) / 2) * sinhc((u - v) / 2)


def _exp_pairs(u):
    """exp[u_i, u_j]."""
    return _exp_pair(u[:, None], u[None])


def _exp_triples(u):
    """exp[u_i, u_k, u_j]: a quotient, or a Taylor series where all three are close."""
    x = jnp.stack(jnp.broadcast_arrays(u[:, None, None], u[None, :, None], u[None, None, :]))
    x = jnp.sort(x, axis=0)
    low, mid, high = x
    close = high - low < 0.5
    gap = jnp.where(close, 1.0, high - low)
    quotient = (_exp_pair(mid, high) - _exp_pair(low, mid)) / gap
    # sum_k h_k / (k + 2)! with complete homogeneous polynomials of the centred arguments
    mean = jnp.mean(x, axis=0)
    p2, p3, p4 = (jnp.sum((x - mean) ** k, axis=0) for k in (2, 3, 4))
    series = jnp.exp(mean) * (1 / 2 + p2 / 48 + p3 / 360 + (p2**2 / 8 + p4 / 4) / 720)
    return jnp.where(close, series, quotient)


def log_eigenvalues(w: Float[Array, " n"]) -> Float[Array, " n"]:
    """log of positive eigenvalues; what rounding took below zero is lifted above it."""
    floor = jnp.max(w) * jnp.finfo(w.dtype).eps / 16
    return jnp.log(jnp.where(w > 0, w, floor))


def _log_triples(w):
    u = log_eigenvalues(w)
    pairs = _exp_pairs(u)
    return -_exp_triples(u) / (pairs[:, :, None] * pairs[None] * pairs[:, None])


symmetric_exp: Callable[[Matrix], Matrix] = _of_symmetric(
    jnp.exp, lambda w, e: _exp_pairs(w) * e, _exp_triples
)
"""exp(S) of a symmetric matrix."""
symmetric_log: Callable[[Matrix], Matrix] = _of_symmetric(
    log_eigenvalues, lambda w, e: e / _exp_pairs(log_eigenvalues(w)), _log_triples
)
"""log(S) of a symmetric positive definite matrix."""


@jax.custom_jvp
def symmetric_sqrt(s: Matrix) -> Matrix:
    """The symmetric square root of a symmetric positive definite matrix."""
    w, q = eigh(s)
    return (q * jnp.exp(log_eigenvalues(w) / 2)) @ q.T


@symmetric_sqrt.defjvp
def _(primals, tangents):
    (s,), (e,) = primals, tangents
    root = symmetric_sqrt(s)
    return root, _sylvester(root, e)


@jax.custom_jvp
def _sylvester(r, e):
    """The solution y of r y + y r = e, for a positive definite r."""
    w, q = eigh(r)
    return q @ ((q.T @ e @ q) / (w + w[:, None])) @ q.T


@_sylvester.defjvp
def _(primals, tangents):
    # r dy + dy r = de - dr y - y dr: derivatives of any order without those of eigenvectors.
    (r, e), (dr, de) = primals, tangents
    y = _sylvester(r, e)
    return y, _sylvester(r, de - dr @ y - y @ dr)


@jax.custom_jvp
def log_norm(s: Matrix) -> Float[Array, ""]:
    """The Frobenius norm of log(S); its derivative at S = I, a kink, is set to zero."""
    return jnp.linalg.norm(log_eigenvalues(eigh(s)[0]))


@log_norm.defjvp
def _(primals, tangents):
    (s,), (e,) = primals, tangents
    norm = log_norm(s)
    log, tangent = jax.jvp(symmetric_log, (s,), (e,))
    safe = jnp.where(norm > 0, norm, 1.0)
    return norm, jnp.where(norm > 0, jnp.sum(log * tangent) / safe, 0.0)


# Eigenvalues alone.

# Larger matrices, and double precision, are left to LAPACK, which finds the eigenvectors as well.
_LARGEST = 24
# Each halves the interval of an eigenvalue; single precision has 24 bits.
_BISECTIONS = 24


@jax.custom_jvp
def eigenvalues(s: Matrix) -> Float[Array, " n"]:
    """The eigenvalues of a symmetric matrix in increasing order, fast in batches of small ones."""
    if s.dtype != jnp.float32 or not 2 < len(s) <= _LARGEST:
        return eigh(s)[0]
    return _bisect(*_tridiagonal(s))


@eigenvalues.defjvp
def _(primals, tangents):
    (s,), (e,) = primals, tangents
    w, q = eigh(s)
    return w, jnp.sum(q * (e @ q), axis=0)


def _tridiagonal(a):
    """Diagonal and off-diagonal of a similar tridiagonal matrix, by Householder reflections."""
    diagonal, off_diagonal = [], []
    for _ in range(len(a) - 2):
        column, rest = a[1:, 0], a[1:, 1:]
        length = jnp.sqrt(jnp.sum(column * column))
        reflected = jnp.where(column[0] >= 0, -length, length)
        v = column.at[0].add(-reflected)
        half = jnp.sum(v * v) / 2
        half = jnp.where(half > 0, half, 1.0)
        p = jnp.sum(rest * v, axis=1) / half
        q = p - v * (jnp.sum(p * v) / (2 * half))
        diagonal.append(a[0, 0])
        off_diagonal.append(reflected)
        a = rest - jnp.outer(v, q) - jnp.outer(q, v)
    return jnp.stack([*diagonal, a[0, 0], a[1, 1]]), jnp.stack([*off_diagonal, a[1, 0]])


def _bisect(diagonal, off_diagonal):
    """The eigenvalues of a tridiagonal matrix T, all bisected side by side.

    The number of negative pivots of T - m I is the number of eigenvalues below m (Sturm).
    """
    n, squares = len(diagonal), off_diagonal**2
    padded = jnp.pad(jnp.abs(off_diagonal), 1)
    reach = padded[:-1] + padded[1:]  # Gershgorin
    low, high = jnp.min(diagonal - reach), jnp.max(diagonal + reach)

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) / 2
        pivot = diagonal[0] - middle
        below = (pivot < 0).astype(jnp.int32)
        for entry, square in zip(diagonal[1:], squares, strict=True):
            pivot = entry - middle - square / jnp.where(pivot == 0, 1e-30, pivot)
            below = below + (pivot < 0)
        left = below > jnp.arange(n)
        return jnp.where(left, low, middle), jnp.where(left, middle, high)

    ends = jnp.full(n, low), jnp.full(n, high)
    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, ends)
    return (low + high) / 2
