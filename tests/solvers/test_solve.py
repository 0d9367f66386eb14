"""Learned kernels: solving, certificates, draws, files, and the kernels that ship with calor."""

import json
import struct
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from calor import recipes
from calor.heat import chains as sampling
from calor.heat.equation import radial_terms
from calor.manifolds.names import manifold_named, name_of
from calor.solvers import check as validation
from calor.solvers import solve as solver
from calor.training import steps
from calor.training.run import Run

SMALL = recipes.default(points=100, steps=10, rounds=2)


@pytest.fixture(scope="module")
def small():
    """A kernel of H^2 from very little training: the closed form does most of it."""
    return calor.solve(calor.Hyperbolic(2), SMALL, key=jr.key(0), certificate_points=32)


@pytest.fixture(scope="module")
def shipped():
    """The kernels that come with calor."""
    names = ("sphere:2", "so3", "spd:2", "spd:3", "spd:10")
    return {name: calor.heat_kernel(manifold_named(name), "pinn") for name in names}


# The equation in kernel coordinates.


@pytest.mark.parametrize("name", ["sphere:3", "spd:3"])
def test_the_equation_in_kernel_coordinates_is_the_one_of_the_manifold(name, double):
    manifold = manifold_named(name)
    x0, t = manifold.origin(), jnp.asarray(0.3)
    v = 0.5 * manifold.random_tangent(jr.key(1), x0)
    x = manifold.exp(x0, v)
    y = manifold.kernel_coordinates(x, x0)

    def phi(t, y):
        items = manifold.invariants(y)
        return jnp.sum(jnp.sin(items * (1 + t)) + items**2)

    def on_manifold(x):
        return phi(t, manifold.kernel_coordinates(x, x0))

    terms = radial_terms(phi, manifold, t, y)
    np.testing.assert_allclose(terms.laplacian, manifold.laplacian(on_manifold, x), rtol=1e-8)
    slope = manifold.gradient(on_manifold, x)
    np.testing.assert_allclose(terms.squared_slope, manifold.inner(x, slope, slope), rtol=1e-8)


@pytest.mark.parametrize("name", ["sphere:3", "hyperbolic:2", "spd:3", "torus:2", "euclidean:2"])
def test_points_are_placed_where_their_coordinates_say(name, double):
    manifold = manifold_named(name)
    x0 = manifold.random_point(jr.key(0))
    v = 0.7 * manifold.random_tangent(jr.key(1), manifold.origin())
    y, lift = manifold.tangent_coordinates(v)
    x = manifold.point_at(y, x0, jr.key(2))
    again = manifold.kernel_coordinates(x, x0)
    np.testing.assert_allclose(jnp.sort(again), jnp.sort(y), atol=1e-9)

    def f(v):
        return jnp.sum(jnp.cos(manifold.tangent_coordinates(v)[0]))

    if name != "spd:3":  # no derivative of an eigendecomposition is taken
        tangent = manifold.tangent(manifold.origin(), jax.grad(f)(v))
        np.testing.assert_allclose(lift(-jnp.sin(y)), tangent, atol=1e-9)
    seen, same = manifold.relative(x, x0), manifold.relative(x0, x0)
    assert seen.ndim == 1
    np.testing.assert_allclose(
        same, manifold.relative(manifold.origin(), manifold.origin()), atol=1e-9
    )


# Solving.


def test_a_solved_kernel_is_used_like_any_other(small):
    exact = calor.heat_kernel(calor.Hyperbolic(2))
    x0 = calor.Hyperbolic(2).origin()
    x = exact.sample(0.4, x0, key=jr.key(3))
    # Even a little training is far better than the closed form alone, which is off by 1e-3.
    assert abs(small.log_prob(0.4, x, x0) - exact.log_prob(0.4, x, x0)) < 3e-4
    np.testing.assert_allclose(small.score(0.4, x, x0), exact.score(0.4, x, x0), atol=2e-3)
    assert small.about["settings"]["steps"] == 10
    assert small.certificate.initial_error == 0
    assert str(small.certificate).count("\n") > 12


def test_the_certificate_bounds_the_error(shipped):
    kernels = {"sphere:2": shipped["sphere:2"], "so3": shipped["so3"]}
    for kernel in kernels.values():
        rows = validation.against_exact(kernel, jr.key(5), (0.1, 0.3, 1.0, 4.0), points=500)
        for row in rows:
            if row["points"] == "draws":
                bound = kernel.certificate.bound(row["t"])
                assert row["log_prob_max"] <= bound + 3e-6, row  # rounding in float32
                assert row["log_prob"] <= kernel.certificate.estimate(row["t"]) + 3e-6


