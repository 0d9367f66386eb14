"""What a manifold is to calor: an abstract class of geometric verbs, each for one point.

To write a new manifold, subclass `AbstractManifold` and supply the methods marked abstract; each
receives checked arrays of the manifold's `shape`.  The public verbs below check their input and
call them.  Batches are made by `jax.vmap`.
"""

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from ..core.checks import field_values, is_concrete, random_key, real_array
from ..core.numerics import safe_sqrt
from ..core.types import Key, Point, Scalar, ScalarField, Tangent, VectorField
from . import calculus

# How far off the manifold a point may be before a public verb refuses it.  A file with four
# decimals is inside, a vector that was never normalized is not.
TOLERANCE = 1e-4


class AbstractManifold(eqx.Module):
    """A Riemannian manifold, its points given in ambient coordinates of a fixed `shape`."""

    dim: eqx.AbstractVar[int]
    """Dimension of the manifold."""
    shape: eqx.AbstractVar[tuple[int, ...]]
    """Shape of the array that holds one point."""

    # What a manifold supplies.

    @abstractmethod
    def exp_at(self, x: Point, v: Tangent) -> Point:
        """The point reached after unit time by the geodesic from x with velocity v."""

    @abstractmethod
    def log_at(self, x: Point, y: Point) -> Tangent:
        """The velocity at x of a shortest geodesic that reaches y after unit time."""

    @abstractmethod
    def dist_at(self, x: Point, y: Point) -> Scalar:
        """The geodesic distance."""

    @abstractmethod
    def inner_at(self, x: Point, u: Tangent, v: Tangent) -> Scalar:
        """The metric at x, as a smooth function of ambient arrays."""

    @abstractmethod
    def project_at(self, x: Point) -> Point:
        """A nearest point of the manifold."""

    @abstractmethod
    def tangent_at(self, x: Point, v: Tangent) -> Tangent:
        """The orthogonal projection of an ambient vector to the tangent space at x."""

    @abstractmethod
    def offset_at(self, x: Point) -> Scalar:
        """How far x is from the manifold (zero on it)."""

    @abstractmethod
    def draw_point(self, key: Key) -> Point:
        """A random point: uniform if the manifold is compact, else around its origin."""

    @abstractmethod
    def draw_tangent(self, key: Key, x: Point) -> Tangent:
        """A standard Gaussian tangent vector at x."""

    @abstractmethod
    def frame(self, x: Point) -> Float[Array, "m ..."]:
        """Tangent vectors e_j at x, along the first axis, with sum_j e_j e_j^T = g^{-1}."""

    @abstractmethod
    def coordinate_laplacian(self, x: Point) -> Tangent:
        """Delta x: the Laplacian of each ambient coordinate, as an ambient vector at x."""

    def along_frame(self, x: Point, coefficients: Float[Array, " m"]) -> Tangent:
        """The tangent vector with such coefficients in the frame."""
        return jnp.tensordot(coefficients, self.frame(x), axes=1)

    def slopes_along_frame(self, x: Point, slope: Float[Array, "..."]) -> Float[Array, " m"]:
        """What a function with such a gradient in ambient space changes by along the frame."""
        return jnp.tensordot(self.frame(x), slope, axes=slope.ndim)

    def basis(self, x: Point) -> Float[Array, "m ..."]:
        """As `frame`, with as few vectors as there can be; it need not be smooth in x."""
        return self.frame(x)

    # What a network sees of a manifold, and says of it; a manifold may know better.

    def step_at(self, x: Point, v: Tangent) -> Point:
        """`exp_at` of a vector that is not long, on the manifold up to rounding."""
        return self.project_at(self.exp_at(x, v))

    def embedding(self, x: Point) -> Float[Array, " d"]:
        """x in a flat space, smooth, neighbouring points about as far apart as they are."""
        return x.ravel()

    def lookalikes(self, x: Point) -> Float[Array, "g ..."]:
        """The arrays that stand for the point x but that `embedding` and `frame` tell apart."""
        return x[None]

    def code_size(self) -> int:
        """How many numbers `decode` takes."""
        return math.prod(self.shape)

    def decode(self, code: Float[Array, " c"]) -> Point:
        """A point from any numbers; every point comes from some."""
        return self.project_at(code.reshape(self.shape))

    def spectral_gap(self) -> float:
        """The smallest positive eigenvalue of -Delta; zero if there is none or it is not known."""
        return 0.0

    def is_compact(self) -> bool:
        """Whether it has a volume and a uniform law, which `draw_point` draws from."""
        return False

    def log_volume(self) -> Scalar:
        """Logarithm of the total Riemannian volume, if it is compact."""
        raise ValueError(f"{self} is not compact: it has no volume.")

    def covering(self) -> "AbstractManifold":
        """The manifold that covers it with finite orbits: itself, unless it is a quotient."""
        return self

    def orbit(self, x: Point) -> Float[Array, "g ..."]:
        """All points of the covering manifold that are the point x, along the first axis."""
        return x[None]

    def curved_from(self) -> float:
        """The time from which noise feels negative curvature most of all; infinite if never."""
        return math.inf

    def injectivity_radius(self) -> float:
        """Within this distance geodesics are shortest; infinite: as far as is known."""
        return math.inf

    def has_distortion(self) -> bool:
        """Whether `log_and_distortion` is known, and the `injectivity_radius` with it."""
        return False

    def log_and_distortion(self, x: Point, y: Point) -> tuple[Tangent, Scalar]:
        """`log_at(x, y)`, and log D: how the exponential map at x distorts volume there."""
        raise ValueError(f"{self} does not know how its exponential map distorts volume.")

    def constant_curvature(self) -> int | None:
        """The sectional curvature, if it is the same everywhere: 1, 0 or -1."""
        return None

    def coordinate_count(self) -> int:
        """The number of kernel coordinates, which a symmetric space has; else zero."""
        return 0

    def has_unordered_coordinates(self) -> bool:
        """Whether there are several kernel coordinates that come in no order, as eigenvalues do."""
        return False

    def parts(self) -> int:
        """How many parts move like factors of a product, so that errors of log p add up."""
        return 1

    def moves_to_origin(self) -> bool:
        """Whether isometries take any point to the origin, `to_origin` and `from_origin`."""
        return False

    def to_origin(self, x: Point, centre: Point) -> Point:
        """x after the isometry that takes a centre to the origin."""
        raise ValueError(f"{self} has no isometries to an origin.")

    def from_origin(self, x: Point, centre: Point) -> Point:
        """The inverse of `to_origin`."""
        raise ValueError(f"{self} has no isometries to an origin.")

    def has_chart(self) -> bool:
        """Whether `embedding` maps it one to one to R^d, with `decode` as the inverse."""
        return False

    def log_chart_volume(self, x: Point) -> Scalar:
        """log of the volume at x of a unit cube of embedded coordinates, if there is a chart."""
        raise ValueError(f"{self} has no chart.")

    def noise_growth(self) -> float:
        """The rate at which negative curvature drives noise apart; zero if it is not known."""
        return 0.0

    def walk(self, t: Scalar, x0: Point, key: Key, steps: int = 24) -> Point:
        """Brownian motion for a time t in steps of Gaussian tangent vectors."""
        length = jnp.sqrt(2 * t / steps)

        def step(x, step_key):
            return self.exp_at(x, length * self.draw_tangent(step_key, x)), None

        return jax.lax.scan(step, x0, jr.split(key, steps))[0]

    def sources(self, count: int, key: Key) -> Float[Array, "n ..."]:
        """Points where Brownian motion starts that a certificate looks at."""
        return jax.jit(jax.vmap(self.draw_point))(jr.split(key, count)).astype(float)

    def reach(self, x: Point, x0: Point) -> Scalar:
        """About how far x is from x0, quickly."""
        return self.dist_at(x, x0)

    def fingerprint(self) -> dict[str, Any]:
        """What tells it from other manifolds, as JSON."""
        return {"manifold": str(self)}

    def noise_reuse(self) -> int:
        """The steps of training that a draw of noise is kept for: one if geodesics are cheap."""
        return 1

    # What follows from it.

    def exp(self, x: Point, v: Tangent) -> Point:
        """Follow the geodesic from x with velocity v for unit time."""
        return self.exp_at(self.check_point(x), self.check_shape(v, "v"))

    def log(self, x: Point, y: Point) -> Tangent:
        """The tangent vector at x of a shortest geodesic to y; the inverse of `exp`."""
        return self.log_at(self.check_point(x), self.check_point(y, "y"))

    def dist(self, x: Point, y: Point) -> Scalar:
        """The geodesic distance between x and y."""
        return self.dist_at(self.check_point(x), self.check_point(y, "y"))

    def inner(self, x: Point, u: Tangent, v: Tangent) -> Scalar:
        """The Riemannian inner product of the tangent vectors u and v at x."""
        u, v = self.check_shape(u, "u"), self.check_shape(v, "v")
        return self.inner_at(self.check_point(x), u, v)

    def norm(self, x: Point, v: Tangent) -> Scalar:
        """The Riemannian length of the tangent vector v at x."""
        return safe_sqrt(self.inner(x, v, v))

    def project(self, x: Point) -> Point:
        """The nearest point of the manifold to an ambient point."""
        return self.project_at(self.check_shape(x, "x"))

    def tangent(self, x: Point, v: Tangent) -> Tangent:
        """The orthogonal projection of an ambient vector v to the tangent space at x."""
        return self.tangent_at(self.check_point(x), self.check_shape(v, "v"))

    def contains(self, x: Point) -> Scalar:
        """How far x is from the manifold: zero, up to rounding, for a point on it."""
        return self.offset_at(self.check_shape(x, "x"))

    def random_point(self, key: Key) -> Point:
        """A random point: uniform in volume if the manifold is compact.

        Otherwise a wrapped Gaussian of unit variance around the manifold's origin.
        """
        return self.draw_point(random_key(key, f"{self}.random_point"))

    def random_tangent(self, key: Key, x: Point) -> Tangent:
        """A standard Gaussian tangent vector at x."""
        key = random_key(key, f"{self}.random_tangent")
        return self.draw_tangent(key, self.check_point(x))

    def gradient(self, f: ScalarField, x: Point) -> Tangent:
        """The Riemannian gradient at x of a function f of ambient coordinates."""
        x = self.check_point(x)
        field_values(f, x, (), f"{self}.gradient")
        return calculus.gradient(f, x, self.frame(x))

    def divergence(self, field: VectorField, x: Point) -> Scalar:
        """The Riemannian divergence at x of a tangent vector field."""
        x = self.check_point(x)
        field_values(field, x, self.shape, f"{self}.divergence")
        return calculus.divergence(field, x, self.frame(x), self.inner_at)

    def laplacian(self, f: ScalarField, x: Point) -> Scalar:
        """The Laplace-Beltrami operator applied to f, at x."""
        x = self.check_point(x)
        field_values(f, x, (), f"{self}.laplacian")
        return calculus.laplacian(f, x, self.frame(x), self.coordinate_laplacian(x))

    def check_point(self, x: Point, name: str = "x") -> Point:
        """`x` as an array; an error says what is wrong with it if it is no point of the manifold.

        Inside `jax.jit` and `jax.vmap` only its shape is checked.
        """
        x = self.check_shape(x, name)
        if is_concrete(x):
            with jax.ensure_compile_time_eval():
                offset = float(self.offset_at(x))
            if not offset <= TOLERANCE:
                raise ValueError(
                    f"{name} is not on {self}: it is {offset:.3g} away from it (tolerance "
                    f"{TOLERANCE:g}). Use project(x) if that was meant."
                )
        return x

    def check_shape(self, x: object, name: str) -> Array:
        """`x` as an array of real numbers; an error says so if it has another shape."""
        return real_array(x, name, self.shape, str(self))

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.dim})"


class AbstractCompactManifold(AbstractManifold):
    """A compact manifold: it has a volume and a uniform law, which `random_point` draws from."""

    def is_compact(self) -> bool:
        """It is."""
        return True

    @abstractmethod
    def log_volume(self) -> Scalar:
        """Logarithm of the total Riemannian volume."""
