"""Exact kernels in float32 against the same kernels in extended precision, at every point.

The promise: for t from 1e-3 to 20, antipode and cut locus included, the error of log p is at most
2e-5 (1 + |log p|) and the error of the score at most 2e-4 (1 + |score|).  Both are measured at the
float32 points themselves, carried to mpmath without rounding.
"""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import calor
import oracles

TIMES = (1e-3, 4e-3, 0.02, 0.1, 0.35, 0.8, 1.2, 4.0, 20.0)
LOG_PROB, SCORE = 2e-5, 2e-4


@pytest.fixture(autouse=True)
def _many_digits():
    with mp.workdps(60):
        yield


def exact_numbers(array):
    """The entries of a float32 array as mpmath numbers, without rounding."""
    return [mp.mpf(float(value)) for value in np.asarray(array).ravel()]


def exact_time(t):
    return mp.mpf(float(np.float32(t)))


def dot(a, b):
    return mp.fsum(p * q for p, q in zip(a, b, strict=True))


def assert_close(value, score, true_value, true_score, where, norm=None):
    norm = norm or (lambda v: float(mp.sqrt(dot(v, v))))
    error = abs(float(value) - float(true_value))
    assert error <= LOG_PROB * (1 + abs(float(true_value))), (where, "log p", error)
    difference = [a - b for a, b in zip(exact_numbers(score), true_score, strict=True)]
    error = norm(difference)
    assert error <= SCORE * (1 + norm(true_score)), (where, "score", error)


def unit(a):
    length = mp.sqrt(dot(a, a))
    return [value / length for value in a]


def sphere_pair(generator, n, r, axis_aligned=False):
    """Two float32 points at a distance of about r, exactly opposite if r is pi."""
    x0 = np.eye(n + 1)[0] if axis_aligned else generator.normal(size=n + 1)
    x0 = x0 / np.linalg.norm(x0)
    u = generator.normal(size=n + 1)
    u -= (u @ x0) * x0
    u /= np.linalg.norm(u)
    x = np.cos(r) * x0 + np.sin(r) * u
    if r in (0, np.pi):
        x = np.cos(r) * x0
    return jnp.asarray(x, jnp.float32), jnp.asarray(x0, jnp.float32)


def compiled(manifold):
    kernel = calor.heat_kernel(manifold, "exact")
    return jax.jit(lambda t, x, x0: (kernel.log_prob(t, x, x0), kernel.score(t, x, x0)))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 24])
def test_spheres(n):
    generator = np.random.default_rng(n)
    evaluate = compiled(calor.Sphere(n))
    gaps = (1e-6, 1e-4, 1e-3, 1e-2, 0.1) if n < 5 else (1e-4, 1e-2)
    for t in TIMES:
        for r in (0.0, 1e-6, 1e-3, 0.1, 1.0, 2.0, np.pi, *(np.pi - gap for gap in gaps)):
            x, x0 = sphere_pair(generator, n, r)
            a, b = unit(exact_numbers(x)), unit(exact_numbers(x0))
            cosine = dot(a, b)
            across = [q - cosine * p for p, q in zip(a, b, strict=True)]
            sine = mp.sqrt(dot(across, across))
            value, slope = oracles.sphere(
                n, exact_time(t), mp.atan2(sine, cosine), mp.atan2(sine, -cosine)
            )
            score = [-slope * c / sine if sine else mp.mpf(0) for c in across]
            assert_close(*evaluate(t, x, x0), value, score, (t, r))


def half_sphere(t, a, b, folded):
    """The kernel of a sphere modulo sign, from a function of (t, r, pi/2 - r)."""
    cosine = dot(a, b)
    if cosine < 0:
        cosine, b = -cosine, [-q for q in b]
    across = [q - cosine * p for p, q in zip(a, b, strict=True)]
    sine = mp.sqrt(dot(across, across))
    value, slope = folded(exact_time(t), mp.atan2(sine, cosine), mp.atan2(cosine, sine))
    return value, [-slope * c / sine if sine else mp.mpf(0) for c in across]


def projective_plane(t, r, gap):
    (first, slope), (second, other) = (
        oracles.sphere(2, t, r),
        oracles.sphere(2, t, mp.pi / 2 + gap),
    )
    ratio = mp.exp(second - first)
    return first + mp.log(1 + ratio), (slope - ratio * other) / (1 + ratio)


@pytest.mark.parametrize(
    ("make", "folded", "n"),
    [
        (calor.SO3, oracles.so3, 3),
        (lambda: calor.Quotient(calor.Sphere(2), [lambda x: x, lambda x: -x]), projective_plane, 2),
    ],
    ids=["SO3", "projective plane"],
)
def test_spheres_modulo_sign(make, folded, n):
    generator = np.random.default_rng(n)
    evaluate = compiled(make())
    for t in TIMES:
        for gap in (np.pi / 2, 1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-7, 0.0):
            for axis_aligned in (False, True):
                x, x0 = sphere_pair(generator, n, np.pi / 2 - gap, axis_aligned)
                value, score = half_sphere(
                    t, unit(exact_numbers(x)), unit(exact_numbers(x0)), folded
                )
                assert_close(*evaluate(t, x, x0), value, score, (t, gap, axis_aligned))


