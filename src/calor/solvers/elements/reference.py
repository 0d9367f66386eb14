r"""Polynomials on the triangle with the corners (0, 0), (1, 0), (0, 1): basis, nodes, quadrature.

The basis of Dubiner is orthonormal: with a = (2u + v - 1) / (1 - v) and b = 2v - 1

    D_ij(u, v) = c_ij (1 - v)^i P_i(a) P_j^(2i+1, 0)(b),      c_ij^2 = 2 (2i + 1) (i + j + 1),

P_i Legendre's and P_j Jacobi's polynomials.  The first two factors together are a polynomial, by a
recurrence that never divides by 1 - v.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def size_of(order: int) -> int:
    """How many polynomials of two variables there are up to a degree."""
    return (order + 1) * (order + 2) // 2


def dubiner(order: int, u: Float[Array, " 2"]) -> Float[Array, " k"]:
    """The orthonormal polynomials at a point."""
    slope, depth, height = 2 * u[0] + u[1] - 1, 1 - u[1], 2 * u[1] - 1
    legendre = [jnp.ones_like(slope), slope]
    for i in range(1, order):
        step = (2 * i + 1) * slope * legendre[i] - i * depth**2 * legendre[i - 1]
        legendre.append(step / (i + 1))
    jacobi = _jacobi(2 * np.arange(order + 1) + 1, order, height)
    rows, columns, sizes = _numbered(order)
    return jnp.asarray(sizes, u.dtype) * jnp.stack(legendre)[rows] * jacobi[columns, rows]


@functools.lru_cache(maxsize=8)
def _numbered(order):
    """The i, the j and the c_ij of the polynomials."""
    i, j = np.array([(i, j) for i in range(order + 1) for j in range(order + 1 - i)]).T
    return i, j, np.sqrt(2.0 * (2 * i + 1) * (i + j + 1))


def _jacobi(alpha, order, z):
    """Jacobi's polynomials P_j^(alpha, 0)(z) up to an order, for several alpha at once."""
    of = lambda values: jnp.asarray(np.asarray(values, float), z.dtype)
    found = [of(np.ones(len(alpha))) + 0 * z, of(alpha + 1) + of(alpha + 2) * (z - 1) / 2]
    for n in range(2, order + 1):
        both = 2 * n + alpha
        below = 2 * n * (n + alpha) * (both - 2)
        ahead = (of((both - 1) * both * (both - 2) / below) * z) * found[-1]
        ahead += of((both - 1) * alpha**2 / below) * found[-1]
        found.append(ahead - of(2 * (n + alpha - 1) * (n - 1) * both / below) * found[-2])
    return jnp.stack(found)


@functools.lru_cache(maxsize=8)
def nodes(order: int) -> Float[np.ndarray, "k 2"]:
    """Points of interpolation: corners, then those on the sides, then those inside.

    Points of Gauss and Lobatto on the sides, and inside what follows from those by recursion
    (Isaac, Recursive, parameter-free, explicitly defined interpolation nodes for simplices, 2020).
    """
    corners = [(order, 0, 0), (0, order, 0), (0, 0, order)]
    steps = range(1, order)
    sides = [(0, order - i, i) for i in steps] + [(i, 0, order - i) for i in steps]
    sides += [(order - i, i, 0) for i in steps]
    inside = [(i, j, order - i - j) for i in steps for j in range(1, order - i)]
    return np.array([_barycentric(index) for index in (*corners, *sides, *inside)])[:, 1:]


def _lobatto(order):
    if order == 0:
        return np.array([0.5])
    inner = np.zeros(0)
    if order > 1:
        inner = np.sort(np.asarray(np.polynomial.Legendre.basis(order).deriv().roots(), float))
    return np.concatenate([[0.0], (1 + inner) / 2, [1.0]])


@functools.cache
def _barycentric(index):
    total = sum(index)
    if len(index) == 1:
        return np.ones(1)
    line = _lobatto(total)
    if len(index) == 2:
        return line[list(index)]
    place, weight = np.zeros(len(index)), 0.0
    for left_out in range(len(index)):
        others = [i for i in range(len(index)) if i != left_out]
        rest = tuple(index[i] for i in others)
        share = line[sum(rest)]
        place[others] += share * _barycentric(rest)
        weight += share
    return place / weight


@functools.lru_cache(maxsize=8)
def to_nodal(order: int) -> Float[np.ndarray, "k k"]:
    """The matrix that makes values of Lagrange's basis at a point from those of Dubiner's."""
    with jax.enable_x64(True):
        values = jax.vmap(lambda u: dubiner(order, u))(jnp.asarray(nodes(order)))
        return np.linalg.inv(np.asarray(values))


@functools.lru_cache(maxsize=8)
def quadrature(count: int) -> tuple[Float[np.ndarray, "q 2"], Float[np.ndarray, " q"]]:
    """Gauss points collapsed to a corner, exact up to degree 2 count - 2."""
    x, w = np.polynomial.legendre.leggauss(count)
    x, w = (1 + x) / 2, w / 2
    v, u = np.meshgrid(x, x, indexing="ij")
    weights = np.outer(w * (1 - x), w)
    return np.stack([(u * (1 - v)).ravel(), v.ravel()], axis=1), weights.ravel()


@functools.lru_cache(maxsize=8)
def everywhere(order: int, fineness: int) -> Float[np.ndarray, "i k"]:
    """Lagrange's basis at points all over the triangle, those of another order."""
    with jax.enable_x64(True):
        points = jnp.asarray(nodes(fineness))
        values = jax.vmap(lambda u: dubiner(order, u))(points)
        return np.asarray(values) @ to_nodal(order)


@functools.lru_cache(maxsize=16)
def tabulated(order: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Lagrange's basis (q, k) and its slopes (q, k, 2) at the points of `quadrature(count)`."""
    with jax.enable_x64(True):
        points = jnp.asarray(quadrature(count)[0])
        values = jax.vmap(lambda u: dubiner(order, u))(points)
        slopes = jax.vmap(jax.jacfwd(lambda u: dubiner(order, u)))(points)
    change = to_nodal(order)
    return np.asarray(values) @ change, np.einsum("qja,jk->qka", np.asarray(slopes), change)
