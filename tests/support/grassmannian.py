"""Gr(2, 4), the planes through the origin of R^4, in one file outside the package.

A plane is the orthogonal projector P to it, a symmetric 4 x 4 matrix with P^2 = P and trace 2, and
the metric is the Frobenius norm.  With unit quaternions a, b that are imaginary, L_a the product
with a from the left and R_b with b from the right,

    P = (I - L_a R_b) / 2,     |dP|^2 = |da|^2 + |db|^2,

so Gr(2, 4) is S^2 x S^2 modulo (a, b) -> (-a, -b), and its heat kernel is made of two of S^2.
"""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

import calor

PAIRS = calor.Product(calor.Sphere(2), calor.Sphere(2))
CLASSES = calor.Quotient(PAIRS, np.stack([np.eye(6), -np.eye(6)]))


def left(q):
    w, x, y, z = q
    return np.array([[w, -x, -y, -z], [x, w, -z, y], [y, z, w, -x], [z, -y, x, w]])


def right(q):
    w, x, y, z = q
    return np.array([[w, -x, -y, -z], [x, w, z, -y], [y, -z, w, x], [z, y, -x, w]])


UNITS = np.eye(4)[1:]
# L_a R_b for the imaginary units: orthogonal to each other and to I, of squared length 4.
TURNS = np.array([[left(a) @ right(b) for b in UNITS] for a in UNITS])


def products(x: Float[Array, "4 4"]) -> Float[Array, "3 3"]:
    """The matrix a b^T of a projector, or its change with a change of the projector."""
    return -jnp.einsum("ijkl,kl->ij", jnp.asarray(TURNS, x.dtype), x) / 2


def lift(x: Float[Array, "4 4"]) -> Float[Array, " 6"]:
    """One of the two pairs (a, b) of a plane."""
    matrix = products(x)
    longest = jnp.argmax(jnp.sum(matrix * matrix, axis=0))
    a = calor.Sphere(2).project_at(matrix[:, longest])
    return jnp.concatenate([a, calor.Sphere(2).project_at(matrix.T @ a)])


def plane(pair: Float[Array, " 6"]) -> Float[Array, "4 4"]:
    """The plane of a pair."""
    a, b = jnp.split(pair, 2)
    return jnp.eye(4, dtype=pair.dtype) / 2 + turned(jnp.outer(a, b))


def turned(matrix: Float[Array, "3 3"]) -> Float[Array, "4 4"]:
    return -jnp.einsum("ij,ijkl->kl", matrix, jnp.asarray(TURNS, matrix.dtype)) / 2


def lift_tangent(x: Float[Array, "4 4"], v: Float[Array, "4 4"]) -> Float[Array, " 6"]:
    """A change of the pair `lift(x)`: d(a b^T) b = da, since b is orthogonal to db."""
    a, b = jnp.split(lift(x), 2)
    change = products(v)
    return PAIRS.tangent_at(lift(x), jnp.concatenate([change @ b, change.T @ a]))


def plane_tangent(x: Float[Array, "4 4"], v: Float[Array, " 6"]) -> Float[Array, "4 4"]:
    """The change of the plane with a change of the pair `lift(x)`."""
    a, b = jnp.split(lift(x), 2)
    da, db = jnp.split(v, 2)
    return turned(jnp.outer(da, b) + jnp.outer(a, db))


