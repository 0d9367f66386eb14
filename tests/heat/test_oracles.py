"""Checks of the reference heat kernels against each other and against the heat equation."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

import oracles

EXTENDED = 60


@pytest.fixture(autouse=True)
def _extended_precision():
    with mp.workdps(EXTENDED):
        yield


def agree(actual, expected, tolerance=1e-25):
    return abs(actual - expected) <= tolerance * abs(expected)


def derivative(function, x, step=1e-4):
    """Central difference of order 6."""
    differences = [function(x + k * step) - function(x - k * step) for k in (1, 2, 3)]
    return (45 * differences[0] - 9 * differences[1] + differences[2]) / (60 * step)


def integral(function, end, count=30):
    """Gauss-Legendre rule on ``[0, end]``, to double precision."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    pairs = zip(nodes.tolist(), weights.tolist(), strict=True)
    return sum(weight * function(end * (1 + node) / 2) for node, weight in pairs) * end / 2


def heat_residual(log_kernel, drift, t, r):
    """``dp/dt - p'' - drift p'`` over ``p``, for ``log_kernel(t, r) -> log p, d log p / dr``."""
    slope = log_kernel(t, r)[1]
    in_time = derivative(lambda u: log_kernel(u, r)[0], t, step=t / 1000)
    curvature = derivative(lambda u: log_kernel(t, u)[1], r)
    return in_time - curvature - slope**2 - drift * slope


@pytest.mark.parametrize("t", [1e-3, 0.1, 20.0])
def test_digits_are_true(monkeypatch, t):
    def values():
        return [
            *oracles.circle(t, 3.1),
            *oracles.sphere(2, t, 2.0),
            *oracles.sphere(7, t, 0.0, delta=1e-7),
            *oracles.so3(t, 0.0, delta=1e-7),
            *oracles.hyperbolic(2, t, 1e-7),
            *oracles.hyperbolic(2, t, 3.0),
            *oracles.hyperbolic(2, t, 60.0),
            *oracles.hyperbolic(3, t, 1e-7),
        ]

    usual = values()
    monkeypatch.setattr(oracles, "DIGITS", 40)
    monkeypatch.setattr(oracles, "_WORKING_DIGITS", 100)
    assert all(agree(a, b, 1e-28) for a, b in zip(usual, values(), strict=True))


# The circle


@pytest.mark.parametrize("r", [0.3, 2.0, math.pi - 1e-7])
@pytest.mark.parametrize("t", [0.6, 1.0, 1.7])
def test_circle_images_and_modes_agree(t, r):
    images = oracles.circle_images(mpf(t), mpf(r))
    modes = oracles.circle_modes(mpf(t), mpf(r))
    assert all(agree(a, b) for a, b in zip(images, modes, strict=True))


@pytest.mark.parametrize("r", [1e-7, 1.0, 3.0, math.pi - 1e-7])
@pytest.mark.parametrize("t", [0.004, 0.1, 1.0, 20.0])
def test_circle_is_the_sphere_of_dimension_one(t, r):
    circle, sphere = oracles.circle(t, r), oracles.sphere(1, t, r)
    assert all(agree(a, b) for a, b in zip(circle, sphere, strict=True))


def test_circle_wraps():
    near, far = oracles.circle(0.1, 0.5), oracles.circle(0.1, mpf(0.5) - 6 * mp.pi)
    assert all(agree(a, b) for a, b in zip(near, far, strict=True))


# Spheres


def three_sphere_images(t, r):
    """Density of the 3-sphere as a sum over images, from the circle by ``d / d(cos r)``."""
    displacements = [r + 2 * mp.pi * k for k in range(-20, 21)]
    images = sum(x * mp.exp(-(x**2) / (4 * t)) for x in displacements)
    return mp.exp(t) * (4 * mp.pi * t) ** mpf(-1.5) * images / mp.sin(r)


