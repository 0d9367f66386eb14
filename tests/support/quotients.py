r"""Quotients and products with their heat kernels written out independently, in NumPy.

Nothing here uses the group elements, kernels or volumes of calor; SO(3) has the metric of S^3.

* projective plane, S^2 / +-1: the even half of the Legendre series,
  p = (1 / 2 pi) sum_{l even} (2l + 1) exp(-l(l + 1) t) P_l(x . x0).
* lens space L(5, 2), S^3 divided by (z, w) -> (u z, u^2 w), u^5 = 1: the series of S^3 in
  cos r = Re(z conj(z0) u^-k + w conj(w0) u^-2k), summed over k.
* orientations of a cube, SO(3) / O: the sum over the 24 signed permutation matrices G of
  (1 / pi^2) sum_l (2l + 1) exp(-4 l(l + 1) t) chi_l(angle of R^T R0 G).
* Klein bottle, the torus divided by (a, b) -> (a + pi, -b): the Fourier modes that are unchanged,
  e^{ima} cos nb for even m and e^{ima} sin nb for odd m.
* S^2 x S^1 and SO(3) x R^3: products of series and of a Gaussian.
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation
from scipy.special import roots_hermite

import calor

TERMS = 120


@dataclass(frozen=True)
class Case:
    """A manifold, and what is known of it without calor."""

    make: Callable
    copies: int
    """How often the quadrature below covers the manifold."""
    volume: float
    elements: tuple[Callable, ...]
    """Maps that do not move points of the quotient."""
    density: Callable
    """p(t, x | x0), for x along the first axis."""
    grid: Callable
    """Points and weights of a quadrature of p(t, . | x0) from t and x0."""
    moments: tuple[tuple[Callable, float], ...]
    """Eigenfunctions f of points along the first axis, with -Delta f = eigenvalue f."""
    times: tuple[float, ...] = (0.05, 0.3, 1.0)


# Series.


def legendre_series(t, cosine, step=1):
    """The density of S^2, or with step 2 the one of the projective plane."""
    degree = np.arange(0, TERMS, step)
    coefficients = np.zeros(TERMS)
    coefficients[degree] = (
        step * (2 * degree + 1) * np.exp(-degree * (degree + 1) * t) / (4 * np.pi)
    )
    return np.polynomial.legendre.legval(cosine, coefficients)


def ratio_of_sines(n, angle):
    """sin(n a) / sin(a) for an array of integers n, at any angle in [0, pi]."""
    angle = np.clip(angle, 1e-9, np.pi - 1e-9)[..., None]
    return np.sin(n * angle) / np.sin(angle)


def sphere3_series(t, cosine):
    """The density of S^3: sum_n n exp(-(n^2 - 1) t) sin(n r) / sin(r) / (2 pi^2)."""
    n = np.arange(1, TERMS)
    weights = n * np.exp(-(n**2 - 1) * t) / (2 * np.pi**2)
    return ratio_of_sines(n, np.arccos(np.clip(cosine, -1, 1))) @ weights


def rotation_series(t, trace):
    """The density of SO(3) at rotation matrices of given trace, by characters."""
    degree = np.arange(TERMS // 2)
    weights = (2 * degree + 1) * np.exp(-4 * degree * (degree + 1) * t) / np.pi**2
    half = np.arccos(np.clip((trace - 1) / 2, -1, 1)) / 2
    return ratio_of_sines(2 * degree + 1, half) @ weights


def circle_series(t, angle):
    m = np.arange(1, TERMS)
    return (1 + 2 * np.cos(m * angle[..., None]) @ np.exp(-(m**2) * t)) / (2 * np.pi)


def matrix(x):
    return Rotation.from_quat(np.asarray(x, float), scalar_first=True).as_matrix()


def projective_density(t, x, x0):
    return legendre_series(t, np.asarray(x) @ np.asarray(x0), step=2)


def lens_density(t, x, x0):
    x, x0 = np.asarray(x), np.asarray(x0)
    z, w, z0, w0 = (
        x[:, 0] + 1j * x[:, 1],
        x[:, 2] + 1j * x[:, 3],
        x0[0] + 1j * x0[1],
        x0[2] + 1j * x0[3],
    )
    unit = np.exp(-2j * np.pi * np.arange(5) / 5)[:, None]
    cosine = np.real(z * np.conj(z0) * unit + w * np.conj(w0) * unit**2)
    return np.sum(sphere3_series(t, cosine), axis=0)


def signed_permutations():
    """The 24 rotation matrices that map a cube to itself."""
    every = (
        np.eye(3)[list(order)] * np.array(signs)
        for order in itertools.permutations(range(3))
        for signs in itertools.product((1, -1), repeat=3)
    )
    return np.stack([m for m in every if np.linalg.det(m) > 0])


def cube_density(t, x, x0):
    sources = matrix(x0) @ signed_permutations()
    return np.sum(rotation_series(t, np.einsum("nij,gij->ng", matrix(x), sources)), axis=1)


def klein_density(t, x, x0):
    x, x0 = np.asarray(x), np.asarray(x0)
    m, n = np.arange(-TERMS // 2, TERMS // 2 + 1), np.arange(1, TERMS // 2)
    along = np.exp(-(m**2) * t) * np.cos(m * (x[:, :1] - x0[0]))
    decay = np.exp(-(n**2) * t)
    b, b0 = x[:, 1:], x0[1]
    even = 1 + 2 * (np.cos(n * b) * np.cos(n * b0)) @ decay
    odd = 2 * (np.sin(n * b) * np.sin(n * b0)) @ decay
    is_even = m % 2 == 0
    total = np.sum(along[:, is_even], axis=1) * even + np.sum(along[:, ~is_even], axis=1) * odd
    return total / (2 * np.pi**2)


def cylinder_density(t, x, x0):
    x, x0 = np.asarray(x), np.asarray(x0)
    return legendre_series(t, x[:, :3] @ x0[:3]) * circle_series(t, x[:, 3] - x0[3])


def pose_density(t, x, x0):
    x, x0 = np.asarray(x), np.asarray(x0)
    trace = np.einsum("nij,ij->n", matrix(x[:, :4]), matrix(x0[:4]))
    squared = np.sum((x[:, 4:] - x0[4:]) ** 2, axis=1)
    return rotation_series(t, trace) * np.exp(-squared / (4 * t)) / (4 * np.pi * t) ** 1.5


# Quadrature.  At the times below, modes beyond the degree have decayed to rounding.


def circle_grid(degree):
    count = degree + 1
    return 2 * np.pi * np.arange(count) / count - np.pi, np.full(count, 2 * np.pi / count)


def joined(*grids):
    """The product of quadratures; points are put side by side."""
    numbers = np.indices([len(weights) for _, weights in grids]).reshape(len(grids), -1)
    parts = [np.reshape(points, (len(points), -1)) for points, _ in grids]
    points = [part[number] for part, number in zip(parts, numbers, strict=True)]
    weights = [weight[number] for (_, weight), number in zip(grids, numbers, strict=True)]
    return np.concatenate(points, axis=1), np.prod(weights, axis=0)


def sphere_grid(degree):
    height, share = np.polynomial.legendre.leggauss(degree // 2 + 1)
    x, weights = joined((height, share), circle_grid(degree))
    s = np.sqrt(1 - x[:, 0] ** 2)
    return np.stack([s * np.cos(x[:, 1]), s * np.sin(x[:, 1]), x[:, 0]], axis=1), weights


def sphere3_grid(degree):
    """(sqrt(1 - u) e^{ia}, sqrt(u) e^{ib}), where the volume is du da db / 2."""
    node, share = np.polynomial.legendre.leggauss(degree // 4 + 1)
    turns = circle_grid(degree)
    x, weights = joined(((node + 1) / 2, share / 2), turns, turns)
    u, a, b = x.T
    small, large = np.sqrt(1 - u), np.sqrt(u)
    points = [small * np.cos(a), small * np.sin(a), large * np.cos(b), large * np.sin(b)]
    return np.stack(points, axis=1), weights / 2


def pose_grid(t, x0, degree=18, count=3):
    """Rotations times Hermite's rule for positions, whose variance is 2t."""
    node, share = roots_hermite(count)
    width = np.sqrt(4 * t)
    line = [(centre + width * node, share * np.exp(node**2) * width) for centre in x0[4:]]
    return joined(sphere3_grid(degree), *line)


