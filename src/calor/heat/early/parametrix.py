r"""The short-time expansion of the heat kernel in constant curvature, in exact arithmetic.

    p = G_t (u_0 + u_1 t + u_2 t^2 + ...),   G_t = (4 pi t)^(-n/2) exp(-r^2 / 4t),   u_0 = D^(-1/2),
    u_k = u_0 r^(-k) int_0^r s^(k-1) (Delta u_{k-1} / u_0) ds,

the Minakshisundaram-Pleijel recursion, equation (parametrix-recursion) of the paper, with
D = (sin r / r)^(n-1) on the sphere and (sinh r / r)^(n-1) in hyperbolic space.  All u_k are even
power series in r with rational coefficients.  Each application of the Laplacian costs one
coefficient; the recursion carries spare ones, so that no coefficient it returns is truncated (the
paper's printed r^8 term of u_2 and r^6, r^8 terms of u_3 are).
"""

import functools
import math
from fractions import Fraction


@functools.cache
def parametrix(
    dim: int, curvature: int, order: int, terms: int
) -> tuple[tuple[Fraction, ...], ...]:
    """The ratios w_k = u_k / u_0, k = 0, ..., `order`, each as `terms` coefficients of r^(2j).

    Args:
        dim: dimension n of the space.
        curvature: 1 for the unit sphere, -1 for hyperbolic space.
        order: highest power of t.
        terms: number of exact coefficients to return.
    """
    length = terms + order
    # log(sin r / r) = sum of -2^(2k) |B_2k| / (2k (2k)!) r^(2k); its derivative times r gives rcot.
    sinc = [Fraction((-curvature) ** k, math.factorial(2 * k + 1)) for k in range(length + 1)]
    slope = _divide([2 * k * c for k, c in enumerate(sinc)], sinc)  # r (log sinc)'
    half = Fraction(dim - 1, 2)
    # With u = u_0 w:  Delta u / u_0 = w'' + (n-1)/r w' + (Delta u_0 / u_0) w, because the terms
    # with D' cancel; Delta u_0 / u_0 = -W is found by the same rule from u_0 itself.
    a = [-half * s for s in slope]  # r u_0' / u_0
    potential = _over_r_squared(
        _add(
            [(2 * k - 1) * c for k, c in enumerate(a)],  # r^2 (u_0'/u_0)'
            _multiply(a, a),  # r^2 (u_0'/u_0)^2
            _multiply([(dim - 1) * (Fraction(k == 0) + s) for k, s in enumerate(slope)], a),
        )
    )
    ratios = [[Fraction(k == 0) for k in range(length)]]
    for k in range(1, order + 1):
        w = ratios[-1]
        # r^2 (w'' + (n-1)/r w') on r^(2j): 2j (2j - 1) + (n - 1) 2j
        flat = _over_r_squared([2 * j * (2 * j + dim - 2) * c for j, c in enumerate(w)])
        laplacian = _add(flat, _multiply(potential, w)[: len(flat)])
        ratios.append([c / (2 * j + k) for j, c in enumerate(laplacian)])
    return tuple(tuple(w[:terms]) for w in ratios)


def _add(*series):
    length = min(len(s) for s in series)
    return [sum((s[k] for s in series), Fraction(0)) for k in range(length)]


def _multiply(a, b):
    length = min(len(a), len(b))
    return [sum((a[i] * b[k - i] for i in range(k + 1)), Fraction(0)) for k in range(length)]


def _divide(a, b):
    quotient = []
    for k in range(min(len(a), len(b))):
        known = sum((quotient[i] * b[k - i] for i in range(k)), Fraction(0))
        quotient.append((a[k] - known) / b[0])
    return quotient


def _over_r_squared(series):
    if series[0] != 0:
        raise ArithmeticError("the series does not vanish at the origin")
    return series[1:]
