r"""Reference heat kernels in extended precision, the independent truth of the tests.

Convention: ``p`` solves ``dp/dt = Delta p`` with ``Delta`` the Laplace-Beltrami operator (not half
of it) and is a density with respect to the Riemannian volume. Every function returns ``log p`` and
its derivative in the distance, as mpmath numbers rounded to ``DIGITS`` significant digits.

Formulas, with ``r`` the distance between the two points:

* ``circle``: images ``(4 pi t)^(-1/2) sum_k exp(-(r + 2 pi k)^2 / 4t)`` or, for ``t >= 1``, the
  Fourier series ``(1 + 2 sum_m exp(-m^2 t) cos(m r)) / 2 pi``.
* ``sphere``: ``sum_l exp(-l (l+n-1) t) d_l G_l(cos r) / vol(S^n)``, where ``d_l`` is the dimension
  of the spherical harmonics of degree ``l`` and ``G_l`` the Gegenbauer polynomial of index
  ``(n-1)/2`` divided by its value at 1. The derivative comes from the same series two dimensions
  up, ``d p_n / d(cos r) = 2 pi exp(-n t) p_{n+2}``, so that it does not cancel near 0 or pi.
* ``so3``: twice the terms of even degree of the series on ``S^3``.
* ``hyperbolic``: McKean's integral for ``n = 2``, the closed form for ``n = 3``.
* ``spd2``: a Gaussian on the line times the kernel of a scaled hyperbolic plane.
"""

import math
from collections.abc import Callable

from mpmath import mp, mpf

DIGITS = 30
_WORKING_DIGITS = 2 * DIGITS
_CIRCLE_TERMS = 20


def circle(t: float | mpf, r: float | mpf) -> tuple[mpf, mpf]:
    """Heat kernel of the circle of circumference ``2 pi``.

    Args:
        t: time.
        r: signed distance, any real number. The doubles nearest to pi and -pi stand for pi and -pi.

    Returns:
        ``log p`` and its derivative in ``r``.
    """
    with mp.workdps(_WORKING_DIGITS + _decades(r)):
        t, r = mpf(t), mpf(r)
        at_cut = abs(r) in (float(mp.pi), +mp.pi)
        wrapped = mp.pi if at_cut else r - 2 * mp.pi * mp.nint(r / (2 * mp.pi))
        density, slope = (circle_images if t < 1 else circle_modes)(t, wrapped)
        # The images of 0 and of pi cancel in pairs, up to rounding.
        slope = mpf(0) if at_cut or wrapped == 0 else slope / density
        return _rounded(mp.log(density), slope)


def circle_images(t: mpf, r: mpf) -> tuple[mpf, mpf]:
    """Density of the circle and its derivative as a sum over images, for ``t <= 1``."""
    density, slope = mpf(0), mpf(0)
    for k in range(-_CIRCLE_TERMS, _CIRCLE_TERMS + 1):
        displacement = r + 2 * mp.pi * k
        image = mp.exp(-(displacement**2) / (4 * t)) / mp.sqrt(4 * mp.pi * t)
        density += image
        slope -= displacement / (2 * t) * image
    return density, slope


def circle_modes(t: mpf, r: mpf) -> tuple[mpf, mpf]:
    """Density of the circle and its derivative as a Fourier series, for ``t >= 1/2``."""
    density, slope = 1 / (2 * mp.pi), mpf(0)
    for m in range(1, _CIRCLE_TERMS + 1):
        amplitude = mp.exp(-m * m * t) / mp.pi
        density += amplitude * mp.cos(m * r)
        slope -= amplitude * m * mp.sin(m * r)
    return density, slope


def sphere(
    n: int, t: float | mpf, r: float | mpf, delta: float | mpf | None = None
) -> tuple[mpf, mpf]:
    """Heat kernel of the unit sphere of dimension ``n >= 1``.

    Args:
        n: dimension.
        t: time.
        r: distance in ``[0, pi]``. The double nearest to pi stands for pi.
        delta: ``pi - r`` where it is known better than ``r``, which is then not read.

    Returns:
        ``log p`` and its derivative in ``r``.
    """

    def angle() -> mpf:
        return _from_both_ends(r, delta, mp.pi)[0]

    density = _sphere_density(n, t, angle)
    raised = _sphere_density(n + 2, t, angle)
    with mp.workdps(_WORKING_DIGITS):
        sine = mp.sin(min(_from_both_ends(r, delta, mp.pi)))
        slope = -sine * 2 * mp.pi * mp.exp(-n * mpf(t)) * raised / density
        return _rounded(mp.log(density), slope)