# Manifolds.


def glide(x):
    """(a, b) -> (a + pi, -b)."""
    return x * np.array([1.0, -1.0], x.dtype) + np.array([np.pi, 0.0], x.dtype)


def same(x):
    return x


def negative(x):
    return -x


def other_sign(x):
    """The other quaternion of the same rotation."""
    return x * np.array([-1.0] * 4 + [1.0] * 3, x.dtype)


def around(x):
    """Once around the circle."""
    return x + np.array([0, 0, 0, 2 * np.pi], x.dtype)


def lens_matrices(p=5, q=2):
    """Turns of the two planes of R^4 by 2 pi k / p and 2 pi q k / p."""

    def turn(angle):
        return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])

    zero, angles = np.zeros((2, 2)), 2 * np.pi * np.arange(p) / p
    return np.stack([np.block([[turn(a), zero], [zero, turn(q * a)]]) for a in angles])


def cube_turns():
    """x -> x g for the 24 rotations g of a cube, as matrices that act on quaternions."""
    turns = Rotation.create_group("O").as_quat(scalar_first=True)
    return np.stack([right_factor(*g) for g in turns])


def right_factor(w, a, b, c):
    """The matrix of the product with (w, a, b, c) from the right."""
    return np.array([[w, -a, -b, -c], [a, w, c, -b], [b, -c, w, a], [c, b, -a, w]])