def two_sphere_integral(t, r):
    """Logarithm of the density of the 2-sphere as an Abel integral, with ``s = r + u^2``."""

    def image(s):
        # Relative to exp(-r^2 / 4t), as the tolerance of the quadrature is absolute.
        return s * mp.exp((r**2 - s**2) / (4 * t))

    def integrand(u):
        s = r + u**2
        images = sum((-1) ** k * image(s + 2 * mp.pi * k) for k in range(-8, 9))
        # cos r - cos s = 2 sin((s + r)/2) sin((s - r)/2), without cancellation at s = r
        return 2 * u * images / mp.sqrt(2 * mp.sin(r + u**2 / 2) * mp.sin(u**2 / 2))

    total = mp.quad(integrand, mp.linspace(0, mp.sqrt(mp.pi - r), 4))
    factor = t / 4 - 3 * mp.log(4 * mp.pi * t) / 2 - r**2 / (4 * t)
    return mp.log(2) / 2 + factor + mp.log(total)


@pytest.mark.parametrize("r", [1e-7, 0.5, 1.5, 3.0, math.pi - 1e-7])
@pytest.mark.parametrize("t", [1e-3, 0.1, 1.0, 5.0])
def test_three_sphere_is_the_sum_over_images(t, r):
    log_density, slope = oracles.sphere(3, t, r)
    assert agree(log_density, mp.log(three_sphere_images(mpf(t), mpf(r))))
    with mp.workdps(2 * EXTENDED):
        step = mpf("1e-14")
        images = derivative(lambda x: mp.log(three_sphere_images(mpf(t), x)), mpf(r), step)
    assert agree(slope, images)


@pytest.mark.parametrize(
    ("t", "r"), [(1e-3, 3.1), (1e-3, math.pi - 1e-7), (0.02, 0.5), (0.1, 3.0), (1.0, 1.0)]
)
def test_two_sphere_is_the_integral(t, r):
    with mp.workdps(oracles.DIGITS):
        direct = two_sphere_integral(mpf(t), mpf(r))
    assert agree(oracles.sphere(2, t, r)[0], direct, 1e-18)


@pytest.mark.parametrize(("t", "r"), [(0.05, 1.0), (0.3, 2.5), (2.0, 0.4)])
@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_sphere_solves_the_heat_equation(n, t, r):
    def log_kernel(t, r):
        return oracles.sphere(n, t, r)

    residual = heat_residual(log_kernel, (n - 1) * mp.cot(r), mpf(t), mpf(r))
    assert abs(residual) < 1e-14


@pytest.mark.parametrize("t", [0.05, 1.0])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_sphere_has_unit_mass(n, t):
    def integrand(r):
        return mp.exp(oracles.sphere(n, t, r)[0]) * mp.sin(r) ** (n - 1)

    assert agree(integral(integrand, mp.pi) * oracles.sphere_volume(n - 1), 1, 1e-13)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("t", [0.004, 0.1, 20.0])
def test_sphere_derivative_is_the_derivative(n, t):
    for r in (mpf(0.7), mp.pi - 0.1):
        step = mpf("1e-4") * min(t, 1)
        numeric = derivative(lambda r: oracles.sphere(n, t, r)[0], r, step)
        # At large times log p is constant to all digits but those of its derivative.
        assert abs(numeric - oracles.sphere(n, t, r)[1]) < 1e-14 * max(1, abs(numeric))


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_sphere_is_critical_at_both_ends(n):
    for t in (0.004, 0.1, 20.0):
        assert oracles.sphere(n, t, 0.0)[1] == 0
        assert oracles.sphere(n, t, math.pi) == oracles.sphere(n, t, 0.0, delta=0.0)
        assert oracles.sphere(n, t, math.pi)[1] == 0
        # The slope is linear near either end, so it halves with the distance.
        for ends in ([(1e-7, None), (2e-7, None)], [(0.0, 1e-7), (0.0, 2e-7)]):
            near, far = (oracles.sphere(n, t, r, delta)[1] for r, delta in ends)
            assert near < 0
            assert agree(far, 2 * near, 1e-7)


def test_delta_replaces_the_distance():
    r = mpf(math.pi - 1e-3)
    assert oracles.sphere(2, 0.01, r) == oracles.sphere(2, 0.01, 0.0, delta=mp.pi - r)


# Rotations


