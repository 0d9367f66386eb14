r"""Certificates: how accurate a solved kernel is, measured at points that training never saw.

Let phi be a solution with residual R = dphi/dt - Delta phi - |grad phi|^2, and let e be its error
at t0.  By the Feynman-Kac formula its error at (t, x) is, exactly,

    phi - log p = log E exp( e(Y_t0) + int_t0^t R(s, Y_s) ds ),

Y being Brownian motion on its way from x0 to x.  So with e and R bounded by eps_B and eps_R(s),

    |phi - log p| <= eps_B + int_t0^t eps_R(s) ds,                                          (bound)

which is theorem C.3 of the paper with the residual resolved in time.  The mean of |R| over Brownian
motion in place of its maximum estimates the typical error.

What is measured is the largest residual among finitely many points: the bound speaks of the region
that they fill, not of what lies beyond it.

The law along shot geodesics is measured in the same way, as a solution that is exact as t -> 0.
"""

import dataclasses
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import equinox as eqx
import numpy as np

from ..manifolds import AbstractManifold
from ..store.stored import stored

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Half of the points of a certificate are Brownian motion at time t, half at this multiple of t.
FURTHER = 1.5
# How many times, equally spaced on a logarithmic scale.
TIMES = 12
# A kernel whose typical error may exceed this, for each point of a cloud, is called poor.
POOR = 0.05


class AbstractCertificate(eqx.Module):
    """How accurate a kernel is at some times, by whatever it was measured."""

    manifold: eqx.AbstractVar[AbstractManifold]
    t0: eqx.AbstractVar[float]
    """Where the solution begins."""
    times: eqx.AbstractVar[tuple[float, ...]]
    """When it was measured."""
    points: eqx.AbstractVar[int]
    """The number of points at each time."""
    earlier: eqx.AbstractVar[Optional["AbstractCertificate"]]
    """Of what speaks below t0, if that was measured too."""

    @property
    @abstractmethod
    def law(self) -> str:
        """From what law the points were drawn."""

    @abstractmethod
    def bound(self, t: float) -> float:
        """The bound on |error of log p| at time t."""

    @abstractmethod
    def estimate(self, t: float) -> float:
        """The typical error of log p at time t."""

    @abstractmethod
    def typical(self) -> float:
        """The largest of the typical errors of log p at all times from t0 on."""

    @abstractmethod
    def curves(self) -> dict[str, tuple[float, ...]]:
        """What was measured, by name, at the times; for a picture."""

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """All of it, as JSON."""

    @property
    def poor(self) -> str | None:
        """What is wrong with a kernel that should not be trusted, or nothing."""
        error = self.typical()
        # The points of a cloud move like the factors of a product, whose errors add up.
        allowed = POOR * self.manifold.parts()
        if error <= allowed:
            return None
        return (
            f"log p on {self.manifold} may be off by {error:.2g} (more than {allowed:g}): it was "
            "trained too little, or solved too coarsely; see its certificate"
        )

    def below(self) -> list[str]:
        """What speaks below t0, in words."""
        if self.earlier is None:
            return []
        t, law = self.earlier.times[-1], self.earlier
        return [
            "",
            f"below t = {self.t0:g} a law for small times speaks: estimate "
            f"{law.estimate(t / 2):.1e} at t = {t / 2:.3g}, {law.estimate(t):.1e} at t = {t:.3g}",
        ]

    def plot(self, axes: "Axes | None" = None) -> "Figure":
        """Draw what was measured, estimate and bound against time; returns the figure."""
        from ..plots import certificate

        return certificate(self, axes)