def matrices_as_functions(matrices):
    return tuple(functools.partial(_apply, np.array(m)) for m in matrices)


def _apply(m, x):
    return m.astype(x.dtype) @ x


def height(x):
    return np.asarray(x)[:, 2]


CASES = {
    "projective plane": Case(
        make=lambda: calor.Quotient(calor.Sphere(2), [same, negative]),
        copies=2,
        volume=2 * np.pi,
        elements=(negative,),
        density=projective_density,
        grid=lambda t, x0: sphere_grid(26),
        moments=((lambda x: 3 * x[:, 2] ** 2 - 1, 6.0), (lambda x: x[:, 0] * x[:, 1], 6.0)),
    ),
    "lens space L(5, 2)": Case(
        make=lambda: calor.Quotient(calor.Sphere(3), lens_matrices()),
        copies=5,
        volume=2 * np.pi**2 / 5,
        elements=matrices_as_functions(lens_matrices()[1:3]),
        density=lens_density,
        grid=lambda t, x0: sphere3_grid(26),
        moments=(
            (lambda x: x[:, 0] ** 2 + x[:, 1] ** 2 - x[:, 2] ** 2 - x[:, 3] ** 2, 8.0),
            # z w^2, harmonic as a holomorphic function; u u^4 = 1
            (lambda x: np.real((x[:, 0] + 1j * x[:, 1]) * (x[:, 2] + 1j * x[:, 3]) ** 2), 15.0),
        ),
    ),
    "SO(3) / cube": Case(
        make=lambda: calor.Quotient(calor.SO3(), cube_turns()),
        copies=48,
        volume=np.pi**2 / 24,
        elements=(*matrices_as_functions(cube_turns()[[7]]), negative),
        density=cube_density,
        grid=lambda t, x0: sphere3_grid(34),
        # The first cubic harmonic, of degree l = 4, of the rows of the matrix: 4 l(l + 1) = 80.
        moments=(
            (lambda x: np.sum(matrix(x)[:, 0] ** 4, axis=1) - 0.6, 80.0),
            (lambda x: np.sum(matrix(x)[:, 1] ** 4, axis=1) - 0.6, 80.0),
        ),
        times=(0.03, 0.1, 1.0),
    ),
    "Klein bottle": Case(
        make=lambda: calor.Quotient(calor.Torus(2), [same, glide]),
        copies=2,
        volume=2 * np.pi**2,
        elements=(glide,),
        density=klein_density,
        grid=lambda t, x0: joined(circle_grid(28), circle_grid(28)),
        moments=(
            (lambda x: np.cos(x[:, 1]), 1.0),
            (lambda x: np.cos(x[:, 0]) * np.sin(x[:, 1]), 2.0),
            (lambda x: np.sin(2 * x[:, 0]), 4.0),
        ),
        times=(0.05, 0.3, 0.9, 1.0),  # two forms of the kernel meet at t = 1
    ),
    "S^2 x S^1": Case(
        make=lambda: calor.Product(calor.Sphere(2), calor.Torus(1)),
        copies=1,
        volume=8 * np.pi**2,
        elements=(around,),
        density=cylinder_density,
        grid=lambda t, x0: joined(sphere_grid(26), circle_grid(28)),
        moments=((height, 2.0), (lambda x: x[:, 2] * np.cos(x[:, 3]), 3.0)),
    ),
    "SE(3) = SO(3) x R^3": Case(
        make=lambda: calor.Product(calor.SO3(), calor.Euclidean(3)),
        copies=2,
        volume=np.inf,
        elements=(other_sign,),
        density=pose_density,
        grid=pose_grid,
        moments=(
            (lambda x: matrix(x[:, :4])[:, 0, 0], 8.0),
            (lambda x: x[:, 4], 0.0),
            (lambda x: matrix(x[:, :4])[:, 1, 2] * x[:, 5], 8.0),
        ),
        times=(0.1, 0.4, 1.5),
    ),
}
