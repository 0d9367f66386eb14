r"""Rotations of space, SO(3), as unit quaternions modulo sign: S^3 / {+1, -1}.

A rotation by the angle a about the unit axis u is the quaternion (cos(a/2), sin(a/2) u), scalar
first.  The metric is the one of the sphere, so distances are half rotation angles and the volume is
pi^2, half the one of S^3.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.checks import is_concrete, real_array
from ..core.numerics import safe_norm, sinc
from ..core.types import Point
from .names import kind
from .quotient import AbstractQuotient
from .sphere import Sphere


@kind("so3")
class SO3(AbstractQuotient):
    """Rotations of R^3; a point is a unit quaternion (w, x, y, z), q and -q being the same."""

    cover: Sphere
    dim: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self):
        """The rotation group."""
        self.cover = Sphere(3)
        self.dim = 3
        self.shape = (4,)

    def orbit(self, x: Point) -> Float[Array, "g ..."]:
        """The two quaternions of a rotation."""
        return jnp.stack([x, -x])

    def embedding(self, x: Point) -> Float[Array, " d"]:
        """The products x_i x_j, the same for x and -x; distances are sines of distances."""
        i, j = np.triu_indices(4)
        return x[i] * x[j] * jnp.asarray(np.where(i == j, np.sqrt(0.5), 1.0), x.dtype)

    def lookalikes(self, x: Point) -> Float[Array, "g ..."]:
        """None: neither the embedding nor the frame tells x and -x apart."""
        return x[None]

    def frame(self, x: Point) -> Float[Array, "m ..."]:
        """The left-invariant fields x i, x j, x k; at -x they are the same vectors of SO(3)."""
        w, a, b, c = x
        return jnp.array([[-a, w, c, -b], [-b, -c, w, a], [-c, b, -a, w]])

    def spectral_gap(self) -> float:
        """8, of the entries of rotation matrices: harmonics of degree two on S^3."""
        return 8.0

    def identity(self) -> Point:
        """The quaternion (1, 0, 0, 0)."""
        return jnp.array([1.0, 0.0, 0.0, 0.0])

    def compose(self, x: Point, y: Point) -> Point:
        """The rotation y followed by the rotation x (the quaternion product x y)."""
        return quaternion_product(self.check_point(x), self.check_point(y, "y"))

    def inverse(self, x: Point) -> Point:
        """The inverse rotation."""
        return self.check_point(x) * jnp.array([1.0, -1.0, -1.0, -1.0])

    def to_matrix(self, x: Point) -> Float[Array, "3 3"]:
        """The rotation matrix."""
        w, a, b, c = self.check_point(x)
        return jnp.array(
            [
                [w * w + a * a - b * b - c * c, 2 * (a * b - w * c), 2 * (a * c + w * b)],
                [2 * (a * b + w * c), w * w - a * a + b * b - c * c, 2 * (b * c - w * a)],
                [2 * (a * c - w * b), 2 * (b * c + w * a), w * w - a * a - b * b + c * c],
            ]
        )

    def from_matrix(self, matrix: Float[Array, "3 3"]) -> Point:
        """The quaternion of a rotation matrix.

        The matrix K = 4 q q^T - I is linear in the rotation matrix; its longest column is q, up to
        scale, without cancellation.
        """
        matrix = real_array(matrix, "matrix", (3, 3), str(self))
        if is_concrete(matrix):
            values = np.asarray(matrix, dtype=np.float64)
            error = np.max(np.abs(values.T @ values - np.eye(3)))
            determinant = np.linalg.det(values)
            if error > 1e-3 or determinant < 0:
                raise ValueError(
                    f"{self}: not a rotation matrix: R^T R differs from I by {error:.3g} and "
                    f"det R = {determinant:.6g}."
                )
        (a, b, c), (d, e, f), (g, h, i) = matrix
        outer = jnp.array(
            [
                [1 + a + e + i, h - f, c - g, d - b],
                [h - f, 1 + a - e - i, b + d, c + g],
                [c - g, b + d, 1 - a + e - i, f + h],
                [d - b, c + g, f + h, 1 - a - e + i],
            ]
        )
        return self._positive(self.cover.project_at(outer[jnp.argmax(jnp.diagonal(outer))]))

    def to_rotation_vector(self, x: Point) -> Float[Array, "3"]:
        """The rotation axis times the rotation angle in [0, pi]."""
        x = self._positive(self.check_point(x))
        sine = safe_norm(x[1:])
        half_angle = jnp.arctan2(sine, x[0])
        return 2 * x[1:] / sinc(half_angle)

    def from_rotation_vector(self, vector: Float[Array, "3"]) -> Point:
        """The quaternion of the rotation about `vector` by its length in radians."""
        vector = real_array(vector, "vector", (3,), str(self))
        half = safe_norm(vector) / 2
        return self._positive(jnp.concatenate([jnp.cos(half)[None], sinc(half) * vector / 2]))

    def from_euler(
        self, sequence: str, angles: Float[Array, "3"], *, degrees: bool = False
    ) -> Point:
        """The quaternion of three Euler angles.

        Args:
            sequence: the three axes, as in scipy's `Rotation`: lower case for rotations about fixed
                axes ("xyz"), upper case for rotations about the axes that turn along ("ZXZ").
            angles: one angle for each axis, in radians.
            degrees: read the angles as degrees.
        """
        axes, intrinsic = _euler_axes(sequence)
        angles = real_array(angles, "angles", (3,), str(self))
        half = jnp.deg2rad(angles) / 2 if degrees else angles / 2
        turns = [
            jnp.zeros(4, half.dtype).at[0].set(jnp.cos(a)).at[1 + axis].set(jnp.sin(a))
            for axis, a in zip(axes, half, strict=True)
        ]
        first, second, third = turns if intrinsic else turns[::-1]
        return self._positive(quaternion_product(quaternion_product(first, second), third))

    def to_euler(self, x: Point, sequence: str, *, degrees: bool = False) -> Float[Array, "3"]:
        """Euler angles, in scipy's convention; in gimbal lock one of the outer angles is zero.

        Bernardes and Viollet's method: after a signed permutation of the quaternion the middle
        angle is twice an arctangent, and the outer ones are a sum and a difference.
        """
        axes, intrinsic = _euler_axes(sequence)
        w, *vector = self.check_point(x)
        i, j, k = axes if not intrinsic else axes[::-1]
        proper = i == k
        if proper:
            k = 3 - i - j
        sign = (i - j) * (j - k) * (k - i) // 2
        a, b, c, d = w, vector[i], vector[j], sign * vector[k]
        if not proper:
            a, b, c, d = a - c, b + d, c + a, d - b
        middle = 2 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
        plus, minus = jnp.arctan2(b, a), jnp.arctan2(d, c)
        tiny = 10 * jnp.finfo(middle.dtype).eps
        low, high = middle < tiny, jnp.abs(middle - jnp.pi) < tiny
        # The angle about the last axis that turns with the body is zero in gimbal lock.
        first = jnp.where(low, 2 * plus, jnp.where(high, -2 * minus, plus - minus))
        third = jnp.where(low | high, 0.0, plus + minus)
        if intrinsic:
            first, third = (
                jnp.where(low | high, 0.0, plus - minus),
                jnp.where(low, 2 * plus, jnp.where(high, 2 * minus, plus + minus)),
            )
        if not proper:
            third = third * sign
            middle = middle - jnp.pi / 2
        angles = jnp.stack([third, middle, first] if intrinsic else [first, middle, third])
        angles = jnp.arctan2(jnp.sin(angles), jnp.cos(angles)).at[1].set(middle)
        return jnp.rad2deg(angles) if degrees else angles

    @staticmethod
    def _positive(x):
        """The one of x and -x whose scalar part is not negative."""
        return jnp.where(x[0] < 0, -x, x)

    def __str__(self) -> str:
        return "SO3()"


def quaternion_product(p: Point, q: Point) -> Point:
    """The Hamilton product of two quaternions, scalar first."""
    scalar = p[0] * q[0] - jnp.dot(p[1:], q[1:])
    vector = p[0] * q[1:] + q[0] * p[1:] + jnp.cross(p[1:], q[1:])
    return jnp.concatenate([scalar[None], vector])


def _euler_axes(sequence):
    if (
        not isinstance(sequence, str)
        or len(sequence) != 3
        or not (sequence.islower() or sequence.isupper())
        or set(sequence.lower()) - set("xyz")
        or sequence[0] == sequence[1]
        or sequence[1] == sequence[2]
    ):
        raise ValueError(
            "SO3(): an Euler sequence is three axes such as 'xyz' or 'ZXZ', all lower case (fixed "
            f"axes) or all upper case (turning axes), no two neighbours equal; got {sequence!r}."
        )
    return tuple("xyz".index(axis) for axis in sequence.lower()), sequence.isupper()