def test_a_certificate_answers_for_its_times_only(small):
    certificate = small.certificate
    assert certificate.bound(10.0) == np.inf
    assert certificate.bound(0.5) <= certificate.bound(1.0)
    with pytest.raises(ValueError, match="positive"):
        certificate.bound(-1.0)
    figure = certificate.plot()
    assert len(figure.axes[0].lines) == 4


@pytest.mark.slow
def test_seeds_reproduce_and_an_interrupted_run_resumes(tmp_path, interrupt_training):
    plane = calor.Euclidean(2)
    recipe = recipes.default(points=64, steps=3, rounds=2)
    solve = partial(calor.solve, plane, recipe, progress=False, certificate_points=8)
    whole = solve(key=jr.key(0))
    file = tmp_path / "run.partial"

    interrupt_training(5)
    with pytest.raises(KeyboardInterrupt):
        solve(key=jr.key(0), resume=file)
    with pytest.raises(calor.FileError, match="another run: its key"):
        solve(key=jr.key(1), resume=file)
    again = solve(key=jr.key(0), resume=file)
    assert not file.exists()
    same = jax.tree.map(np.array_equal, again.solution.networks, whole.solution.networks)
    assert all(jax.tree.leaves(same))


def test_descent_goes_on_too(tmp_path, monkeypatch):
    """The paper's recipe is resumed like the training of a model."""
    recipe = recipes.paper(width=8, depth=1, frequencies=4, steps=6, batch=64)
    plan, advance, calls = recipe.plan(calor.Sphere(2)), steps._advance, []
    monkeypatch.setattr(steps, "_CALL", 0.0)  # a call for every step
    whole, _ = plan.find(key=jr.key(0), run=Run(progress=False))

    def interrupted(*inputs):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return advance(*inputs)

    monkeypatch.setattr(steps, "_advance", interrupted)
    run = Run("", {"of": "a sphere"}, False, tmp_path / "run.partial")
    with pytest.raises(KeyboardInterrupt):
        plan.find(key=jr.key(0), run=run)
    again, _ = plan.find(key=jr.key(0), run=run)
    assert len(calls) == 4 + 3
    assert jax.tree.all(jax.tree.map(np.array_equal, again.network, whole.network))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["so3", "spd:2"])
def test_the_recipe_of_the_paper(name):
    recipe = recipes.paper(width=16, depth=2, frequencies=4, steps=50, batch=64, factorize=True)
    kernel = calor.solve(manifold_named(name), recipe, key=jr.key(0), certificate_points=16)
    assert kernel.certificate.poor
    x0 = kernel.manifold.random_point(jr.key(1))
    x = kernel.law.sample(0.2, x0, key=jr.key(2))
    with pytest.warns(calor.PoorKernelWarning, match="trained too little"):
        value = kernel.log_prob(0.5, x, x0)
    assert np.isfinite(value)
    # below t0 the short-time law, above it the network
    early = kernel.log_prob(0.05, x, x0)
    np.testing.assert_allclose(early, kernel.law.log_prob(0.05, x, x0), rtol=1e-5)
    if name == "so3":  # the network does not see the sign of a quaternion
        np.testing.assert_allclose(
            kernel.solution.log_prob(jnp.asarray(0.5), -x, x0), value, rtol=1e-4, atol=1e-4
        )


def test_the_law_of_the_paper():
    sphere, matrices = (recipes.paper().plan(m) for m in (calor.Sphere(2), calor.SPD(10)))
    assert sphere.interval == (0.1, 5.0)
    assert matrices.interval == (0.1, 1.0)
    assert sphere.law.order == 3
    assert isinstance(matrices.law, calor.ZerothOrder)
    rotations = recipes.paper().plan(calor.SO3())
    assert rotations.interval == (0.1, 5.0)
    assert rotations.law.cover.order == 3
    clouds = recipes.paper().plan(calor.PointCloud(3, 2))
    assert clouds.interval == (0.01, 0.5)


