r"""The heat kernel of the sphere S^n at short times, in float64 NumPy, at every point.

Write the kernel as a Gaussian of the geodesic distance times a remainder,

    p_n(t, r) = (4 pi t)^(-n/2) exp(-r^2 / 4t) exp(V_n(t, r)).

This module computes V_n without cancellation for any n, for t up to about 1 and for every r, the
antipode included.  It is used once, when a kernel is constructed, to fill a table.

With c = cos r the kernels of two dimensions apart are linked by

    p_{n+2} = e^{nt} / (2 pi)  d p_n / dc,

so every odd dimension is a derivative of the circle's kernel (a sum over images of a Gaussian), and
every even dimension a derivative of the Abel integral that gives S^2,

    p_2 = e^{t/4} / (sqrt(2) pi)  int_{-1}^{c}  q'(c') / sqrt(c - c')  dc',
    q(s) = (4 pi t)^(-1/2)  sum_k (-1)^k exp(-(s + 2 pi k)^2 / 4t).

Where p is not much smaller than at the source the series of eigenfunctions is exact and is used.

The derivatives are taken by truncated Taylor series in c.  Near r = 0 the images come in pairs that
are functions of r^2, near the antipode in pairs that are functions of (pi - r)^2, and both squares
are analytic in c there, with Taylor coefficients of one sign: nothing is ever divided by sin r.
"""

import numpy as np
from scipy.special import binom, gammaln, ive

# Images beyond the third are smaller than exp(-12 pi^2 / t) of the sum.
_IMAGES = 3
# Nodes of the Abel integral.  Its integrand is a Gaussian of width sqrt(t / 2) in the angle of the
# nodes, 0.022 at t = 1e-3, against a spacing of 0.016: the periodic midpoint rule is then exact
# to rounding.
_NODES = 96


def log_remainder(n: int, t: np.ndarray, y: np.ndarray) -> np.ndarray:
    """V_n at times `t` and at y = 1 + cos r in [0, 2] (0 is the antipode)."""
    t, y = np.broadcast_arrays(np.asarray(t, float), np.asarray(y, float))
    log_prob, error = _eigenfunction_series(n, t, y - 1)
    r_squared = _angle_squared_from_antipode(y)
    remainder = log_prob + r_squared / (4 * t) + n / 2 * np.log(4 * np.pi * t)
    cancelled = error > 1e-10
    if np.any(cancelled):
        remainder[cancelled] = _by_images(n, t[cancelled], y[cancelled], r_squared[cancelled])
    return remainder


def _eigenfunction_series(n, t, cosine):
    """log p by the sum over eigenfunctions, and an estimate of its rounding error.

    It loses its digits where p is much smaller than at the source, that is far away at early times;
    there the sum over images has them.
    """
    total, size = np.ones_like(t), np.ones_like(t)
    before, here = np.ones_like(t), cosine.copy()
    for degree in range(1, 400):
        multiplicity = binom(degree + n, n) - binom(degree + n - 2, n)
        weight = multiplicity * np.exp(-degree * (degree + n - 1) * t)
        total += weight * here
        size += weight * np.abs(here)
        step = (2 * degree + n - 1) * cosine * here - degree * before
        before, here = here, step / (degree + n - 1)
        if np.all(weight < 1e-18):
            break
    log_volume = np.log(2) + (n + 1) / 2 * np.log(np.pi) - gammaln((n + 1) / 2)
    total = np.abs(total) + 1e-300
    return np.log(total) - log_volume, np.finfo(float).eps * size / total


