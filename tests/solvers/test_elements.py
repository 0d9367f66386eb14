"""Kernels by curved elements, against truth where there is one; what is wrong with meshes."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from calor.experiments.surface_oracles import TorusOfRevolution
from calor.heat.kernel import UnsolvedError
from calor.solvers.elements import reference
from calor.solvers.elements.eigen import lowest
from calor.solvers.elements.functions import elements_of
from calor.solvers.elements.level import level_of
from calor.solvers.elements.remesh import Shape, quality, remesh
from calor.solvers.elements.search import NotOneSurfaceError, box_of, first_mesh
from calor.solvers.elements.solve import solve_elements
from calor.solvers.elements.space import build
from calor.solvers.elements.topology import MeshError, edges_of, euler_number

TETRAHEDRON = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]])


def surface(function, **more):
    return calor.Submanifold(function, 3, **more)


def ellipsoid(*axes):
    return surface(lambda x: jnp.sum((x / jnp.array(axes)) ** 2) - 1)


def torus():
    return surface(lambda x: (jnp.sqrt(x[0] ** 2 + x[1] ** 2) - 2) ** 2 + x[2] ** 2 - 1)


def pretzel():
    """Genus two."""
    return surface(
        lambda x: (x[0] * (x[0] - 1) ** 2 * (x[0] - 2) + x[1] ** 2) ** 2 + x[2] ** 2 - 0.01
    )


def two_bodies(**more):
    def function(x):
        first = (x[0] - 2) ** 2 + x[1] ** 2 + x[2] ** 2 - 1
        second = (x[0] + 2) ** 2 + x[1] ** 2 + 4 * x[2] ** 2 - 1
        return first * second

    return surface(function, **more)


@pytest.fixture(scope="module")
def sphere():
    return solve_elements(ellipsoid(1, 1, 1), functions=100)


# The parts.


def test_polynomials_are_orthonormal_and_nodal_functions_are_one_at_their_nodes(double):
    points, weights = reference.quadrature(10)
    values = jax.vmap(lambda u: reference.dubiner(8, u))(jnp.asarray(points))
    np.testing.assert_allclose((values.T * weights) @ values, np.eye(45), atol=1e-12)
    at_nodes = jax.vmap(lambda u: reference.dubiner(8, u))(jnp.asarray(reference.nodes(8)))
    np.testing.assert_allclose(at_nodes @ reference.to_nodal(8), np.eye(45), atol=1e-11)
    # Nodes on the sides are in the same places seen from both ends.
    side = reference.nodes(8)[3 + 14 : 3 + 21, 0]
    np.testing.assert_allclose(side, 1 - side[::-1], atol=1e-14)


def test_what_is_no_surface_is_said():
    assert euler_number(TETRAHEDRON) == 2
    assert edges_of(TETRAHEDRON[:3]).inside().sum() == 3  # a boundary is allowed
    with pytest.raises(MeshError, match="between the vertices 0 and 1 is in 3 triangles"):
        edges_of(np.concatenate([TETRAHEDRON, [[0, 1, 4]]]))
    with pytest.raises(MeshError, match="turn in different directions"):
        edges_of(np.concatenate([TETRAHEDRON[:3], TETRAHEDRON[3:, ::-1]]))


@pytest.mark.parametrize(
    ("manifold", "euler"),
    [(ellipsoid(1, 1, 0.2), 2), (torus(), 0), pytest.param(pretzel(), -2, marks=pytest.mark.slow)],
)
def test_meshes_have_the_right_topology_and_no_triangle_stands_up(double, manifold, euler):
    level = level_of(manifold)
    size = 0.3 * manifold.width
    points, faces = remesh(
        level, *first_mesh(level, np.asarray(manifold.anchors, float)), size, 0.6
    )
    assert euler_number(faces) == euler
    shape = Shape(level, size, 0.6)
    assert shape.upright(points, faces).all()
    assert quality(shape.places(points), faces).min() > 0.3
    assert level.offset(points).max() < 1e-12


def test_elements_are_on_the_surface_exactly(double):
    """Areas are those of the sphere and of the torus, eigenvalues l (l + 1)."""
    for manifold, area in ((ellipsoid(1, 1, 1), 4 * np.pi), (torus(), 8 * np.pi**2)):
        level = level_of(manifold)
        coarse = first_mesh(level, np.asarray(manifold.anchors, float))
        space = build(level, *remesh(level, *coarse, 0.9, 0.9), 8, 14)
        assert abs(space.area / area - 1) < 1e-12
        if area < 20:
            found = lowest(space.stiffness, space.mass, 100, space.area)
            wanted = np.repeat(np.arange(7) * np.arange(1, 8), 2 * np.arange(7) + 1)
            np.testing.assert_allclose(found.values[:49], wanted, atol=2e-6, rtol=2e-7)
            overlap = found.vectors.T @ (space.mass @ found.vectors)
            np.testing.assert_allclose(overlap, np.eye(100), atol=1e-9)


def test_what_is_not_compact_or_not_connected_is_said_within_seconds():
    for function in (
        lambda x: x[0] ** 2 + x[1] ** 2 - x[2],
        lambda x: x[0] ** 2 + x[1] ** 2 - 1,
        lambda x: jnp.sin(x[0]) * jnp.cos(x[1]) + jnp.sin(x[1]) * jnp.cos(x[2]) + jnp.sin(x[2]),
    ):
        with pytest.raises(NotOneSurfaceError, match=r"does not seem compact.*around=points"):
            calor.heat_kernel(surface(function))
    with pytest.raises(NotOneSurfaceError, match=r"several components.*component=point"):
        calor.heat_kernel(two_bodies())
    with pytest.raises(ValueError, match=r"for closed surfaces in R\^3"):
        solve_elements(calor.Submanifold(lambda x: x @ x - 1, 4))


def test_other_parts_do_not_disturb():
    """A plane that nearly touches a sphere, a lattice of balls, a neck that grids cut."""
    north = jnp.array([0.0, 0.0, 1.0])
    touched = surface(lambda x: (x @ x - 1) * (x[0] - 1.05), component=north)
    lattice = surface(lambda x: jnp.sum(jnp.cos(x)) - 1.2, component=north * jnp.arccos(-0.8))
    neck = surface(lambda x: (x @ x + 1) ** 2 - 4 * x[0] ** 2 - 1.005)
    for manifold, area in ((touched, 4 * np.pi), (lattice, None), (neck, None)):
        with jax.enable_x64(True):
            level = level_of(manifold)
            points, faces = first_mesh(
                level, level.project(np.asarray(manifold.anchors, float), 20)
            )
        assert euler_number(faces) == 2
        if area:
            corners = points[faces]
            flat = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
            assert abs(np.linalg.norm(flat, axis=1).sum() / 2 / area - 1) < 0.02


@pytest.mark.parametrize("manifold", [torus(), ellipsoid(1, 1, 0.2)], ids=["torus", "thin"])
def test_points_are_found_on_their_triangles(manifold):
    with jax.enable_x64(True):
        level = level_of(manifold)
        coarse = first_mesh(level, np.asarray(manifold.anchors, float))
        space = build(level, *remesh(level, *coarse, 0.5 * manifold.width, 0.65), 6, 8)
        found = elements_of(manifold, space)
    found = jax.tree.map(lambda a: a.astype(jnp.float32) if eqx.is_inexact_array(a) else a, found)
    x = jnp.asarray(space.places.reshape(-1, 3)[::7], jnp.float32)
    place = jax.jit(jax.vmap(lambda x: found.find(x)))(x)
    back = jax.jit(jax.vmap(lambda p: found.point(p.face, p.u)))(place)
    np.testing.assert_allclose(back, x, atol=1e-5)


def test_the_box_holds_the_surface(double):
    manifold = ellipsoid(0.5, 1, 3)
    low, high = box_of(level_of(manifold), np.asarray(manifold.anchors, float))
    np.testing.assert_allclose([low, high], [[-0.5, -1, -3], [0.5, 1, 3]], atol=1e-3)


# The kernel.


def compare(kernel, t, exact, count=300):
    """Mean |error of log p| and the relative error of the score at draws of the kernel."""
    keys = jr.split(jr.key(7), (2, count))
    x0 = jax.vmap(kernel.manifold.random_point)(keys[0])
    t = jnp.asarray(t)
    x = jax.jit(jax.vmap(kernel.draw, (None, 0, 0)))(t, x0, keys[1])
    value, score = jax.jit(jax.vmap(kernel.both_at, (None, 0, 0)))(t, x, x0)
    true, slope = exact(float(t), np.asarray(x, float), np.asarray(x0, float))
    off, size = np.linalg.norm(score - slope, axis=1), np.linalg.norm(slope, axis=1)
    return np.mean(np.abs(value - true)), np.sqrt(np.mean(off**2) / np.mean(size**2))


def of_the_sphere(t, x, x0):
    exact = calor.heat_kernel(calor.Sphere(2))
    with jax.enable_x64(True):
        unit = lambda a: jnp.asarray(a / np.linalg.norm(a, axis=1, keepdims=True))
        both = jax.vmap(lambda x, x0: exact.both_at(jnp.asarray(t), x, x0))
        return tuple(map(np.asarray, both(unit(x), unit(x0))))


def test_it_is_the_kernel_of_the_sphere(sphere):
    for factor in (0.5, 0.999, 1.0, 2.0, 8.0):
        error, score = compare(sphere, factor * sphere.t0, of_the_sphere)
        assert error < 5e-3, factor
        assert score < 1e-2, factor
        assert error < 3 * sphere.certificate.estimate(factor * sphere.t0) + 2e-6
    assert abs(float(jnp.exp(sphere.log_volume)) - 4 * np.pi) < 1e-5


def test_its_draws_have_the_moments_of_brownian_motion(sphere):
    t, x0, count = 2 * sphere.t0, jnp.array([0.6, 0.0, 0.8]), 20_000
    draw = jax.jit(jax.vmap(lambda key: sphere.late_draw(jnp.asarray(t), x0, key)))
    cosine = np.asarray(draw(jr.split(jr.key(0), count)) @ x0, float)
    for degree, value in ((1, cosine), (2, 1.5 * cosine**2 - 0.5)):
        error = value.std() / np.sqrt(count)
        assert abs(value.mean() - np.exp(-degree * (degree + 1) * t)) < 4 * error


def test_draws_come_with_their_score_and_a_file_holds_it_all(sphere, tmp_path):
    t, x0 = jnp.asarray(2 * sphere.t0), jnp.array([0.6, 0.0, 0.8])
    x, score = eqx.filter_jit(sphere.draw_with_score)(t, x0, jr.key(0))
    np.testing.assert_allclose(score, sphere.score(t, x, x0), rtol=2e-3, atol=2e-3)
    assert abs(float(x @ score)) < 1e-4  # tangent
    calor.save(tmp_path / "sphere.calor", sphere)
    again = calor.load(tmp_path / "sphere.calor", sphere.manifold)
    assert again.log_prob(t, x, x0) == sphere.log_prob(t, x, x0)
    assert str(again.certificate) == str(sphere.certificate)
    assert sphere.certificate.record()["elements"] > 20
    sphere.certificate.plot()


@pytest.mark.slow
def test_points_of_a_thin_body_are_found_on_their_own_sheet():
    kernel = solve_elements(ellipsoid(1, 1, 0.1), functions=40)
    x = kernel.manifold.project(jnp.array([0.3, 0.2, 0.1]))
    mirrored = x * jnp.array([1.0, 1.0, -1.0])
    assert kernel.elements.find(x).face != kernel.elements.find(mirrored).face
    # Across the rim they are far apart, through the body they are near.
    assert kernel.log_prob(0.1, x, x) - kernel.log_prob(0.1, mirrored, x) > 2
    t = jnp.asarray(0.2)
    forth, back = float(kernel.log_prob(t, mirrored, x)), float(kernel.log_prob(t, x, mirrored))
    assert forth == pytest.approx(back, abs=1e-3)


@pytest.mark.slow
def test_components_have_kernels_of_their_own(tmp_path):
    one = two_bodies(component=jnp.array([3.0, 0.0, 0.0]))
    other = two_bodies(component=jnp.array([-3.0, 0.0, 0.0]))
    solved = lambda manifold: solve_elements(manifold, functions=40)
    assert float(solved(one).log_volume) == pytest.approx(np.log(4 * np.pi), abs=1e-5)
    assert solved(other).log_volume < np.log(4 * np.pi) - 0.1
    calor.save(tmp_path / "one.calor", solved(one))
    with pytest.raises(ValueError, match="their component differs"):
        calor.load(tmp_path / "one.calor", other)


@pytest.mark.slow
def test_a_metric_is_that_of_the_ambient_space():
    """The sphere with twice the lengths is the one of radius two: times are four times longer."""
    metric = lambda x: 4 * jnp.eye(3)
    double = surface(lambda x: jnp.sum(x**2) - 1, metric=metric)
    kernel = solve_elements(double, functions=60)
    assert float(kernel.log_volume) == pytest.approx(np.log(16 * np.pi), abs=1e-4)
    exact, x0, x = calor.heat_kernel(calor.Sphere(2)), jnp.eye(3)[0], jnp.array([0.6, 0.8, 0.0])
    wanted = exact.log_prob(0.5, x, x0) - np.log(4)
    assert float(kernel.log_prob(2.0, x, x0)) == pytest.approx(float(wanted), abs=1e-3)
    np.testing.assert_allclose(
        kernel.score(2.0, x, x0), exact.score(0.5, x, x0) / 4, rtol=1e-2, atol=1e-3
    )


@pytest.mark.slow
def test_it_is_the_kernel_of_the_torus():
    kernel, truth = solve_elements(torus()), TorusOfRevolution(modes=40, waves=60)
    for t in (kernel.t0 / 2, kernel.t0, 0.4, 1.0, 4.0):
        error, score = compare(kernel, t, truth.log_prob_and_score)
        assert error < 3e-3, t
        assert score < 1e-2, t
        if t >= 0.4:
            assert error < 1e-4, t
            assert score < 1e-3, t


@pytest.mark.slow
@pytest.mark.parametrize("make", [pretzel, lambda: surface(lambda x: jnp.sum(x**4) - 1)])
def test_two_resolutions_agree(make):
    manifold = make()
    usual, finer = solve_elements(manifold), solve_elements(manifold, functions=560)

    def other(t, x, x0):
        t = jnp.asarray(t)
        both = jax.jit(jax.vmap(finer.both_at, (None, 0, 0)))
        return tuple(map(np.asarray, both(t, *(jnp.asarray(a, jnp.float32) for a in (x, x0)))))

    for t in (usual.certificate.times[1], 4 * usual.certificate.times[1]):
        error, score = compare(usual, t, other)
        assert error < 2e-3, t
        assert score < 1e-2, t


def test_ways_that_fail_say_so(monkeypatch):
    from calor.solvers import choose

    def fails(manifold, *, key):
        raise UnsolvedError(f"no mesh of {manifold}")

    monkeypatch.setattr(choose, "solve_elements", fails)
    monkeypatch.setattr(choose, "solve_spectral", fails)
    monkeypatch.setattr(choose, "solve", lambda manifold, *, key: 1 / 0)
    manifold = ellipsoid(1, 1, 2)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(ZeroDivisionError):
            calor.heat_kernel(manifold)
    assert [str(w.message).partition(": no mesh")[0] for w in said] == [
        "heat_kernel: another way is tried, since 'elements' failed",
        "heat_kernel: another way is tried, since 'spectral' failed",
    ]