@pytest.mark.parametrize("r", [0.0, 1e-7, 0.7, math.pi / 2 - 1e-7])
@pytest.mark.parametrize("t", [1e-3, 0.1, 5.0])
def test_rotations_are_two_points_of_the_three_sphere(t, r):
    log_near, slope_near = oracles.sphere(3, t, r)
    log_far, slope_far = oracles.sphere(3, t, 0.0, delta=r)
    near, far = mp.exp(log_near), mp.exp(log_far)
    log_density, slope = oracles.so3(t, r)
    assert agree(log_density, mp.log(near + far))
    expected = (near * slope_near - far * slope_far) / (near + far)
    # This difference of two rounded slopes cancels, at large times and next to a half turn.
    assert abs(slope - expected) <= 1e-25 * abs(slope_near)


def test_rotations_are_critical_at_both_ends():
    for t in (1e-3, 0.1, 20.0):
        assert oracles.so3(t, 0.0)[1] == 0
        assert oracles.so3(t, math.pi / 2)[1] == 0
        near, far = (oracles.so3(t, 0.0, delta=delta)[1] for delta in (1e-7, 2e-7))
        assert near < 0
        assert agree(far, 2 * near, 1e-7)


def test_rotations_have_unit_mass():
    def integrand(r):
        return mp.exp(oracles.so3(0.1, r)[0]) * 4 * mp.pi * mp.sin(r) ** 2

    assert agree(integral(integrand, mp.pi / 2), 1, 1e-13)


# Hyperbolic spaces


def mckean_directly(t, r):
    """Logarithm of McKean's integral by a general quadrature, with ``s = r + u^2``."""

    def integrand(u):
        s = r + u**2
        gap = 2 * mp.sinh(r + u**2 / 2) * mp.sinh(u**2 / 2)
        return 2 * u * s * mp.exp((r**2 - s**2) / (4 * t)) / mp.sqrt(gap)

    end = mp.sqrt(mp.sqrt(r**2 + 400 * t) - r)
    total = mp.quad(integrand, mp.linspace(0, end, 6))
    factor = -t / 4 - 3 * mp.log(4 * mp.pi * t) / 2 - r**2 / (4 * t)
    return mp.log(2) / 2 + factor + mp.log(total)


@pytest.mark.parametrize(
    ("t", "r"), [(1e-3, 0.5), (1e-3, 60.0), (0.1, 2.0), (1.0, 60.0), (20.0, 1.0)]
)
def test_hyperbolic_plane_is_mckeans_integral(t, r):
    with mp.workdps(oracles.DIGITS):
        direct = mckean_directly(mpf(t), mpf(r))
    assert agree(oracles.hyperbolic(2, t, r)[0], direct, 1e-18)


@pytest.mark.parametrize("t", [0.01, 0.5, 20.0])
@pytest.mark.parametrize("r", [0.2, 60.0])
@pytest.mark.parametrize("n", [2, 3])
def test_hyperbolic_solves_the_heat_equation(n, t, r):
    def log_kernel(t, r):
        return oracles.hyperbolic(n, t, r)

    residual = heat_residual(log_kernel, (n - 1) * mp.coth(r), mpf(t), mpf(r))
    assert abs(residual) < 1e-14 * (1 + (mpf(r) / t) ** 2)


@pytest.mark.parametrize("t", [0.01, 0.5, 20.0])
@pytest.mark.parametrize("n", [2, 3])
def test_hyperbolic_derivative_is_the_derivative(n, t):
    for r in (mpf(0.3), mpf(4)):
        numeric = derivative(lambda r: oracles.hyperbolic(n, t, r)[0], r)
        assert agree(oracles.hyperbolic(n, t, r)[1], numeric, 1e-15)
    assert oracles.hyperbolic(n, t, 0.0)[1] == 0
    near, far = (oracles.hyperbolic(n, t, r)[1] for r in (1e-7, 2e-7))
    assert agree(far, 2 * near, 1e-7)