def test_torus():
    generator = np.random.default_rng(0)
    evaluate = compiled(calor.Torus(2))
    gaps = (0.0, 1e-6, 1e-4, 1e-3, 1e-2)
    for t in TIMES:
        for d in (0.0, 1e-5, 0.1, 1.0, 1.6, 2.5, *(np.pi - gap for gap in gaps)):
            for sign in (1, -1):
                x0 = generator.uniform(-np.pi, np.pi, 2)
                x = jnp.asarray(x0 + sign * np.array([d, generator.uniform(0, 4)]), jnp.float32)
                x0 = jnp.asarray(x0, jnp.float32)
                parts = [
                    oracles.circle(exact_time(t), p - q)
                    for p, q in zip(exact_numbers(x), exact_numbers(x0), strict=True)
                ]
                value, score = sum(part[0] for part in parts), [part[1] for part in parts]
                assert_close(*evaluate(t, x, x0), value, score, (t, d, sign))


@pytest.mark.parametrize("n", [2, 3])
def test_hyperbolic(n):
    """From a source up to distance 2 of the origin, out to a distance of 15.

    The score is compared in ambient coordinates: at a distance of 15 the rounding of those alone
    is a tenth of a unit vector.
    """
    generator = np.random.default_rng(n)
    space = calor.Hyperbolic(n)
    evaluate = compiled(space)
    for t in TIMES:
        for base in (0.0, 0.5, 2.0):
            for r in (0.0, 1e-4, 1e-2, 0.3, 1.0, 3.0) + ((8.0, 15.0) if base == 0 else ()):
                s = generator.normal(size=n)
                s *= np.sinh(base) / np.linalg.norm(s)
                u = generator.normal(size=n)
                u /= np.linalg.norm(u)
                time = np.sqrt(1 + s @ s)
                ahead = np.r_[s @ u, u + s * (s @ u) / (1 + time)]
                x0 = np.r_[time, s]
                x = space.project(jnp.asarray(np.cosh(r) * x0 + np.sinh(r) * ahead, jnp.float32))
                x0 = space.project(jnp.asarray(x0, jnp.float32))
                # The first coordinate is a function of the others.
                a, b = exact_numbers(x)[1:], exact_numbers(x0)[1:]
                a0, b0 = mp.sqrt(1 + dot(a, a)), mp.sqrt(1 + dot(b, b))
                cosh = a0 * b0 - dot(a, b)
                distance = mp.acosh(cosh) if cosh > 1 else mp.mpf(0)
                value, slope = oracles.hyperbolic(n, exact_time(t), distance)
                score = [
                    -slope * (q - cosh * p) / mp.sinh(distance) if distance else mp.mpf(0)
                    for p, q in zip([a0, *a], [b0, *b], strict=True)
                ]
                assert_close(*evaluate(t, x, x0), value, score, (t, base, r))


def test_spd2():
    """The score in the affine-invariant norm, for condition numbers up to 1000.

    That norm multiplies the rounding of the entries by the condition number of x.
    """
    generator = np.random.default_rng(0)
    evaluate = compiled(calor.SPD(2))
    for t in TIMES:
        for r in ((0, 0), (1e-3, 0), (0.02, -0.02), (0.3, 0.1), (1, -1), (3, -2), (4, 3.9), (6, 1)):
            angle = generator.uniform(0, 2 * np.pi)
            q = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            half = generator.normal(size=(2, 2))
            x0 = half @ half.T + np.eye(2)
            factor = np.linalg.cholesky(x0)
            x = factor @ (q * np.exp(r)) @ q.T @ factor.T
            x = jnp.asarray((x + x.T) / 2, jnp.float32)
            x0 = jnp.asarray(x0, jnp.float32)
            a, b = mp.matrix(2, 2), mp.matrix(2, 2)
            for i in range(2):
                for j in range(2):
                    a[i, j], b[i, j] = mp.mpf(float(x[i, j])), mp.mpf(float(x0[i, j]))
            low = mp.cholesky(b)
            inverse = low**-1
            white = inverse * a * inverse.T
            w, v = mp.eigsy((white + white.T) / 2)
            value, slopes = oracles.spd2(exact_time(t), mp.log(w[0]), mp.log(w[1]))
            columns = low * v
            score = columns * mp.diag([w[i] * slopes[i] for i in range(2)]) * columns.T

            def norm(entries, a=a):
                m = mp.matrix(2, 2)
                m[0, 0], m[0, 1], m[1, 0], m[1, 1] = entries
                squared = a**-1 * m * a**-1 * m
                return float(mp.sqrt(abs(squared[0, 0] + squared[1, 1])))

            entries = [score[0, 0], score[0, 1], score[1, 0], score[1, 1]]
            assert_close(*evaluate(t, x, x0), value, entries, (t, r), norm)


def test_products_add_up():
    """On SO(3) x R^3 log p is the sum and the score the concatenation."""
    product = calor.Product(calor.SO3(), calor.Euclidean(3))
    kernel = calor.heat_kernel(product)
    rotation = calor.heat_kernel(calor.SO3())
    x, x0 = sphere_pair(np.random.default_rng(0), 3, 0.7)
    y, y0 = jnp.array([0.3, -1.0, 2.0]), jnp.array([0.1, 0.4, -0.3])
    for t in TIMES:
        joined = product.join(x, y), product.join(x0, y0)
        gaussian = -float(jnp.sum((y - y0) ** 2)) / (4 * t) - 1.5 * np.log(4 * np.pi * t)
        expected = float(rotation.log_prob(t, x, x0)) + gaussian
        np.testing.assert_allclose(kernel.log_prob(t, *joined), expected, rtol=1e-5, atol=1e-5)
        score = kernel.score(t, *joined)
        np.testing.assert_allclose(score[:4], rotation.score(t, x, x0), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(score[4:], (y0 - y) / (2 * t), rtol=1e-4)
