r"""Heat kernels of two surfaces in R^3, written independently of calor: truth for its solvers.

Both are Galerkin solves in double precision of the eigenvalue problem of the Laplacian, in
coordinates of the surface.  The kernel is sum_k exp(-lambda_k t) f_k(x) f_k(x0).

* A torus of revolution separates: exp(i m phi) times a Fourier series in the angle theta.
* An ellipsoid is the image A u of the unit sphere, and the f_k are sums of spherical harmonics in
  u, with the metric of the ellipsoid pulled back.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigh
from scipy.special import sph_harm_y


class TorusOfRevolution:
    """((R + r cos theta) cos phi, (R + r cos theta) sin phi, r sin theta)."""

    big: float
    small: float
    theta_modes: np.ndarray
    levels: list[tuple[np.ndarray, np.ndarray]]
    """Eigenvalues and vectors for each wave."""

    def __init__(
        self, big: float = 2.0, small: float = 1.0, modes: int = 40, waves: int = 40
    ) -> None:
        """Solve with so many Fourier modes in theta and waves in phi."""
        self.big, self.small = big, small
        self.theta_modes = np.arange(-modes, modes + 1)
        nodes = 8 * modes
        theta = 2 * np.pi * np.arange(nodes) / nodes
        rho = big + small * np.cos(theta)
        # Real Fourier series: 1, cos, sin.
        values, slopes = self._series(theta)
        weight = 2 * np.pi / nodes
        mass = values.T @ (values * (small * rho * weight)[:, None])
        stiff = slopes.T @ (slopes * (rho / small * weight)[:, None])
        twist = values.T @ (values * (small / rho * weight)[:, None])
        self.levels = [eigh(stiff + m**2 * twist, mass) for m in range(waves + 1)]

    def _series(self, theta):
        k = np.arange(1, self.theta_modes.max() + 1)
        angles = np.asarray(theta)[:, None] * k
        one = np.ones((len(angles), 1))
        values = np.concatenate([one, np.cos(angles), np.sin(angles)], axis=1)
        slopes = np.concatenate([0 * one, -k * np.sin(angles), k * np.cos(angles)], axis=1)
        return values, slopes

    @property
    def volume(self) -> float:
        """The area."""
        return 4 * np.pi**2 * self.big * self.small

    def angles(self, x: Float[np.ndarray, "n 3"]) -> tuple[np.ndarray, np.ndarray]:
        """theta and phi of points (n, 3)."""
        x = np.asarray(x, float)
        theta = np.arctan2(x[:, 2], np.hypot(x[:, 0], x[:, 1]) - self.big)
        return theta, np.arctan2(x[:, 1], x[:, 0])

    def log_prob_and_score(
        self, t: float, x: Float[np.ndarray, "n 3"], x0: Float[np.ndarray, "n 3"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """At points (n, 3), from sources (n, 3)."""
        (theta, phi), (theta0, phi0) = self.angles(x), self.angles(x0)
        (f, slope), (f0, _) = self._series(theta), self._series(theta0)
        p, by_theta, by_phi = 0.0, 0.0, 0.0
        for m, (eigenvalues, vectors) in enumerate(self.levels):
            damped = np.exp(-eigenvalues * t) * (1 if m == 0 else 2) / (2 * np.pi)
            source = (f0 @ vectors) * damped
            along = np.sum((f @ vectors) * source, axis=1)
            wave = np.cos(m * (phi - phi0))
            p = p + wave * along
            by_theta = by_theta + wave * np.sum((slope @ vectors) * source, axis=1)
            by_phi = by_phi - m * np.sin(m * (phi - phi0)) * along
        rho = self.big + self.small * np.cos(theta)
        up = np.stack([-np.sin(theta) * np.cos(phi), -np.sin(theta) * np.sin(phi), np.cos(theta)])
        around = np.stack([-np.sin(phi), np.cos(phi), 0 * phi])
        score = by_theta / p / self.small * up + by_phi / p / rho * around
        return np.log(p), score.T


class Ellipsoid:
    """{x : |x / axes| = 1}."""

    axes: np.ndarray
    degree: int
    volume: float
    eigenvalues: np.ndarray
    vectors: np.ndarray

    def __init__(self, axes: Sequence[float] = (0.8, 1.1, 1.4), degree: int = 24) -> None:
        """Solve with spherical harmonics up to a degree."""
        self.axes, self.degree = np.asarray(axes, float), degree
        heights, weights = np.polynomial.legendre.leggauss(4 * degree)
        turns = 2 * np.pi * np.arange(8 * degree) / (8 * degree)
        polar, azimuth = (a.ravel() for a in np.meshgrid(np.arccos(heights), turns, indexing="ij"))
        area = np.repeat(weights, len(turns)) * 2 * np.pi / len(turns)
        values, d_polar, d_azimuth = self._harmonics(polar, azimuth)
        e, f, g = self._metric(polar, azimuth)
        root = np.sqrt(e * g - f**2)  # of the coordinates; on the unit sphere it is sin(polar)
        area = area * root / np.sin(polar)
        self.volume = float(np.sum(area))
        mass = values.T @ (values * area[:, None])
        stiff = (
            d_polar.T @ (d_polar * (area * g / root**2)[:, None])
            + d_azimuth.T @ (d_azimuth * (area * e / root**2)[:, None])
            - d_polar.T @ (d_azimuth * (area * f / root**2)[:, None])
            - d_azimuth.T @ (d_polar * (area * f / root**2)[:, None])
        )
        self.eigenvalues, self.vectors = eigh(stiff, mass)

    def _directions(self, polar, azimuth):
        u = np.stack(
            [np.sin(polar) * np.cos(azimuth), np.sin(polar) * np.sin(azimuth), np.cos(polar)]
        )
        by_polar = np.stack(
            [np.cos(polar) * np.cos(azimuth), np.cos(polar) * np.sin(azimuth), -np.sin(polar)]
        )
        by_azimuth = np.stack(
            [-np.sin(polar) * np.sin(azimuth), np.sin(polar) * np.cos(azimuth), 0 * polar]
        )
        return u, by_polar, by_azimuth

    def _metric(self, polar, azimuth):
        _, a, b = self._directions(polar, azimuth)
        a, b = a * self.axes[:, None], b * self.axes[:, None]
        return np.sum(a * a, 0), np.sum(a * b, 0), np.sum(b * b, 0)

    def _harmonics(self, polar, azimuth):
        """Real harmonics and their derivatives in the two angles."""
        columns = []
        for degree in range(self.degree + 1):
            for order in range(degree + 1):
                y, slopes = sph_harm_y(degree, order, polar, azimuth, diff_n=1)
                columns.append((y.real, slopes[..., 0].real, slopes[..., 1].real))
                if order:
                    columns.append((y.imag, slopes[..., 0].imag, slopes[..., 1].imag))
        return tuple(np.stack(part, axis=1) for part in zip(*columns, strict=True))

    def log_prob_and_score(
        self, t: float, x: Float[np.ndarray, "n 3"], x0: Float[np.ndarray, "n 3"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """At points (n, 3), from sources (n, 3)."""
        u, u0 = (np.asarray(y, float) / self.axes for y in (x, x0))
        polar, azimuth = np.arccos(np.clip(u[:, 2], -1, 1)), np.arctan2(u[:, 1], u[:, 0])
        polar0, azimuth0 = np.arccos(np.clip(u0[:, 2], -1, 1)), np.arctan2(u0[:, 1], u0[:, 0])
        values, d_polar, d_azimuth = self._harmonics(polar, azimuth)
        source = self._harmonics(polar0, azimuth0)[0] @ self.vectors
        source = (source * np.exp(-self.eigenvalues * t)) @ self.vectors.T
        p = np.sum(values * source, axis=1)
        slope = np.stack([np.sum(d_polar * source, 1), np.sum(d_azimuth * source, 1)]) / p
        e, f, g = self._metric(polar, azimuth)
        raised = np.stack([g * slope[0] - f * slope[1], e * slope[1] - f * slope[0]])
        raised = raised / (e * g - f**2)
        _, a, b = self._directions(polar, azimuth)
        score = (raised[0] * a + raised[1] * b) * self.axes[:, None]
        return np.log(p), score.T