@stored("Certificate")
class Certificate(AbstractCertificate):
    """Initial error, residuals by time, and what follows from them."""

    manifold: AbstractManifold
    t0: float = eqx.field(static=True)
    initial_error: float = eqx.field(static=True)
    """The largest |phi - log p| at t0; zero if the solution is exact as t -> 0."""
    times: tuple[float, ...] = eqx.field(static=True)
    largest: tuple[float, ...] = eqx.field(static=True)
    """The largest |R| at each time."""
    mean: tuple[float, ...] = eqx.field(static=True)
    """The mean |R| over Brownian motion at each time."""
    normalized: tuple[float, ...] = eqx.field(static=True)
    """The mean of |R| over the largest term of the equation, as in the paper's table."""
    log_mass: tuple[float, ...] = eqx.field(static=True)
    """The logarithm of the total mass at each time."""
    radius: tuple[float, ...] = eqx.field(static=True)
    """The distance from x0 that the points reach at each time."""
    points: int = eqx.field(static=True)
    initial_mean: float | None = eqx.field(static=True, default=None)
    """The mean of |phi - log p| at t0, if it was measured."""
    earlier: AbstractCertificate | None = None

    @property
    def law(self) -> str:
        """From what law the points were drawn."""
        return f"half Brownian motion at time t, half at time {FURTHER:g} t"

    @property
    def residual(self) -> float:
        """The largest residual at all times."""
        return float(np.max(self.largest))

    def bound(self, t: float) -> float:
        """The bound on |error of log p| at time t, for points as near as those of the certificate.

        Infinite beyond the last time; below t0 it is the one of the short-time law if that was
        measured, else the initial error.
        """
        if self.earlier is not None and t < self.t0:
            return self.earlier.bound(t)
        return self._accumulated(t, self.initial_error, self.largest)

    def estimate(self, t: float) -> float:
        """The typical error of log p at time t: the bound with mean residuals."""
        if self.earlier is not None and t < self.t0:
            return self.earlier.estimate(t)
        first = self.initial_error if self.initial_mean is None else self.initial_mean
        return self._accumulated(t, first, self.mean)

    def after(self, t: float, earlier: AbstractCertificate) -> "Certificate":
        """The same solution from a later time on; below it, what another certificate says."""
        t = float(t)
        first = {"initial_error": self.bound(t), "initial_mean": self.estimate(t)}
        times = (t, *(time for time in self.times if time > t))
        return dataclasses.replace(self, t0=t, earlier=earlier, **first, **self._at(times))

    def until(self, t: float) -> "Certificate":
        """The same solution up to a time, or to its end."""
        t = min(float(t), self.times[-1])
        return dataclasses.replace(self, **self._at((*(s for s in self.times if s < t), t)))

    def _at(self, times):
        """What was measured, interpolated to other times."""
        rows = ("largest", "mean", "normalized", "log_mass", "radius")
        found = {
            row: tuple(np.interp(times, self.times, getattr(self, row)).tolist()) for row in rows
        }
        return {"times": times, **found}

    def _accumulated(self, t, first, residuals):
        t = float(t)
        if not t > 0:
            raise ValueError(f"Certificate: the time t must be positive, got t = {t:g}.")
        if t > self.times[-1] * (1 + 1e-6):
            return float("inf")
        # Piecewise linear between the times, constant before the first.
        grid = np.unique(np.clip([self.t0, *self.times, t], self.t0, max(t, self.t0)))
        values = np.interp(grid, self.times, residuals)
        return first + float(np.trapezoid(values, grid))

    def typical(self) -> float:
        """The last one: errors add up."""
        return self.estimate(float(self.times[-1]))

    def curves(self) -> dict[str, tuple[float, ...]]:
        """Residuals."""
        return {"largest residual": self.largest, "mean residual": self.mean}

    def record(self) -> dict[str, Any]:
        """All of it, as JSON."""
        rows = ("times", "largest", "mean", "normalized", "log_mass", "radius")
        return {
            "manifold": str(self.manifold),
            "initial_error": self.initial_error,
            "t0": self.t0,
            "points": self.points,
            "law": self.law,
            "poor": self.poor,
            **{name: list(getattr(self, name)) for name in rows},
            "bound": [self.bound(t) for t in self.times],
        }

    def __str__(self) -> str:
        lines = [
            f"Certificate of the heat kernel of {self.manifold}",
            f"initial error {self.initial_error:.1e} at t = {self.t0:g}; {self.points} points at "
            f"each time, {self.law}",
            "",
            f"{'t':>7} {'reach':>7} {'max |R|':>9} {'mean |R|':>9} {'normalized':>10} "
            f"{'mass - 1':>9} {'estimate':>9} {'bound':>9}",
        ]
        for i, t in enumerate(self.times):
            lines.append(
                f"{t:7.3g} {self.radius[i]:7.2f} {self.largest[i]:9.1e} {self.mean[i]:9.1e} "
                f"{self.normalized[i]:10.1e} {np.expm1(self.log_mass[i]):9.1e} "
                f"{self.estimate(t):9.1e} {self.bound(t):9.1e}"
            )
        lines += self.below()
        if self.poor:
            lines += ["", f"Poor: {self.poor}."]
        return "\n".join(lines)


class Column(NamedTuple):
    """What is kept of one time."""

    largest: float
    mean: float
    normalized: float
    signed: float
    radius: float


def column(residual: np.ndarray, normalized: np.ndarray, reach: np.ndarray) -> Column:
    """Of residuals, the same relative to terms, and distances: the even points are Brownian motion.

    The odd ones are where it is later.
    """
    at_t = residual[::2]
    parts = np.max(np.abs(residual)), np.mean(np.abs(at_t)), np.mean(normalized[::2])
    return Column(*map(float, (*parts, np.mean(at_t), np.max(reach))))


def assembled(
    manifold: AbstractManifold,
    t0: float,
    times: np.ndarray,
    columns: list[Column],
    points: int,
    *,
    log_mass: float | np.ndarray = 0.0,
    **parts: Any,
) -> Certificate:
    """A certificate from the columns of all times.

    Args:
        manifold: where the kernel lives.
        t0: where the solution begins.
        times: of the columns.
        columns: what was measured.
        points: the number of points at each time.
        log_mass: the logarithm of the mass at t0, or at all times if it was measured there.
        **parts: the other fields of the certificate.
    """
    rows = dict(zip(Column._fields, np.array(columns).T, strict=True))
    signed = rows.pop("signed")
    if np.ndim(log_mass) == 0:
        # The logarithm of the mass changes at the rate of the mean residual over the kernel.
        grid = np.concatenate([[t0], times])
        rates = np.interp(grid, times, signed)
        log_mass = log_mass + np.cumsum(np.diff(grid) * (rates[1:] + rates[:-1]) / 2)
    rows = {"times": times, "log_mass": np.asarray(log_mass), **rows}
    parts |= {name: tuple(row.tolist()) for name, row in rows.items()}
    return Certificate(manifold=manifold, t0=t0, points=points, **parts)