def so3(t: float | mpf, r: float | mpf, delta: float | mpf | None = None) -> tuple[mpf, mpf]:
    """Heat kernel of the rotation group as the unit 3-sphere modulo sign, of volume ``pi^2``.

    Args:
        t: time.
        r: distance on the 3-sphere in ``[0, pi/2]``, half the angle of the rotation. The double
            nearest to pi/2 stands for pi/2.
        delta: ``pi/2 - r`` where it is known better than ``r``, which is then not read.

    Returns:
        ``log p`` and its derivative in ``r``.
    """

    def angle() -> mpf:
        return _from_both_ends(r, delta, mp.pi / 2)[0]

    # p(r) + p(pi - r) on the 3-sphere: the terms of odd degree are odd in cos r and drop out.
    # Its derivative in cos r likewise keeps the terms of odd degree of the series on S^5.
    density = 2 * _sphere_density(3, t, angle, parity=0)
    with mp.workdps(_WORKING_DIGITS):
        near, far = _from_both_ends(r, delta, mp.pi / 2)
        if far == 0:
            return _rounded(mp.log(density), mpf(0))
    raised = 2 * _sphere_density(5, t, angle, parity=1)
    with mp.workdps(_WORKING_DIGITS):
        slope = -mp.sin(near) * 2 * mp.pi * mp.exp(-3 * mpf(t)) * raised / density
        return _rounded(mp.log(density), slope)


def hyperbolic(n: int, t: float | mpf, r: float | mpf) -> tuple[mpf, mpf]:
    """Heat kernel of the hyperbolic space of curvature -1 and of dimension 2 or 3.

    Args:
        n: dimension, 2 or 3.
        t: time.
        r: distance, not negative.

    Returns:
        ``log p`` and its derivative in ``r``.

    Raises:
        ValueError: if ``n`` is neither 2 nor 3.
    """
    if n not in (2, 3):
        raise ValueError(f"no reference for the hyperbolic space of dimension {n}")
    # Twice the decades of r, for 1/r - coth r and the like cancel to order r.
    with mp.workdps(_WORKING_DIGITS + 2 * _decades(r)):
        t, r = mpf(t), mpf(r)
        log_gaussian = -3 * mp.log(4 * mp.pi * t) / 2 - r**2 / (4 * t)
        if n == 3:
            slope = 1 / r - mp.coth(r) - r / (2 * t) if r > 0 else mpf(0)
            return _rounded(log_gaussian - t - mp.log(_sinh_over(r)), slope)
        integral, slope_over_r = _mckean_integral(t, r)
        log_density = log_gaussian - t / 4 + mp.log(2) / 2 + mp.log(integral)
        return _rounded(log_density, r * (slope_over_r / integral - 1 / (2 * t)))


def spd2(t: float | mpf, r1: float | mpf, r2: float | mpf) -> tuple[mpf, tuple[mpf, mpf]]:
    """Heat kernel of the positive definite 2 by 2 matrices, metric ``tr(X^-1 U X^-1 V)``.

    The matrix ``diag(e^r1, e^r2)`` is at squared distance ``r1^2 + r2^2 = s^2 + 2 u^2`` from the
    identity, ``s = (r1 + r2)/sqrt(2)`` and ``u = |r1 - r2|/2``: the space is a line times a
    hyperbolic plane of metric twice that of curvature -1, whose Laplacian is therefore halved and
    whose volume is doubled. The volume element is ``ds * 2 * 2 pi sinh(u) du``, that is, with
    ``dr1 dr2 = sqrt(2) ds du`` and both orders of the eigenvalues counted,
    ``sqrt(2) pi |sinh((r1 - r2)/2)| dr1 dr2`` over the plane. The tests check that the mass is 1
    and that ``dp/dt = sum_i d_i^2 p + coth((r1 - r2)/2)/2 (d_1 p - d_2 p)``.

    Args:
        t: time.
        r1: first logarithm of an eigenvalue of ``X0^(-1/2) X X0^(-1/2)``.
        r2: second logarithm.

    Returns:
        ``log p`` and its derivatives in ``r1`` and ``r2``.
    """
    with mp.workdps(_WORKING_DIGITS):
        t, r1, r2 = mpf(t), mpf(r1), mpf(r2)
        log_plane, slope_plane = hyperbolic(2, t / 2, abs(r1 - r2) / 2)
        log_line = -mp.log(4 * mp.pi * t) / 2 - (r1 + r2) ** 2 / (8 * t)
        mean = -(r1 + r2) / (4 * t)
        half = mp.sign(r1 - r2) * slope_plane / 2
        (log_density,) = _rounded(log_line + log_plane - mp.log(2))
        return log_density, _rounded(mean + half, mean - half)


def sphere_volume(n: int) -> mpf:
    """Volume of the unit sphere of dimension ``n``, at the current precision."""
    half = mpf(n + 1) / 2
    return 2 * mp.pi**half / mp.gamma(half)


def _rounded(*values: mpf) -> tuple[mpf, ...]:
    with mp.workdps(DIGITS):
        return tuple(+value for value in values)


def _decades(x: float | mpf) -> int:
    """Distance from 1 of the order of magnitude of ``x``, in decimal digits; 0 at ``x = 0``."""
    return abs(int(mp.log10(abs(x)))) if x else 0


