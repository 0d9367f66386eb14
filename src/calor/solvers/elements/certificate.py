r"""How accurate a kernel on elements is: it is compared with another solution of lower order.

The kernel as it is used, in single precision and with its own search for triangles, is compared
with one on elements of a lower order, in double precision, at points of quadrature whose triangles
are known.  The lower order is the far poorer one, so that their difference says more than the error
of the kernel.  What both leave out is the end of the series: by the inequality of Cauchy and
Schwarz and Weyl's law of the eigenvalues it is at most about

    sum_{k > K} exp(-lambda_k t) |f_k(x) f_k(x0)|  <=  exp(-lambda_K t) / (4 pi t).

Rounding and the end of the series are as large everywhere, so far from x0 where p is small log p is
known less well: errors are told apart by how far p is below its top p(t, x0 | x0).
"""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ...heat.certificate import AbstractCertificate
from ...manifolds import AbstractManifold
from ...store.stored import stored

# What densities are told apart by, relative to their top.
LEVELS = (1e-2, 1e-4, 1e-6)
# Which of them bounds speak of.
_SPOKEN = 1


@stored("MeasuredLaw")
class MeasuredLaw(AbstractCertificate):
    """What a law for small times differs by from a series, where both hold.

    The law leaves out terms of second order in t, so earlier its error falls with the square of t,
    and that of its score too, which itself grows as t falls.
    """

    manifold: AbstractManifold
    times: tuple[float, ...] = eqx.field(static=True)
    largest: tuple[float, ...] = eqx.field(static=True)
    """The largest |error of log p| at draws."""
    mean: tuple[float, ...] = eqx.field(static=True)
    """The mean |error of log p| at draws."""
    score: tuple[float, ...] = eqx.field(static=True)
    """The root mean square error of the score at draws, relative to its size."""
    points: int = eqx.field(static=True)
    t0: float = eqx.field(static=True, default=0.0)
    earlier: AbstractCertificate | None = None

    @property
    def law(self) -> str:
        """From what law the points were drawn."""
        return "draws of the law"

    def bound(self, t: float) -> float:
        """The largest |error of log p| at draws, about."""
        return self._at(t, self.largest)

    def estimate(self, t: float) -> float:
        """The mean |error of log p| at draws, about."""
        return self._at(t, self.mean)

    def _at(self, t, values):
        t = float(t)
        if not t > 0:
            raise ValueError(f"Certificate: the time t must be positive, got t = {t:g}.")
        if t > self.times[-1] * (1 + 1e-6):
            return float("inf")
        if t < self.times[0]:
            return values[0] * (t / self.times[0]) ** 2
        return float(np.exp(np.interp(np.log(t), np.log(self.times), np.log(values))))

    def typical(self) -> float:
        """The largest mean."""
        return max(self.mean)

    def curves(self) -> dict[str, tuple[float, ...]]:
        """Errors at draws."""
        return {"largest error at draws": self.largest, "mean error at draws": self.mean}

    def record(self) -> dict[str, Any]:
        """All of it, as JSON."""
        rows = ("times", "largest", "mean", "score")
        return {"points": self.points, **{name: list(getattr(self, name)) for name in rows}}

    def __str__(self) -> str:
        lines = ["the law for small times, against the series at its own draws:"]
        for i, t in enumerate(self.times):
            errors = self.largest[i], self.mean[i], self.score[i]
            lines.append(f"{t:8.3g} " + " ".join(f"{error:9.1e}" for error in errors))
        return "\n".join(lines)


