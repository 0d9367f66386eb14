"""Networks of pairs of points: the kernel of a manifold without symmetry, solved by a PINN."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from calor.experiments.surface_oracles import Ellipsoid
from calor.heat.chains import effective_size
from calor.heat.early import geodesics
from calor.heat.early.geodesics import shortest_radius
from calor.solvers.forms import pair_rows as _pair_rows
from calor.solvers.forms.pairs import PairForm, Window
from calor.solvers.recipes import Done, _pairs
from calor.training import levenberg
from descriptions import hyperboloid
from equations import (
    AXES,
    affine_invariant,
    ellipsoid,
    half_plane,
    near_i,
    relative,
    sphere,
    torus,
    untrained,
)

SPHERE = sphere()


@pytest.mark.parametrize("t", [0.2, 0.7])
def test_log_prob_is_symmetric_by_construction(t):
    solution = untrained(SPHERE)
    x, x0 = jr.normal(jr.key(1), (2, 20, 3))
    at = jax.vmap(lambda x, x0: solution.log_prob(jnp.asarray(t), x, x0))
    np.testing.assert_allclose(at(x, x0), at(x0, x), rtol=2e-6)
    assert float(jnp.std(at(x, x0))) > 0.1


def test_early_it_is_the_gaussian_of_the_chord_and_late_the_uniform_law():
    manifold = ellipsoid()
    form = PairForm(manifold, 1.5, 1e-3, (0.0, 0.0, 0.0), 1.0)  # the network has no say
    network = form.network(jr.key(0), (8, 8))
    x, x0 = map(manifold.project, jnp.array([[0.1, 0.2, 1.3], [0.2, 0.2, 1.25]]))
    t, c = jnp.asarray(1e-4), jnp.asarray(2.5)
    found = form(network, Window(c, t, 2 * t), t, x, x0) - c
    normals = jnp.stack([x, x0]) / jnp.asarray(AXES) ** 2
    normals = normals / jnp.linalg.norm(normals, axis=1, keepdims=True)
    square = jnp.sum((x - x0) ** 2) + jnp.mean((normals @ (x - x0)) ** 2) / 3
    # The square of the chord alone is off by 5e-3.
    np.testing.assert_allclose(square, manifold.dist(x, x0) ** 2, rtol=1e-4)
    wanted = -square / (4 * t) - jnp.log(4 * jnp.pi * t)
    np.testing.assert_allclose(found, wanted, rtol=1e-3)
    late = jnp.asarray(40.0)
    window = Window(c, late / 2, late)
    np.testing.assert_allclose(form(network, window, late, x, x0), 0.0, atol=1e-6)


def test_score_and_terms_belong_to_log_prob():
    solution, t = untrained(SPHERE), jnp.asarray(0.5)
    x, x0 = SPHERE.random_point(jr.key(2)), SPHERE.random_point(jr.key(3))
    phi = lambda y: solution.log_prob(t, y, x0)
    terms = jax.jit(lambda x: solution.terms(t, x, x0))(x)
    np.testing.assert_allclose(
        jax.jit(lambda x: solution.log_prob_and_score(t, x, x0)[1])(x),
        SPHERE.gradient(phi, x),
        rtol=1e-4,
        atol=1e-5,
    )
    np.testing.assert_allclose(terms.laplacian, SPHERE.laplacian(phi, x), rtol=1e-4, atol=1e-4)
    step = 1e-2
    change = (solution.log_prob(t + step, x, x0) - solution.log_prob(t - step, x, x0)) / (2 * step)
    np.testing.assert_allclose(terms.change, change, rtol=2e-3)


def test_rows_of_the_equation_are_its_weighted_residual(double):
    """What the recipe trains on, beside the terms that a certificate is made of."""
    solution = untrained(SPHERE, windows=1)
    network = jax.tree.map(lambda a: a[0], solution.networks)
    window = Window(solution.constants[0], *map(jnp.asarray, solution.edges))
    rows = _pair_rows.interior(solution.form, 4, None, window, jr.key(1))
    found = jax.jit(jax.vmap(lambda row: _pair_rows.equation(solution.form, network, row)))(rows)
    terms = jax.jit(jax.vmap(solution.terms))(rows["t"], rows["x"], rows["x0"])
    wanted = rows["weight"] * (terms.change - terms.laplacian - terms.squared_slope)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert float(jnp.min(rows["weight"])) > 0


def test_the_chord_is_measured_by_the_metric_in_the_middle():
    form = PairForm(half_plane(around=near_i()), 0.0, 1.0, (0.0, 1.0), 0.5)
    x, x0 = jnp.array([0.3, 1.5]), jnp.array([-0.1, 0.5])
    chord = form.chord(x, x0)
    np.testing.assert_allclose(chord @ chord, 0.4**2 + 1.0**2, rtol=1e-6)
    sheared = lambda x: jnp.array([[2.0, 0.7], [0.7, 1.0]]) * x[1]
    form = PairForm(calor.Submanifold(None, 2, sheared), 0.0, 1.0, (0.0, 1.0), 0.5)
    chord, step = form.chord(x, x0), x - x0
    np.testing.assert_allclose(chord @ chord, step @ sheared(jnp.array([0, 1.0])) @ step, rtol=1e-6)


def test_straight_lines_tell_the_distance(double):
    """Exactly so along both axes of the half-plane, and between multiples of a matrix."""
    form = PairForm(half_plane(), 0.0, 1.0, (0.0, 1.0), 0.5)
    origin = jnp.array([0.2, 1.0])
    for x, wanted in (
        ([0.2, 40.0], np.log(40)),
        ([0.2, 0.1], np.log(10)),
        ([5.2, 1.0], 2 * np.arcsinh(5 / 2)),
    ):
        found = form.squared_distance(jnp.array(x), origin)
        np.testing.assert_allclose(found, wanted**2, rtol=1e-9)
    # Where points coincide it is the metric to second order, and nothing is NaN.
    slope, bend = jax.jit(
        lambda x: [d(form.squared_distance)(x, origin) for d in (jax.grad, jax.hessian)]
    )(origin)
    np.testing.assert_allclose(slope, 0, atol=1e-12)
    np.testing.assert_allclose(bend, 2 * np.eye(2), atol=1e-9)
    assert jnp.all(jnp.isfinite(form._features(origin, origin)))
    with jax.enable_x64(False):
        x0 = jnp.asarray(origin, jnp.float32)
        total = lambda x: jnp.sum(form._features(x, x0)) + form.squared_distance(x, x0)
        assert jnp.all(jnp.isfinite(jax.jit(jax.grad(total))(x0 + jnp.float32(1e-6))))
    matrices = calor.Submanifold(None, 3, affine_invariant)
    form = PairForm(matrices, 0.0, 1.0, (1.0, 0.0, 1.0), 0.5)
    found = form.squared_distance(9 * jnp.array([2.0, 0.3, 1.0]), jnp.array([2.0, 0.3, 1.0]))
    np.testing.assert_allclose(found, 2 * np.log(9) ** 2, rtol=1e-9)


@pytest.mark.parametrize("compact", [True, False])
def test_rows_of_the_recipe_are_the_equation_and_the_law(double, compact):
    if compact:
        turn = lambda key: lambda x: jnp.roll(x, jr.randint(key, (), 0, 3))
        manifold = calor.Submanifold(lambda x: x @ x - 1, 3, symmetries=turn)
    else:
        manifold = half_plane(around=near_i())
    # Given times and a radius: what finds them has its own test.
    recipe = calor.recipes.pairs(
        points=48, steps=1, rounds=1, widths=(6, 6), t0=0.05, t1=0.4, r_max=1.5
    )
    plan = recipe.plan(manifold)
    start = plan.begin(0, None, jr.key(1))
    rows = plan.rows(0, None, jr.key(2))
    state = levenberg._advance(plan, rows, start)
    done = Done(jnp.stack([state.parameters] * len(plan.steps())), jnp.zeros(9))
    solution = plan.solution(done)

    def residual(row):
        return row["weight"] * solution.terms(row["t"], row["x"], row["x0"]).residual()

    squares = jnp.sum(jax.jit(jax.vmap(residual))(rows[0]) ** 2)
    np.testing.assert_allclose(state.losses[0], squares, rtol=1e-8)
    # The initial values are those of the exact kernel, by another formula.
    exact = calor.heat_kernel(calor.Sphere(2) if compact else calor.Hyperbolic(2))
    place = (lambda x: x) if compact else hyperboloid
    known = (rows[1]["weight"] > 0) & ~rows[1]["beyond"]
    value = jax.vmap(lambda x, x0: exact.log_prob_at(0.05, place(x), place(x0)))
    wanted = value(rows[1]["x"], rows[1]["x0"])
    gaps = jnp.abs(rows[1]["value"] - rows[1]["window"].c - wanted)[known]
    assert known.sum() > 12
    assert float(jnp.max(gaps)) < 3e-3  # without the curvature t / 3
    # So are the slopes.
    slopes = rows[2]

    def along(x, x0, direction):
        value = lambda x: exact.log_prob_at(0.05, place(x), place(x0))
        return jax.jvp(value, (x,), (direction,))[1]

    wanted = jax.jit(jax.vmap(along))(slopes["x"], slopes["x0"], slopes["direction"])
    gaps = jnp.abs(slopes["slope"] - wanted)[slopes["weight"] > 0]
    assert len(gaps) > 24
    assert float(jnp.max(gaps)) < 0.02 < float(jnp.std(wanted))

    def error(row):
        value = lambda x: solution.log_prob(row["window"].start, x, row["x0"])
        found = jax.jvp(value, (row["x"],), (row["direction"],))[1]
        return row["weight"] * (found - row["slope"])

    np.testing.assert_allclose(state.losses[2], jnp.sum(jax.vmap(error)(slopes) ** 2), rtol=1e-8)
    if compact:  # the images under the declared isometries
        move = lambda row: solution.log_prob(row["t"], *row["moved"])
        stay = lambda row: solution.log_prob(row["t"], row["x"], row["x0"])
        gap = jax.vmap(lambda row: row["weight"] * (stay(row) - move(row)))(rows[3])
        np.testing.assert_allclose(state.losses[3], jnp.sum(gap**2), rtol=1e-8)


def test_points_are_where_the_equation_does_not_hold(double):
    form = PairForm(SPHERE, 2.0, 1.0, (0.0, 0.0, 0.0), 1.0)
    network = form.network(jr.key(0), (6, 6))
    size = jax.jit(jax.vmap(lambda row: _pair_rows.equation(form, network, row)))

    def draw(network):
        window = Window(*map(jnp.asarray, (2.5, 0.1, 0.2)))
        return _pair_rows.interior(form, 600, network, window, jr.key(1))

    anywhere, chosen = size(draw(None)), size(draw(network))
    # All of them have the same weight in the mean, ...
    np.testing.assert_allclose(jnp.sum(chosen**2), jnp.sum(anywhere**2), rtol=0.15)
    # ... and more of them a share in it.
    median, usual = (jnp.median(jnp.abs(r)) / jnp.sqrt(jnp.mean(r**2)) for r in (chosen, anywhere))
    assert median > 1.2 * usual


def test_the_rate_is_that_of_the_slowest_coordinate():
    # On the torus of revolution x has the mean |dx|^2 = 3/4 and the variance 11/4.
    assert abs(_pairs._rate(torus()) / (3 / 11) - 1) < 0.06


# A ray has a mark every twelfth of the width.
@pytest.mark.parametrize("manifold", [SPHERE, torus()])
def test_geodesics_are_shortest_up_to_half_of_a_closed_one(manifold):
    found = shortest_radius(manifold, jr.key(0))
    assert np.pi - 0.15 * manifold.width < found < np.pi + 0.25 * manifold.width


def test_in_negative_curvature_all_geodesics_are_shortest():
    assert shortest_radius(half_plane(around=near_i()), jr.key(0)) == np.inf


def test_a_single_geodesic_is_shortest_up_to_its_conjugate_point(monkeypatch):
    for name in ("_SOURCES", "_RAYS", "_STRETCHED"):  # no other one to find a shorter way by
        monkeypatch.setattr(geodesics, name, 1)
    assert np.pi - 0.3 < shortest_radius(SPHERE, jr.key(0)) < np.pi + 0.1


def test_effective_size_counts_independent_states():
    draws = jr.normal(jr.key(0), (2000, 10, 3))
    assert abs(effective_size(draws) - 10) < 0.8
    assert abs(effective_size(jnp.repeat(draws[:, :2], 5, axis=1)) - 2) < 0.15


def test_bad_requests_are_explained():
    with pytest.raises(ValueError, match="say where its kernel is needed"):
        calor.solve(half_plane(), key=jr.key(0))
    with pytest.raises(ValueError, match="recipes.pairs is for a Submanifold"):
        calor.solve(calor.Sphere(2), calor.recipes.pairs(), key=jr.key(0))
    with pytest.raises(ValueError, match="two layers or more, got"):
        calor.recipes.pairs(widths=(8,))
    with pytest.raises(ValueError, match="r_max must be positive, got -1"):
        calor.recipes.pairs(r_max=-1.0)


# At these budgets a certificate may call a kernel poor; it is compared with the truth instead.
@pytest.mark.filterwarnings("ignore::calor.PoorKernelWarning")
@pytest.mark.slow
def test_a_kernel_of_the_ellipsoid_is_solved_saved_and_used(tmp_path):
    manifold = ellipsoid()
    recipe = calor.recipes.pairs(points=1200, steps=13, rounds=2, widths=(16, 16), t1=2.2)
    kernel = calor.solve(manifold, recipe, key=jr.key(0))
    truth = Ellipsoid(AXES, 16)
    x0 = jax.jit(jax.vmap(manifold.draw_point))(jr.split(jr.key(3), 200))
    for t in (0.2, 0.6, 2.0):
        t = jnp.asarray(t)
        draw = jax.jit(jax.vmap(lambda x0, key: kernel.draw_with_score(t, x0, key)))
        x, score = draw(x0, jr.split(jr.key(4), 200))
        wanted, slope = truth.log_prob_and_score(float(t), x, x0)
        found = jax.jit(jax.vmap(lambda x, x0: kernel.solution.log_prob(t, x, x0)))(x, x0)
        assert np.mean(np.abs(found - wanted)) < 0.05
        assert relative(score, slope) < 0.15
    report = kernel.chain_report(0.6, x0[0], key=jr.key(5))
    assert 0.6 < report.acceptance < 0.98
    assert 1 < report.effective_size < report.steps
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


@pytest.mark.filterwarnings("ignore::calor.PoorKernelWarning")
@pytest.mark.slow
def test_a_kernel_of_the_half_plane_from_its_metric():
    manifold = half_plane(around=near_i())
    recipe = calor.recipes.pairs(points=800, steps=13, rounds=2, widths=(16, 16), t1=0.4)
    kernel = calor.solve(manifold, recipe, key=jr.key(0))
    # What starts from the law has its error, too.
    law = kernel.certificate.earlier
    assert kernel.certificate.initial_mean > law.estimate(kernel.t0) > 1e-4
    exact = calor.heat_kernel(calor.Hyperbolic(2))
    x0 = jax.jit(jax.vmap(manifold.draw_point))(jr.split(jr.key(3), 200))
    for t in (0.3, 0.38):
        t = jnp.asarray(t)
        x, score = jax.jit(jax.vmap(lambda x0, k: kernel.draw_with_score(t, x0, k)))(
            x0, jr.split(jr.key(4), 200)
        )
        value = lambda x, x0: exact.log_prob_at(t, hyperboloid(x), hyperboloid(x0))
        found = jax.jit(jax.vmap(lambda x, x0: kernel.solution.log_prob(t, x, x0)))(x, x0)
        assert float(jnp.mean(jnp.abs(found - jax.vmap(value)(x, x0)))) < 0.01
        slope = jax.vmap(lambda x, x0: x[1] ** 2 * jax.grad(value)(x, x0))(x, x0)
        assert relative(score / x[:, 1:], slope / x[:, 1:]) < 0.02
    model = calor.fit(
        kernel,
        x0,
        parts="diffusion",
        key=jr.key(6),
        centres=64,
        network=calor.Network(width=16, depth=2, frequencies=8),
        training=calor.Training(steps=20, batch=64, validate_every=20),
        progress=False,
    )
    assert model.t1 <= kernel.t1
    assert np.isfinite(model.log_prob(x0[:5])).all()