def test_every_manifold_has_a_recipe_of_its_own():
    surface = calor.Submanifold(lambda x: x @ x - 1, 3)
    for manifold, recipe in (
        (calor.Sphere(2), recipes.Default),
        (calor.SPD(3), recipes.Default),
        (calor.PointCloud(3, 2), recipes.Clouds),
        (surface, recipes.Pairs),
    ):
        assert solver.own_recipe(manifold) is recipe
    for manifold in (calor.Product(calor.Sphere(2), calor.Sphere(2)), surface):
        with pytest.raises(ValueError, match="kernel coordinates"):
            recipes.paper().plan(manifold)


def test_bad_requests_are_explained():
    with pytest.raises(TypeError, match="manifold"):
        calor.solve("sphere", key=jr.key(0))
    with pytest.raises(TypeError, match="recipe"):
        calor.solve(calor.Sphere(2), "paper", key=jr.key(0))
    with pytest.raises(TypeError, match="key"):
        calor.solve(calor.Sphere(2), key=0)
    surface = calor.Submanifold(lambda x: jnp.sum(x * x) - 1, ambient_dim=3)
    with pytest.raises(ValueError, match="kernel coordinates"):
        calor.solve(surface, recipes.default(), key=jr.key(0))
    with pytest.raises(ValueError, match="Product of circles"):
        calor.solve(calor.Torus(5), key=jr.key(0))
    with pytest.raises(ValueError, match="t0 must be below t1"):
        recipes.default(t0=2.0, t1=1.0)
    with pytest.raises(ValueError, match="t1 must be later"):
        recipes.default(t1=0.05).plan(calor.Sphere(2))
    for recipe in (recipes.default(t0=0.6), recipes.paper(t0=0.6)):
        with pytest.raises(ValueError, match="give a smaller t0"):
            calor.solve(calor.Sphere(2), recipe, key=jr.key(0))
    with pytest.raises(ValueError, match="steps must be at least 1"):
        recipes.default(steps=0)
    with pytest.raises(ValueError, match="multiple of 16"):
        recipes.paper(batch=100)
    with pytest.raises(ValueError, match="give a key"):
        calor.heat_kernel(calor.SPD(7), "pinn")
    with pytest.raises(ValueError, match="sampler"):
        calor.heat_kernel(calor.Sphere(2)).sample(
            0.1, calor.Sphere(2).origin(), key=jr.key(0), sampler="slow"
        )


@pytest.mark.parametrize("name", ["sphere:2", "so3", "torus:3", "hyperbolic:2", "spd:4"])
def test_names_lead_to_manifolds_and_back(name):
    assert name_of(manifold_named(name)) == name


@pytest.mark.parametrize("name", ["ball:2", "sphere", "sphere:0", "sphere:two", "so3:2", ""])
def test_other_names_are_errors(name):
    with pytest.raises(ValueError, match="manifold|needs its size"):
        manifold_named(name)


# The kernels that ship with calor.


@pytest.mark.parametrize("name", ["sphere:2", "so3"])
def test_shipped_kernels_are_a_hundred_times_better_than_the_paper(name, shipped):
    paper = {
        "sphere:2": (
            [0.0054, 0.0079, 0.0016, 0.0016, 0.0016],
            [0.0281, 0.0182, 0.0027, 6e-4, 2e-4],
        ),
        "so3": ([0.0006, 0.0055, 0.0029, 0.0058, 0.0232], [0.0024, 0.0060, 0.0004, 0.0, 0.0077]),
    }[name]
    times = (0.3, 0.5, 1.0, 2.0, 4.0)
    rows = validation.against_exact(shipped[name], jr.key(7), times, points=2000)
    for law, factor in (("draws", 100), ("uniform", 20)):
        chosen = [row for row in rows if row["points"] == law]
        for row, log_prob, score in zip(chosen, *paper, strict=True):
            assert row["log_prob"] <= max(log_prob / factor, 2e-6), row
            assert row["score"] <= max(score / factor, 2e-6), row


def test_the_shipped_kernel_of_spd2_is_the_exact_one(shipped, double):
    exact = calor.heat_kernel(calor.SPD(2), "exact")
    axis = np.linspace(-4, 4, 15)
    r = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    x = jax.vmap(lambda r: jnp.diag(jnp.exp(r)))(jnp.asarray(r[np.linalg.norm(r, axis=1) <= 4]))
    for t in (0.02, 0.1, 0.5, 1.0):
        errors = jax.vmap(
            lambda x: (
                shipped["spd:2"].log_prob_at(jnp.asarray(t), x, jnp.eye(2))
                - exact.log_prob_at(jnp.asarray(t), x, jnp.eye(2))
            )
        )(x)
        assert jnp.max(jnp.abs(errors)) < 3e-4