@stored("ElementCertificate")
class ElementCertificate(AbstractCertificate):
    """Errors by time."""

    manifold: AbstractManifold
    t0: float = eqx.field(static=True)
    times: tuple[float, ...] = eqx.field(static=True)
    largest: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    """The largest |error of log p| where p is above each level, level by level."""
    mean: tuple[float, ...] = eqx.field(static=True)
    """The mean |error of log p| over Brownian motion."""
    score: tuple[float, ...] = eqx.field(static=True)
    """The root mean square error of the score over Brownian motion, relative to its size."""
    points: int = eqx.field(static=True)
    elements: int = eqx.field(static=True)
    """The number of triangles."""
    nodes: int = eqx.field(static=True)
    functions: int = eqx.field(static=True)
    """The number of eigenfunctions."""
    area_error: float = eqx.field(static=True)
    """Of the area, relative to it."""
    method: str = eqx.field(static=True)
    """How it was solved, in words."""
    earlier: AbstractCertificate | None = None

    @property
    def law(self) -> str:
        """From what law the points were drawn."""
        return "uniform, means weighted by the density"

    def bound(self, t: float) -> float:
        """The largest |error of log p| at time t where p is above 1e-4 of its top."""
        if self._is_early(t):
            return self.earlier.bound(t)  # pyright: ignore
        return self._at(t, self.largest[_SPOKEN])

    def estimate(self, t: float) -> float:
        """The mean |error of log p| at time t over Brownian motion."""
        if self._is_early(t):
            return self.earlier.estimate(t)  # pyright: ignore
        return self._at(t, self.mean)

    def _is_early(self, t):
        if not float(t) > 0:
            raise ValueError(f"Certificate: the time t must be positive, got t = {t:g}.")
        return self.earlier is not None and t < self.t0

    def _at(self, t, values):
        return float(np.exp(np.interp(np.log(t), np.log(self.times), np.log(values))))

    def since(
        self, t0: float, largest: float, mean: float, score: float, law: MeasuredLaw
    ) -> "ElementCertificate":
        """The same with a series that begins earlier, where it was compared with a law."""
        if t0 >= self.times[0]:
            return dataclasses.replace(self, earlier=law)
        return dataclasses.replace(
            self,
            t0=t0,
            times=(t0, *self.times),
            largest=tuple((max(largest, row[0]), *row) for row in self.largest),
            mean=(max(mean, self.mean[0]), *self.mean),
            score=(max(score, self.score[0]), *self.score),
            earlier=law,
        )

    def after(self, t: float, earlier: AbstractCertificate) -> "ElementCertificate":
        """The same from a later time on; below it, what another certificate says."""
        times = (float(t), *(time for time in self.times if time > t))
        at = lambda row: tuple(np.interp(times, self.times, row).tolist())
        largest = tuple(map(at, self.largest))
        rows = {"largest": largest, "mean": at(self.mean), "score": at(self.score)}
        return dataclasses.replace(self, t0=times[0], times=times, earlier=earlier, **rows)

    def typical(self) -> float:
        """The largest mean."""
        return max(self.mean)

    def curves(self) -> dict[str, tuple[float, ...]]:
        """Errors where p is above each level."""
        names = [f"largest error where p > {level:g} of its top" for level in LEVELS]
        return dict(zip(names, self.largest, strict=True))

    def record(self) -> dict[str, Any]:
        """All of it, as JSON."""
        plain = ("t0", "points", "elements", "nodes", "functions", "area_error", "method", "law")
        return {
            "manifold": str(self.manifold),
            **{name: getattr(self, name) for name in plain},
            "poor": self.poor,
            "levels": list(LEVELS),
            **{name: list(getattr(self, name)) for name in ("times", "largest", "mean", "score")},
            "bound": [self.bound(t) for t in self.times],
            "law for small times": None if self.earlier is None else self.earlier.record(),
        }

    def __str__(self) -> str:
        lines = [
            f"Certificate of the heat kernel of {self.manifold}",
            f"{self.method}: {self.elements} curved triangles, {self.nodes} nodes, "
            f"{self.functions} eigenfunctions; area right to {self.area_error:.0e}",
            "errors of log p where p is above a part of its top, and over Brownian motion; of the "
            "score, relative",
            "",
            f"{'t':>8} "
            + " ".join(f"{f'> {level:g}':>9}" for level in LEVELS)
            + f" {'mean':>9} {'score':>9}",
        ]
        for i, t in enumerate(self.times):
            errors = " ".join(f"{level[i]:9.1e}" for level in self.largest)
            lines.append(f"{t:8.3g} {errors} {self.mean[i]:9.1e} {self.score[i]:9.1e}")
        lines += self.below()
        if self.poor:
            lines += ["", f"Poor: {self.poor}."]
        return "\n".join(lines)


class Table(NamedTuple):
    """Eigenvalues, and values and gradients of eigenfunctions at some points."""

    eigenvalues: Float[np.ndarray, " k"]
    values: Float[np.ndarray, "n k"]
    """What is computed of them has their precision."""
    gradients: Float[np.ndarray, "n N k"]

    def at(self, t: float, source: int) -> tuple[np.ndarray, np.ndarray]:
        """The density that came from one of the points at all of them, and its gradient."""
        damped = np.exp(-self.eigenvalues * t).astype(self.values.dtype) * self.values[source]
        return self.values @ damped, self.gradients @ damped


def errors(
    kernel: Table, other: Table, times: np.ndarray, sources: int, smallest: float
) -> dict[str, Any]:
    """The errors by time of a kernel, from another one at the same points, the first as sources."""
    largest = np.zeros((len(LEVELS), len(times)))
    means, scores = np.zeros(len(times)), np.zeros(len(times))
    last = float(other.eigenvalues[-1])
    for i, t in enumerate(times):
        left_out = np.exp(-last * t) / (4 * np.pi * t)
        weight = sizes = offs = gaps = 0.0
        for source in range(sources):
            (p, slope), (true, true_slope) = kernel.at(t, source), other.at(t, source)
            top = true[source]
            sure = np.maximum(true, smallest * top)
            error = np.abs(np.log(np.maximum(p, smallest * top) / sure)) + left_out / sure
            for level, least in enumerate(LEVELS):
                found = error[true >= least * top].max(initial=0.0)
                largest[level, i] = max(largest[level, i], found)
            mass = np.maximum(true, 0.0)
            score = true_slope / sure[:, None]
            off = slope / np.maximum(p, smallest * top)[:, None] - score
            weight, gaps = weight + mass.sum(), gaps + mass @ error
            offs, sizes = offs + mass @ (off**2).sum(1), sizes + mass @ (score**2).sum(1)
        means[i], scores[i] = gaps / weight, np.sqrt(offs / sizes)
    floor = np.finfo(np.float32).eps
    return {
        "largest": tuple(tuple(np.maximum(row, floor).tolist()) for row in largest),
        "mean": tuple(np.maximum(means, floor).tolist()),
        "score": tuple(np.maximum(scores, floor).tolist()),
    }