@pytest.mark.parametrize("t", [0.05, 1.0])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_hyperbolic_has_unit_mass(n, t):
    def density(r):
        if n < 4:
            return mp.exp(oracles.hyperbolic(n, t, r)[0])
        # The recursion in the dimension, p_4 = -exp(-2t) / (2 pi sinh r) dp_2/dr
        log_density, slope = oracles.hyperbolic(2, t, r)
        return -mp.exp(-2 * mpf(t) + log_density) * slope / (2 * mp.pi * mp.sinh(r))

    end = (n - 1) * t + 12 * mp.sqrt(t)
    mass = integral(lambda r: density(r) * mp.sinh(r) ** (n - 1), end)
    assert agree(mass * oracles.sphere_volume(n - 1), 1, 1e-13)


def test_hyperbolic_space_comes_from_the_line():
    # p_3 = -exp(-t) / (2 pi sinh r) dp_1/dr, with p_1 the Gaussian on the line
    t, r = mpf("0.3"), mpf(2)
    line = mp.exp(-(r**2) / (4 * t)) / mp.sqrt(4 * mp.pi * t)
    expected = mp.exp(-t) * r / (2 * t) * line / (2 * mp.pi * mp.sinh(r))
    assert agree(oracles.hyperbolic(3, t, r)[0], mp.log(expected))


def test_hyperbolic_space_of_other_dimensions_is_refused():
    with pytest.raises(ValueError, match="dimension 5"):
        oracles.hyperbolic(5, 0.1, 1.0)


# Positive definite matrices


@pytest.mark.parametrize(("t", "r1", "r2"), [(0.05, 0.4, -0.3), (0.5, 2.0, 1.0), (3.0, -3.0, 1.0)])
def test_positive_definite_solves_the_heat_equation(t, r1, r2):
    t, r1, r2 = mpf(t), mpf(r1), mpf(r2)
    slope1, slope2 = oracles.spd2(t, r1, r2)[1]
    in_time = derivative(lambda u: oracles.spd2(u, r1, r2)[0], t, step=t / 1000)
    curvature1 = derivative(lambda u: oracles.spd2(t, u, r2)[1][0], r1)
    curvature2 = derivative(lambda u: oracles.spd2(t, r1, u)[1][1], r2)
    laplacian = curvature1 + slope1**2 + curvature2 + slope2**2
    laplacian += mp.coth((r1 - r2) / 2) * (slope1 - slope2) / 2
    assert abs(in_time - laplacian) < 1e-14 * (1 + abs(laplacian))


def test_positive_definite_derivatives_are_the_derivatives():
    t, r1, r2 = mpf("0.2"), mpf("0.3"), mpf("1.1")
    slope1, slope2 = oracles.spd2(t, r1, r2)[1]
    assert agree(slope1, derivative(lambda u: oracles.spd2(t, u, r2)[0], r1), 1e-15)
    assert agree(slope2, derivative(lambda u: oracles.spd2(t, r1, u)[0], r2), 1e-15)


def test_positive_definite_is_symmetric_in_the_eigenvalues():
    log_density, (slope1, slope2) = oracles.spd2(0.2, 0.3, 1.1)
    assert oracles.spd2(0.2, 1.1, 0.3) == (log_density, (slope2, slope1))
    slopes = oracles.spd2(0.2, 0.5, 0.5)[1]
    assert slopes[0] == slopes[1]


def test_positive_definite_has_unit_mass():
    t = mpf("0.3")

    def over_the_sums(difference):
        """Trapezoid rule along ``r1 + r2``, where the kernel is an even Gaussian."""
        step = mpf(1)
        halves = (
            mp.exp(oracles.spd2(t, (k * step + difference) / 2, (k * step - difference) / 2)[0])
            * (1 if k == 0 else 2)
            for k in range(8)
        )
        return step * sum(halves)

    # The volume element is sqrt(2) pi |sinh((r1 - r2)/2)| dr1 dr2 over the plane. The half in
    # dr1 dr2 = d(r1 + r2) d(r1 - r2) / 2 makes up for r1 - r2 running over positive values only.
    mass = integral(lambda x: over_the_sums(x) * mp.sinh(x / 2), mpf(10), count=24)
    assert agree(mp.sqrt(2) * mp.pi * mass, 1, 1e-9)