def _by_images(n, t, y, r_squared):
    """V_n from sums over images, for arrays of one axis."""
    half = (n - 1) / 2
    if n % 2:
        order = (n - 1) // 2
        scaled = _factorial(order) * _circle(t, y, r_squared, order, alternating=False)[order]
        log_constant = -order * np.log(2 * np.pi)
    else:
        order = (n - 2) // 2
        theta = (np.arange(_NODES) + 0.5) * np.pi / (2 * _NODES)
        u = np.sin(theta) ** 2
        integrand = _abel_integrand(t[:, None], y[:, None] * u, r_squared[:, None], order)
        scaled = np.mean(u**order * integrand, axis=1)
        log_constant = np.log(np.pi) - np.log(np.sqrt(2) * np.pi) - order * np.log(2 * np.pi)
    return half**2 * t + half * np.log(4 * np.pi * t) + log_constant + np.log(scaled)


def _circle(t, y, r_squared, order, *, alternating):
    """Taylor coefficients in c of sum_k (+-1)^k exp((r^2 - (s + 2 pi k)^2) / 4t), at y = 1 + c."""
    near, far = y > 1, y <= 1
    out = np.empty((order + 1, *y.shape))
    sign = -1.0 if alternating else 1.0

    # Close to the source: the images k and -k together are 2 exp(-s^2/4t) cosh(pi k s / t).
    time, square = t[near], _taylor_square(2 - y[near], order)
    total = _compose(_gaussian_cosh(time, 0 * time, square[0], order, 0), square)
    total *= np.exp((r_squared[near] - square[0]) / (4 * time))
    for k in range(1, _IMAGES + 1):
        kappa = np.pi * k / time
        series = _compose(_gaussian_cosh(time, kappa, square[0], order, 0), square)
        exponent = r_squared[near] - (2 * np.pi * k - np.sqrt(square[0])) ** 2
        total += 2 * sign**k * series * np.exp(exponent / (4 * time))
    out[:, near] = total * (-1.0) ** np.arange(order + 1)[:, None]  # d/dc = -d/d(1 - c)

    # Close to the antipode: the images k and -k-1 are 2 exp(-d^2/4t) cosh(pi (2k+1) d / 2t),
    # or sinh where the signs alternate; d = pi - s.
    if not alternating:
        time, square = t[far], _taylor_square(y[far], order)
        out[:, far] = _antipodal_images(time, square, r_squared[far], order, 0)
    return out


def _antipodal_images(time, square, r_squared, order, base):
    total = np.zeros((order + 1, *time.shape))
    for k in range(_IMAGES):
        kappa = np.pi * (2 * k + 1) / (2 * time)
        series = _compose(_gaussian_cosh(time, kappa, square[0], order, base), square)
        exponent = r_squared - ((2 * k + 1) * np.pi - np.sqrt(square[0])) ** 2
        factor = 2.0 if base == 0 else 2 * (-1.0) ** k * kappa
        total += factor * series * np.exp(exponent / (4 * time))
    return total


def _abel_integrand(t, y, r_squared, order):
    """The derivative of order `order` of F(y) = sqrt(y) dq/dc, times exp(r^2/4t) sqrt(4 pi t).

    q vanishes at the antipode like the distance from it, so there q = sqrt(y) R(y) with R analytic
    and F = R/2 + y R'.
    """
    t, y, r_squared = np.broadcast_arrays(t, y, r_squared)
    out = np.empty(y.shape)

    far = y <= 1
    time, here = t[far], y[far]
    square = _taylor_square(here, order + 1)
    sinh_part = _antipodal_images(time, square, r_squared[far], order + 1, 1)
    root = _square_root(_taylor_square(here, order + 1, divided=True))
    product = _multiply(root, sinh_part)
    out[far] = _factorial(order) * (
        (0.5 + order) * product[order] + here * (order + 1) * product[order + 1]
    )

    near = ~far
    here = y[near]
    values = _circle(t[near], here, r_squared[near], order + 1, alternating=True)
    slope = values[1:] * np.arange(1, order + 2)[:, None]
    powers = np.arange(order + 1)[:, None]
    root = binom(0.5, powers) * here ** (0.5 - powers)
    out[near] = _factorial(order) * _multiply(root, slope)[order]
    return out