@pytest.mark.parametrize("name", ["spd:3", "spd:10"])
def test_shipped_kernels_solve_the_equation(name, shipped, double):
    kernel = shipped[name]
    assert kernel.certificate.initial_error == 0
    manifold = kernel.manifold
    origin = manifold.origin()

    @jax.jit
    @jax.vmap
    def residual(t, key):
        x = manifold.walk(t, origin, key)
        return kernel.solution.terms(t, x, origin).normalized_residual()

    t = jnp.repeat(jnp.array([0.1, 0.3, 0.5, 1.0]), 24)
    values = residual(t, jr.split(jr.key(3), len(t))).reshape(4, -1)
    assert jnp.max(jnp.mean(values, axis=1)) < 1e-4


def test_scores_on_spd_are_right_and_finite_at_repeated_eigenvalues(shipped):
    kernel, eye = shipped["spd:3"], jnp.eye(3)
    np.testing.assert_allclose(kernel.score(0.3, eye, eye), np.zeros((3, 3)), atol=1e-5)
    twice = jnp.diag(jnp.array([2.0, 2.0, 0.5]))
    assert np.all(np.isfinite(kernel.score(0.3, twice, eye)))
    x0 = kernel.manifold.random_point(jr.key(0))
    x = kernel.sample(0.3, x0, key=jr.key(1))
    v = kernel.manifold.random_tangent(jr.key(2), x)
    with jax.enable_x64(True):
        x, x0, v = (jnp.asarray(np.asarray(a, np.float64)) for a in (x, x0, v))
        x, x0, v = ((a + a.T) / 2 for a in (x, x0, v))
        ahead, behind = (
            kernel.log_prob(0.3, kernel.manifold.exp(x, s * v), x0) for s in (1e-4, -1e-4)
        )
        slope = kernel.manifold.inner(x, kernel.score(0.3, x, x0), v)
        np.testing.assert_allclose(slope, (ahead - behind) / 2e-4, rtol=1e-5)


def test_the_best_kernel_is_chosen(shipped):
    assert isinstance(calor.heat_kernel(calor.SPD(10)), calor.LearnedKernel)
    assert isinstance(calor.heat_kernel(calor.SPD(7)), calor.FirstOrder)
    assert not isinstance(calor.heat_kernel(calor.Sphere(2)), calor.LearnedKernel)
    product = calor.heat_kernel(calor.Product(calor.SPD(3), calor.SPD(10)), "pinn")
    assert len(product.kernels) == 2
    assert shipped["so3"].certificate is shipped["so3"].cover.certificate


# Draws.


@pytest.mark.parametrize("t", [0.3])
def test_draws_on_spd10_have_the_moments_of_brownian_motion(t, shipped):
    kernel, n, count = shipped["spd:10"], 10, 3000

    @jax.jit
    @jax.vmap
    def draw(key):
        return kernel.sample_with_acceptance(t, jnp.eye(n), key=key)

    x, acceptance = draw(jr.split(jr.key(0), count))
    assert jnp.mean(acceptance) > 0.8
    log_det = np.linalg.slogdet(np.asarray(x, np.float64))[1]
    assert abs(np.mean(log_det)) < 4 * np.sqrt(2 * n * t / count)
    assert abs(np.var(log_det) / (2 * n * t) - 1) < 4 * np.sqrt(2 / count)
    trace = np.trace(np.asarray(x), axis1=1, axis2=2)
    truth = n * np.exp((n + 1) * t / 2)
    assert abs(np.mean(trace) - truth) < 4 * np.std(trace) / np.sqrt(count)


@pytest.mark.parametrize("sampler", ["fast", "mcmc"])
def test_draws_on_the_sphere_have_the_moments_of_brownian_motion(sampler, shipped):
    kernel, count = shipped["sphere:2"], 4000
    x0 = kernel.manifold.origin()
    for t in (0.05, 0.4, 2.0):
        draw = jax.vmap(lambda k: kernel.sample(t, x0, key=k, sampler=sampler))
        cosine = np.asarray(draw(jr.split(jr.key(1), count)) @ x0)
        for value, truth in (
            (cosine, np.exp(-2 * t)),
            (1.5 * cosine**2 - 0.5, np.exp(-6 * t)),
        ):
            assert abs(np.mean(value) - truth) < 4.5 * np.std(value) / np.sqrt(count)