def _from_both_ends(r: float | mpf, delta: float | mpf | None, length: mpf) -> tuple[mpf, mpf]:
    """Distances of a point to both ends of ``[0, length]``, at the current precision."""
    if delta is None and r == float(length):
        delta = 0
    if delta is None:
        return mpf(r), length - r
    return length - delta, mpf(delta)


def _sphere_density(
    n: int, t: float | mpf, angle: Callable[[], mpf], parity: int | None = None
) -> mpf:
    """Sum the series on the n-sphere with the precision that leaves enough correct digits.

    Args:
        n: dimension.
        t: time.
        angle: gives the distance at the current precision.
        parity: keep the degrees of this parity only; None keeps all.
    """
    # The sum may be exp(-r^2 / 4t) of the sum of the absolute values of its terms, or less.
    digits = _WORKING_DIGITS + math.ceil(angle() ** 2 / (4 * mpf(t) * mp.log(10)))
    while True:
        with mp.workdps(digits):
            total, magnitude = _harmonic_sum(n, mpf(t), mp.cos(angle()), parity)
            if total * mpf(10) ** (digits - DIGITS - 15) > magnitude:
                return total / sphere_volume(n)
        digits += _WORKING_DIGITS


def _harmonic_sum(n: int, t: mpf, cosine: mpf, parity: int | None) -> tuple[mpf, mpf]:
    """Sum ``exp(-l (l+n-1) t) d_l G_l(cosine)`` and the same at ``cosine = 1``, where ``G_l = 1``.

    As ``|G_l| <= 1``, the second sum bounds the rounding errors of the first and its tail.
    """
    total, magnitude = mpf(0), mpf(0)
    weight, ratio, ratio_of_ratios = mpf(1), mp.exp(-n * t), mp.exp(-2 * t)
    previous, current = mpf(0), mpf(1)
    degree, bound = 0, mpf(1)
    while bound >= magnitude * mp.eps:
        if parity in (None, degree % 2):
            total += bound * current
            magnitude += bound
        following = (2 * degree + n - 1) * cosine * current - degree * previous
        # On the circle the recurrence reads 0 = 0 at degree 0; G_1 = cosine in any dimension.
        following = following / (degree + n - 1) if degree else cosine
        previous, current = current, following
        degree += 1
        weight *= ratio
        ratio *= ratio_of_ratios
        bound = weight * _harmonic_dimension(n, degree)
    return total, magnitude


def _harmonic_dimension(n: int, degree: int) -> int:
    """Dimension of the spherical harmonics of a degree on the n-sphere.

    It is that of the homogeneous polynomials in ``n + 1`` variables, less those of degree lower
    by 2, multiplied by the squared radius.
    """
    return math.comb(degree + n, n) - (math.comb(degree + n - 2, n) if degree >= 2 else 0)


def _sinh_over(x: mpf) -> mpf:
    return mp.sinh(x) / x if x else mpf(1)


def _mckean_integral(t: mpf, r: mpf) -> tuple[mpf, mpf]:
    """McKean's integral without its factor ``exp(-r^2 / 4t)``, and its derivative over ``r``.

    With ``s^2 = r^2 + v^2`` the integral of ``s exp(-s^2/4t) / sqrt(cosh s - cosh r) ds`` becomes
    that of ``exp(-(r^2 + v^2)/4t) / sqrt(g) dv`` over ``v > 0``, ``g = (cosh s - cosh r) / v^2``.
    As ``cosh`` is an entire function of ``s^2``, ``g`` is entire and even in ``r`` and ``v``; its
    zeros have an imaginary part in ``v`` of at least ``2 pi``. The midpoint rule on the whole line
    then converges exponentially, so two steps that agree to half the digits give all of them.
    """
    step = min(mp.sqrt(t), mpf(1))
    coarse = _midpoint_sums(t, r, step)
    while True:
        step /= 2
        fine = _midpoint_sums(t, r, step)
        errors = [abs(a / b - 1) for a, b in zip(coarse, fine, strict=True)]
        if max(errors) < mpf(10) ** (5 - DIGITS):
            return fine
        coarse = fine


def _midpoint_sums(t: mpf, r: mpf, step: mpf) -> tuple[mpf, mpf]:
    """Midpoint rule for the two integrals of ``_mckean_integral``."""
    integral, slope_over_r = mpf(0), mpf(0)
    cosh_r, sinh_over_r = mp.cosh(r), _sinh_over(r)
    height, change = mpf("inf"), mpf("inf")
    node = step / 2
    while max(height, change) > mp.eps * min(integral, -slope_over_r):
        square = node**2
        s = mp.sqrt(r**2 + square)
        gap = (mp.cosh(s) - cosh_r) / square
        height = mp.exp(-square / (4 * t)) / mp.sqrt(gap)
        # The derivative of gap in r is r (sinh(s)/s - sinh(r)/r) / v^2.
        change = height * (_sinh_over(s) - sinh_over_r) / (2 * gap * square)
        integral += height
        slope_over_r -= change
        node += step
    return step * integral, step * slope_over_r