def _gaussian_cosh(t, kappa, square, order, base):
    """Taylor coefficients in X, about X = `square`, of exp(-(X - X0)/4t) h_base(kappa sqrt(X)).

    h_0(z) = cosh z and h_{j+1} = h_j' / z, so h_1(z) = sinh z / z; scaled by exp(-kappa sqrt(X0)).
    """
    z = kappa * np.sqrt(square)
    i = np.arange(order + 1)
    shape = (-1,) + (1,) * t.ndim
    factorials = np.array([_factorial(j) for j in i]).reshape(shape)
    gaussian = (-1 / (4 * t)) ** i.reshape(shape) / factorials
    hyperbolic = np.stack([(kappa**2 / 2) ** j * _scaled_bessel(base + j, z) for j in i])
    return _multiply(gaussian, hyperbolic / factorials)


def _scaled_bessel(j, z):
    """exp(-z) h_j(z) = exp(-z) sqrt(pi/2) z^(1/2 - j) I_{j - 1/2}(z), by its series for small z."""
    if j == 0:
        return (1 + np.exp(-2 * z)) / 2
    large = np.maximum(z, 2.0)
    by_bessel = np.sqrt(np.pi / 2) * large ** (0.5 - j) * ive(j - 0.5, large)
    small = np.minimum(z, 2.0)
    term = np.full(z.shape, 1 / np.prod(np.arange(1.0, 2 * j, 2)))
    series = term.copy()
    for i in range(1, 20):
        term = term * (small**2 / 2) / (i * (2 * j + 2 * i - 1))
        series += term
    return np.where(z < 2, np.exp(-small) * series, by_bessel)


# The square of an angle d as a power series in y = 1 - cos d:
# d^2 = 2 sum_{k>=1} (2y)^k / (k^2 binom(2k, k)), which shrinks by 2 at each term for y <= 1.
_POWERS = np.arange(1, 64)
_SQUARE = 2 * 2.0**_POWERS / (_POWERS**2 * binom(2 * _POWERS, _POWERS))


def _taylor_square(y, order, *, divided=False):
    """Taylor coefficients about `y` <= 1 of d^2 as a function of y = 1 - cos d (or of d^2 / y)."""
    powers = _POWERS - 1 if divided else _POWERS
    out = []
    for i in range(order + 1):
        keep = powers >= i
        coefficients = np.zeros(powers[-1] - i + 1)
        coefficients[powers[keep] - i] = _SQUARE[keep] * binom(powers[keep], i)
        out.append(np.polynomial.polynomial.polyval(y, coefficients))
    return np.stack(out)


def _angle_squared_from_antipode(y):
    """r^2 from y = 1 + cos r, accurate at both ends."""
    near = _taylor_square(np.clip(2 - y, 0, 1), 0)[0]
    far = np.sqrt(_taylor_square(np.clip(y, 0, 1), 0)[0])
    return np.where(y > 1, near, (np.pi - far) ** 2)


def _multiply(a, b):
    """Product of truncated power series, coefficients along the first axis."""
    order = min(len(a), len(b))
    return np.stack([sum(a[i] * b[k - i] for i in range(k + 1)) for k in range(order)])


def _compose(outer, inner):
    """outer(inner(y)), where `outer` holds Taylor coefficients about inner[0]."""
    increment = np.concatenate([np.zeros_like(inner[:1]), inner[1:]])
    result = np.zeros_like(inner)
    for coefficient in outer[::-1]:
        result = _multiply(result, increment)
        result[0] += coefficient
    return result


def _square_root(series):
    root = [np.sqrt(series[0])]
    for k in range(1, len(series)):
        inner = sum(root[i] * root[k - i] for i in range(1, k))
        root.append((series[k] - inner) / (2 * root[0]))
    return np.stack(root)


def _factorial(k: int) -> float:
    return float(np.prod(np.arange(1.0, k + 1)))