@calor.kind("grassmannian", "n", "k")
class Grassmannian(calor.Manifold):
    """The k-dimensional subspaces of R^n, for n = 4 and k = 2."""

    n: int = eqx.field(static=True, default=4)
    k: int = eqx.field(static=True, default=2)
    dim: int = eqx.field(static=True, default=4, init=False)
    shape: tuple[int, ...] = eqx.field(static=True, default=(4, 4), init=False)

    def __check_init__(self):
        if (self.n, self.k) != (4, 2):
            raise ValueError(f"Grassmannian: n must be 4 and k must be 2, got {self.n}, {self.k}.")

    def exp_at(self, x, v):
        return plane(PAIRS.exp_at(lift(x), lift_tangent(x, v)))

    def log_at(self, x, y):
        return plane_tangent(x, CLASSES.log_at(lift(x), lift(y)))

    def dist_at(self, x, y):
        return CLASSES.dist_at(lift(x), lift(y))

    def inner_at(self, x, u, v):
        return jnp.sum(u * v)

    def project_at(self, x):
        # The nearest a b^T has the singular vectors of the largest singular value, which stands
        # out more and more in powers of the squared matrix.
        matrix = products(x)
        power = matrix @ matrix.T
        for _ in range(5):
            power = power @ power / jnp.maximum(jnp.sum(power * power), 1e-30) ** 0.5
        a = calor.Sphere(2).project_at(power[:, jnp.argmax(jnp.sum(power * power, axis=0))])
        return plane(jnp.concatenate([a, calor.Sphere(2).project_at(matrix.T @ a)]))

    def tangent_at(self, x, v):
        half = x @ (v + v.T) @ (jnp.eye(4, dtype=x.dtype) - x) / 2
        return half + half.T

    def offset_at(self, x):
        off = jnp.max(jnp.abs(x @ x - x)) + jnp.max(jnp.abs(x - x.T))
        return off + jnp.abs(jnp.trace(x) - self.k)

    def draw_point(self, key):
        return plane(PAIRS.draw_point(key))

    def draw_tangent(self, key, x):
        return self.tangent_at(x, jr.normal(key, self.shape, x.dtype))

    def frame(self, x):
        ambient = jnp.eye(16, dtype=x.dtype).reshape(16, 4, 4)
        return jax.vmap(lambda e: self.tangent_at(x, e))(ambient)

    def coordinate_laplacian(self, x):
        # P - I/2 is linear in a and in b, so Delta takes it to -2 times itself on either sphere.
        return -4 * (x - jnp.eye(4, dtype=x.dtype) / 2)

    def is_compact(self):
        return True

    def log_volume(self):
        return jnp.log(8 * jnp.pi**2)  # half of that of the two spheres

    def injectivity_radius(self):
        return float(np.pi / np.sqrt(2))  # half way from (a, b) to (-a, -b)

    def spectral_gap(self):
        return 4.0  # of the coordinates: even functions of (a, b)

    def __str__(self) -> str:
        return f"Grassmannian({self.n}, {self.k})"


@calor.method(Grassmannian, "exact")
@calor.stored("GrassmannianKernel", derived=("classes",))
class GrassmannianKernel(calor.HeatKernel):
    """The sum over both pairs of a plane of products of kernels of S^2."""

    manifold: Grassmannian
    classes: calor.HeatKernel

    def __init__(self, manifold):
        self.manifold = manifold
        self.classes = calor.heat_kernel(CLASSES, "exact")

    def log_prob_at(self, t, x, x0):
        return self.classes.log_prob_at(t, lift(x), lift(x0))

    def score_at(self, t, x, x0):
        return plane_tangent(x, self.classes.score_at(t, lift(x), lift(x0)))

    def draw(self, t, x0, key):
        return plane(self.classes.draw(t, lift(x0), key))


def write_json(path, points):
    path.write_text(json.dumps(points.tolist()))


def read_json(path):
    return np.array(json.loads(path.read_text()))


@calor.form(Grassmannian)
def spanned(manifold):
    """Eight columns are two vectors that span the plane; .json files hold projectors."""

    def from_vectors(rows, angles):
        factors, triangles = np.linalg.qr(rows.reshape(-1, 2, 4).transpose(0, 2, 1))
        sizes = np.abs(np.diagonal(triangles, axis1=1, axis2=2)).min(axis=1)
        if np.any(sizes < 1e-6):
            raise calor.BadRow(int(np.argmax(sizes < 1e-6)), "the two vectors span no plane")
        return factors @ factors.transpose(0, 2, 1)

    def to_vectors(points):
        return np.linalg.eigh(points)[1][:, :, 2:].transpose(0, 2, 1).reshape(-1, 8)

    return calor.Form(
        manifold,
        columns={8: from_vectors},
        to_rows=to_vectors,
        header=[f"{vector}{i}" for vector in "uv" for i in range(1, 5)],
        wanted="two vectors that span it",
        formats={".json": calor.Format(write_json, read_json)},
    )


@calor.picture(Grassmannian)
def angles_to_a_plane(values, manifold, axes):
    """The angles between planes and the one of the first two axes."""
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure().subplots()
    cosines = np.sqrt(np.clip(np.linalg.eigvalsh(np.asarray(values)[:, :2, :2]), 0, 1))
    axes.scatter(*np.rad2deg(np.arccos(cosines)).T, s=4)
    axes.set(xlabel="larger angle", ylabel="smaller angle")
    return axes.figure


PLANES = Grassmannian()
