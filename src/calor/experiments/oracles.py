r"""Reference heat kernels in float64 NumPy, against which `calor bench` measures the library.

They share no code with the kernels they judge: textbook series, image sums and integrals, evaluated
directly on arrays of times and distances.  Each returns log p and its derivative in the distance r,
the latter by a complex step, d/dr log p = Im log p(r + ih) / h, which has no cancellation.

* circle: images, or the Fourier series from t = 1 on;
* S^2: for t < 1/2 the integral over s > r of the alternating theta function,

      p = sqrt(2) e^(t/4) (4 pi t)^(-3/2) int_r^pi F(s) / sqrt(cos r - cos s) ds,
      F(s) = sum_k (-1)^k (s + 2 pi k) exp(-(s + 2 pi k)^2 / 4t),

  and the Legendre series afterwards;
* S^3 and SO(3): images, e^t (4 pi t)^(-3/2) sum_k (r + 2 pi k) / sin r exp(-(r + 2 pi k)^2 / 4t),
  or the series of characters from t = 1/2 on; a rotation adds the image of the antipode;
* H^2: McKean's integral; H^3: the closed form;
* SPD(2): a line times a hyperbolic plane of twice the metric (put together in `accuracy`).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

_STEP = 1e-100
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(400)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2  # on [0, 1]

Array = np.typing.NDArray[Any]
Radial = Callable[[Array, Array], Array]


def with_slope(log_density: Radial, t: Array, r: Array) -> tuple[Array, Array]:
    """The value and its derivative in r; the derivative is zero at r = 0."""
    values = log_density(t, r + 1j * _STEP)
    return np.real(values), np.where(r == 0, 0.0, np.imag(values) / _STEP)


def circle(t: Array, d: Array) -> Array:
    """The log-density on the circle of circumference 2 pi, |d| <= pi."""
    k = np.arange(-6, 7)
    t, d = np.broadcast_arrays(t, d)
    images = np.exp(-((d[..., None] + 2 * np.pi * k) ** 2 - d[..., None] ** 2) / (4 * t[..., None]))
    early = np.log(np.sum(images, -1)) - d**2 / (4 * t) - np.log(4 * np.pi * t) / 2
    m = np.arange(1, 13)
    modes = np.exp(-(m**2) * np.maximum(t, 1)[..., None]) * np.cos(m * d[..., None])
    return np.where(t < 1, early, np.log1p(2 * np.sum(modes, -1)) - np.log(2 * np.pi))


def sphere2(t: Array, r: Array) -> Array:
    """The log-density on S^2, for 0 <= r <= pi."""
    early = np.minimum(t, 0.5)
    behind = np.real(r) > np.pi / 2
    near = _sphere2_near(early, np.where(behind, 1.0, r))
    far = _sphere2_far(early, np.where(behind, r, 2.0))
    integral = np.log(np.where(behind, far, near)) - r**2 / (4 * early)
    integral = integral + np.log(2) / 2 + early / 4 - 1.5 * np.log(4 * np.pi * early)
    cosine, late = np.cos(r), np.maximum(t, 0.5)
    total, before, here = 0 * r, np.ones_like(r), cosine
    for degree in range(1, 14):
        total = total + (2 * degree + 1) * np.exp(-degree * (degree + 1) * late) * here
        before, here = here, ((2 * degree + 1) * cosine * here - degree * before) / (degree + 1)
    return np.where(t < 0.5, integral, np.log1p(total) - np.log(4 * np.pi))


def _alternating_theta(t, s, r):
    """F(s) exp(r^2 / 4t)."""
    total = 0
    for k in range(-3, 4):
        image = s + 2 * np.pi * k
        total = total + (-1) ** k * image * np.exp(-(image**2 - r**2) / (4 * t))
    return total


def _sphere2_near(t, r):
    """The integral for r <= pi/2, with s^2 = r^2 + v^2."""
    t, r = t[..., None], r[..., None]
    end = np.sqrt(np.pi**2 - r**2)
    v = end * _NODES
    s = np.sqrt(r**2 + v**2)
    gap = 2 * np.sin((s + r) / 2) * np.sin(v**2 / (s + r) / 2) / v**2
    return np.sum(_WEIGHTS * end * _alternating_theta(t, s, r) / (s * np.sqrt(gap)), -1)


def _sphere2_far(t, r):
    """The integral for r > pi/2, with pi - s = (pi - r) sin(a): smooth at the antipode."""
    t, r = t[..., None], r[..., None]
    angle = np.pi / 2 * _NODES
    delta = np.pi - r
    # sin(x)/x of half the difference and half the sum of pi - r and pi - s
    gap = _sinc(delta * (1 - np.sin(angle)) / 2) * _sinc(delta * (1 + np.sin(angle)) / 2) / 2
    theta = _alternating_theta(t, np.pi - delta * np.sin(angle), r)
    return np.sum(_WEIGHTS * np.pi / 2 * theta / np.sqrt(gap), -1)


def _sinc(x):
    return np.where(x == 0, 1.0, np.sin(x) / np.where(x == 0, 1.0, x))


def sphere3(t: Array, r: Array) -> Array:
    """The log-density on S^3, for 0 <= r <= pi."""
    early = np.minimum(t, 0.5)
    behind = np.real(r) > np.pi / 2
    near = _sphere3_near(early, np.where(behind, 1.0, r))
    far = _sphere3_far(early, np.where(behind, np.pi - r, 1.0), np.where(behind, r, 2.0))
    images = np.log(np.where(behind, far, near)) - r**2 / (4 * early)
    images = images + early - 1.5 * np.log(4 * np.pi * early)
    late = np.maximum(t, 0.5)
    cosine = np.cos(r)
    total, before, here = 0 * r, np.ones_like(r), 2 * cosine  # sin((l + 1) r) / sin r
    for degree in range(1, 13):
        total = total + (degree + 1) * np.exp(-degree * (degree + 2) * late) * here
        before, here = here, 2 * cosine * here - before
    return np.where(t < 0.5, images, np.log1p(total) - np.log(2 * np.pi**2))


def _sphere3_near(t, r):
    """The image sum over sin r, images taken in pairs +-2 pi k, times exp(r^2 / 4t)."""
    total = 1 / _sinc(r)
    for k in (1, 2, 3):
        center = 2 * np.pi * k
        nearer = np.exp(-(center**2 - 2 * center * r) / (4 * t))
        ratio = -np.expm1(-center * r / t)  # 1 - (farther image) / (nearer image)
        sine = np.where(r == 0, 1.0, np.sin(r))
        difference = np.where(r == 0, center / t, ratio / sine)
        total = total + nearer * ((2 - ratio) / _sinc(r) - center * difference)
    return total


def _sphere3_far(t, delta, r):
    """The same for r near pi: images in pairs +-((2k + 1) pi) around the antipode."""
    total = 0
    for k in range(3):
        center = (2 * k + 1) * np.pi
        scale = np.exp(-(center**2 + delta**2 - r**2 - 2 * center * delta) / (4 * t))
        ratio = -np.expm1(-center * delta / t)
        sine = np.where(delta == 0, 1.0, np.sin(delta))
        difference = np.where(delta == 0, center / t, ratio / sine)
        total = total + scale * (center * difference - (2 - ratio) / _sinc(delta))
    return total


def so3(t: Array, r: Array) -> Array:
    """The log-density on SO(3) at half the rotation angle r, 0 <= r <= pi/2."""
    near, far = sphere3(t, r), sphere3(t, np.pi - r)
    return near + np.log1p(np.exp(far - near))


def hyperbolic3(t: Array, r: Array) -> Array:
    """The log-density on H^3."""
    shape = np.where(r == 0, 1.0, np.sinh(r) / np.where(r == 0, 1.0, r))
    return -1.5 * np.log(4 * np.pi * t) - t - r**2 / (4 * t) - np.log(shape)


def hyperbolic2(t: Array, r: Array) -> Array:
    """The log-density on H^2: McKean's integral with s^2 = r^2 + v^2, e^(-r/2) taken out."""
    constant = np.log(2) / 2 - t / 4 - 1.5 * np.log(4 * np.pi * t) - r**2 / (4 * t) - r / 2
    t, r = t[..., None], r[..., None]
    end = np.sqrt(160 * t)  # beyond it exp(-v^2 / 4t) is lost in rounding
    v = end * _NODES
    s = np.sqrt(r**2 + v**2)
    half = v**2 / (s + r) / 2  # (s - r) / 2
    # (cosh s - cosh r) e^(-r) / v^2, with (s + r)/2 = r + half
    gap = (np.exp(half) - np.exp(-2 * r - half)) * np.sinh(half) / v**2
    return constant + np.log(np.sum(_WEIGHTS * end * np.exp(-(v**2) / (4 * t)) / np.sqrt(gap), -1))