def test_the_walk_of_the_paper_reports_its_acceptance(shipped):
    kernel = shipped["spd:2"]
    eye = jnp.eye(2)

    @jax.jit
    @jax.vmap
    def draw(key):
        return sampling.metropolis_walk(
            kernel.manifold, lambda x: kernel.log_prob_at(jnp.asarray(0.2), x, eye), 0.2, eye, key
        )

    x, acceptance = draw(jr.split(jr.key(2), 2000))
    assert 0.1 < jnp.mean(acceptance) < 0.8
    log_det = np.linalg.slogdet(np.asarray(x, np.float64))[1]
    assert abs(np.var(log_det) / 0.8 - 1) < 4 * np.sqrt(2 / 2000)


# Files.


def test_a_kernel_comes_back_from_its_file(small, tmp_path):
    calor.save(tmp_path / "h2.calor", small)
    again = calor.load(tmp_path / "h2.calor")
    assert (tmp_path / "h2.calor").stat().st_size < 300_000
    assert [path.name for path in tmp_path.iterdir()] == ["h2.calor"]
    x0 = calor.Hyperbolic(2).origin()
    x = small.sample(0.5, x0, key=jr.key(0))
    assert again.log_prob(0.5, x, x0) == small.log_prob(0.5, x, x0)
    np.testing.assert_array_equal(again.sample(0.5, x0, key=jr.key(0)), x)
    assert str(again.certificate) == str(small.certificate)
    assert again.about == small.about


def rewrite_header(path, change):
    """Change the JSON header of a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    ours = json.loads(header["__metadata__"]["calor"])
    change(ours)
    header["__metadata__"]["calor"] = json.dumps(ours)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def test_bad_files_are_explained(small, tmp_path):
    good = tmp_path / "h2.calor"
    calor.save(good, small)
    data = good.read_bytes()
    bad = tmp_path / "bad.calor"
    for content in (b"", b"not a kernel", data[:100], data[:-8], data[:50] + b"\0" * 20):
        bad.write_bytes(content)
        with pytest.raises(calor.FileError, match=r"bad\.calor is damaged"):
            calor.load(bad)
    from safetensors.numpy import save_file

    save_file({"weights": np.zeros(3)}, bad)
    with pytest.raises(calor.FileError, match="not written by calor"):
        calor.load(bad)
    bad.write_bytes(data)
    rewrite_header(bad, lambda header: header.update(format=99, calor="9.0"))
    with pytest.raises(calor.FileError, match=r"newer version of calor \(9.0"):
        calor.load(bad)
    bad.write_bytes(data)
    rewrite_header(bad, lambda header: header["value"].update({"class": "os.system"}))
    with pytest.raises(calor.FileError, match="damaged"):
        calor.load(bad)
    bad.write_bytes(data)
    rewrite_header(bad, lambda header: header.update(kind="state"))
    with pytest.raises(calor.FileError, match="holds a state"):
        calor.load(bad)
    with pytest.raises(FileNotFoundError, match="no file"):
        calor.load(tmp_path / "absent.calor")
    with pytest.raises(TypeError, match=r"calor\.solve"):
        calor.save(bad, calor.heat_kernel(calor.Sphere(2)))


def test_a_failed_write_leaves_the_old_file(small, tmp_path, monkeypatch):
    path = tmp_path / "h2.calor"
    calor.save(path, small)
    before = path.read_bytes()
    monkeypatch.setattr("calor.store.files.to_bytes", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        calor.save(path, small)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["h2.calor"]


def test_nothing_is_compiled_twice(shipped):
    kernel, traces = shipped["sphere:2"], []

    @eqx.filter_jit
    def log_prob(kernel, t, x, x0):
        traces.append(1)
        return kernel.log_prob(t, x, x0)

    x0 = kernel.manifold.origin()
    again = calor.heat_kernel(calor.Sphere(2), "pinn")
    for t in (0.2, 1.5):
        log_prob(kernel, jnp.asarray(t), x0, x0)
    assert len(traces) == 1
    assert log_prob(again, jnp.asarray(0.2), x0, x0) == kernel.log_prob(0.2, x0, x0)
