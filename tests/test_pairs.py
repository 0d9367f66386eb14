"""Networks of pairs of points: the kernel of a manifold without symmetry, solved by a PINN."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from surfaces import Ellipsoid
from test_own_manifold import AXES, ellipsoid, relative, sphere, torus

import calor
from calor.geodesics import shortest_radius
from calor.pairs import PairForm, PairSolution

SPHERE = sphere()


def untrained(manifold, windows=2):
    form = PairForm(manifold, 1.5, 1.2)
    networks = jax.vmap(lambda key: form.network(key, (8, 8)))(jr.split(jr.key(0), windows))
    edges = (0.1, 0.3, 2.0)[: windows + 1]
    return PairSolution(manifold, form, edges, networks, jnp.full(windows, 2.5))


@pytest.mark.parametrize("t", [0.2, 0.7])
def test_log_prob_is_symmetric_by_construction(t):
    solution = untrained(SPHERE)
    x, x0 = jr.normal(jr.key(1), (2, 20, 3))
    at = jax.vmap(lambda x, x0: solution.log_prob(jnp.asarray(t), x, x0))
    np.testing.assert_allclose(at(x, x0), at(x0, x), rtol=2e-6)
    assert float(jnp.std(at(x, x0))) > 0.1


def test_early_it_is_the_gaussian_of_the_chord_and_late_the_uniform_law():
    manifold = ellipsoid()
    form = PairForm(manifold, 1.5, 1e-3)  # the network has no say
    network = form.network(jr.key(0), (8, 8))
    x, x0 = jnp.array([0.1, 0.2, 0.3]), jnp.array([0.15, 0.2, 0.25])
    t, c = jnp.asarray(1e-4), jnp.asarray(2.5)
    found = form(network, c, t, x, x0, t, 2 * t) - c
    wanted = -jnp.sum((x - x0) ** 2) / (4 * t) - jnp.log(4 * jnp.pi * t)
    np.testing.assert_allclose(found, wanted, rtol=1e-3)
    late = jnp.asarray(40.0)
    np.testing.assert_allclose(form(network, c, late, x, x0, late / 2, late), 0.0, atol=1e-6)


def test_score_and_terms_belong_to_log_prob():
    solution, t = untrained(SPHERE), jnp.asarray(0.5)
    x, x0 = SPHERE.random_point(jr.key(2)), SPHERE.random_point(jr.key(3))
    phi = lambda y: solution.log_prob(t, y, x0)
    terms = jax.jit(lambda x: solution.terms(t, x, x0))(x)
    np.testing.assert_allclose(
        jax.jit(lambda x: solution.score(t, x, x0))(x),
        SPHERE.gradient(phi, x),
        rtol=1e-4,
        atol=1e-5,
    )
    np.testing.assert_allclose(terms.laplacian, SPHERE.laplacian(phi, x), rtol=1e-4, atol=1e-4)
    step = 1e-2
    change = (solution.log_prob(t + step, x, x0) - solution.log_prob(t - step, x, x0)) / (2 * step)
    np.testing.assert_allclose(terms.change, change, rtol=2e-3)


# A ray has a mark every twelfth of the width.
@pytest.mark.parametrize(("manifold", "radius"), [(SPHERE, np.pi), (torus(), np.pi)])
def test_geodesics_are_shortest_up_to_half_of_a_closed_one(manifold, radius):
    found = shortest_radius(manifold, jr.key(0))
    assert radius - 0.15 * manifold._width < found < radius + 0.25 * manifold._width


def test_bad_requests_are_explained():
    with pytest.raises(ValueError, match="recipes.pairs is for a Submanifold"):
        calor.solve(calor.Sphere(2), calor.recipes.pairs(), key=jr.key(0))
    with pytest.raises(ValueError, match="two layers or more, got"):
        calor.recipes.pairs(widths=(8,))
    with pytest.raises(ValueError, match="r_max must be positive, got -1"):
        calor.recipes.pairs(r_max=-1.0)


@pytest.mark.slow
def test_a_kernel_of_the_ellipsoid_is_solved_saved_and_used(tmp_path):
    manifold = ellipsoid()
    recipe = calor.recipes.pairs(points=1200, steps=25, widths=(16, 16), t1=2.2)
    kernel = calor.solve(manifold, recipe, key=jr.key(0))
    truth = Ellipsoid(AXES, 16)
    x0 = jax.jit(jax.vmap(manifold._random_point))(jr.split(jr.key(3), 200))
    for t in (0.2, 0.6, 2.0):
        t = jnp.asarray(t)
        draw = jax.jit(jax.vmap(lambda x0, key: kernel._noised(t, x0, key)))
        x, score = draw(x0, jr.split(jr.key(4), 200))
        wanted, slope = truth.log_prob_and_score(float(t), x, x0)
        found = jax.jit(jax.vmap(lambda x, x0: kernel.solution.log_prob(t, x, x0)))(x, x0)
        assert np.mean(np.abs(found - wanted)) < 0.05
        assert relative(score, slope) < 0.15
    # The volume is found from the mean of the kernel.
    assert abs(float(jnp.exp(kernel.solution.constants[-1])) / truth.volume - 1) < 0.02
    calor.save(tmp_path / "ellipsoid.calor", kernel)
    again = calor.load(tmp_path / "ellipsoid.calor", ellipsoid())
    t = jnp.asarray(0.5)
    assert kernel.solution.log_prob(t, x[0], x0[0]) == again.solution.log_prob(t, x[0], x0[0])
    with pytest.raises(calor.FileError, match="give it, as in load"):
        calor.load(tmp_path / "ellipsoid.calor")
    with pytest.raises(calor.FileError, match="another Submanifold"):
        calor.load(tmp_path / "ellipsoid.calor", SPHERE)
