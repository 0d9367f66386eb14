"""SPD(n) in use: centring, the first guess, data at the door, loaders and experiments."""

import json
import os
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import calor
from calor import checkpoint, data, datasets, denoisers, fitting, gaussian, guesses, regression
from calor.cli import main
from calor.experiments import _rivals, eeg, taxi
from calor.manifolds._symmetric import symmetric_sqrt
from calor.networks import Network
from calor.solutions import radial_terms
from calor.training import Training

RNG = np.random.default_rng(0)
TINY = Training(steps=2, batch=8, validate_every=2)


def matrices(count, n, spread=0.3, seed=0):
    """Random matrices around one that is not the identity."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(count, n, n)) * spread
    middle = np.diag(np.geomspace(0.1, 10, n))
    root = np.sqrt(middle)
    made = _rivals.metrics.matrix_function(noise + noise.transpose(0, 2, 1), np.exp)
    return root @ made @ root


def random_rotation(n):
    return np.linalg.qr(RNG.normal(size=(n, n)))[0]


def test_square_root_has_derivatives_at_repeated_eigenvalues(double):
    e = RNG.normal(size=(3, 3))
    e = jnp.asarray(e + e.T)
    for x in (jnp.eye(3), jnp.diag(jnp.array([1.0, 1.0, 4.0]))):
        root = jax.jit(lambda h, x=x: symmetric_sqrt(x + h * e))
        np.testing.assert_allclose(root(0.0) @ root(0.0), x, atol=1e-14)
        first, second = jax.jit(jax.jacfwd(root)), jax.jit(jax.jacfwd(jax.jacfwd(root)))
        h = 1e-4
        np.testing.assert_allclose(first(0.0), (root(h) - root(-h)) / (2 * h), atol=1e-7)
        difference = (root(h) - 2 * root(0.0) + root(-h)) / h**2
        np.testing.assert_allclose(second(0.0), difference, atol=1e-6)


def test_the_frame_turns_with_the_matrix_and_points_to_the_identity(double):
    manifold = calor.SPD(3)
    x = jnp.asarray(matrices(1, 3)[0])
    frame = manifold.frame(x)
    products = jax.vmap(jax.vmap(manifold.inner, (None, None, 0)), (None, 0, None))(x, frame, frame)
    np.testing.assert_allclose(products, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(
        jnp.tensordot(-manifold.embedding(x), frame, axes=1),
        manifold.log(x, jnp.eye(3)),
        atol=1e-12,
    )
    turn = jnp.asarray(random_rotation(3))
    symmetric = jnp.asarray(matrices(1, 3, seed=1)[0])

    def vector(x, s):
        i, j = np.tril_indices(3)
        return jnp.tensordot(s[i, j] * np.where(i == j, 1, np.sqrt(2)), manifold.frame(x), axes=1)

    turned = vector(turn @ x @ turn.T, turn @ symmetric @ turn.T)
    np.testing.assert_allclose(turned, turn @ vector(x, symmetric) @ turn.T, atol=1e-10)


def test_centring_is_an_isometry(double):
    manifold = calor.SPD(3)
    a, b, centre = (jnp.asarray(m) for m in matrices(3, 3))
    inside = manifold.to_origin(a, centre), manifold.to_origin(b, centre)
    np.testing.assert_allclose(manifold.dist(*inside), manifold.dist(a, b), rtol=1e-10)
    np.testing.assert_allclose(manifold.to_origin(centre, centre), np.eye(3), atol=1e-12)
    np.testing.assert_allclose(manifold.from_origin(inside[0], centre), a, rtol=1e-10)


def test_volume_of_the_chart_is_that_of_the_metric(double):
    manifold = calor.SPD(3)
    z = jnp.asarray(RNG.normal(size=6))
    x = manifold.decode(z)
    tangents = jnp.moveaxis(jax.jacfwd(manifold.decode)(z), -1, 0)
    gram = jax.vmap(jax.vmap(manifold.inner, (None, None, 0)), (None, 0, None))(
        x, tangents, tangents
    )
    expected = jnp.linalg.slogdet(gram)[1] / 2
    np.testing.assert_allclose(manifold.log_chart_volume(x), expected, rtol=1e-9)


def test_rows_are_predicted_by_all_others(monkeypatch):
    """The closed form of leave-one-out against leaving one out."""
    rows, places = RNG.normal(size=(15, 2)), RNG.normal(size=(15, 3))
    lengths = np.array([0.7, 0.2])
    monkeypatch.setattr(regression, "_inverse_lengths", lambda *_: lengths)
    monkeypatch.setattr(regression, "_noises", lambda spectrum, values: np.full(3, 0.4))
    found, others = regression.regress_on_numbers(rows, places)
    mean = places.mean(axis=0)
    scaled = rows * lengths
    for i in (0, 7):
        rest = np.arange(15) != i
        kernel = regression._kernel_matrix(scaled[rest], scaled[rest]) + 0.4 * np.eye(14)
        across = regression._kernel_matrix(scaled[i : i + 1], scaled[rest])[0]
        expected = mean + across @ np.linalg.solve(kernel, places[rest] - mean)
        np.testing.assert_allclose(others[i], expected, rtol=1e-9)
    kernel = regression._kernel_matrix(scaled, scaled)
    expected = mean + kernel @ np.linalg.solve(kernel + 0.4 * np.eye(15), places - mean)
    predicted = jax.vmap(found)(jnp.asarray(rows, jnp.float32))
    np.testing.assert_allclose(predicted, expected, atol=1e-5)


def test_means_of_labels_without_the_row_itself():
    labels = np.eye(2)[[0, 0, 0, 1, 1]]
    places = RNG.normal(size=(5, 2))
    found, others = regression.regress_on_labels(labels, places)
    expected = (places[1] + places[2] + places.mean(axis=0)) / 3
    np.testing.assert_allclose(others[0], expected)
    expected = (places[3] + places[4] + places.mean(axis=0)) / 3
    np.testing.assert_allclose(found(jnp.array([0.0, 1.0])), expected, rtol=1e-6)


def test_regression_finds_which_number_matters():
    rows = RNG.normal(size=(120, 3))
    places = np.stack([np.sin(2 * rows[:, 1]), np.cos(2 * rows[:, 1])], axis=1)
    places += 0.1 * RNG.normal(size=places.shape)
    found, others = regression.regress_on_numbers(rows, places)
    assert np.mean((others - places) ** 2) < 0.05
    lengths = np.asarray(found.inverse_lengths)
    assert lengths[1] > 3 * max(lengths[0], lengths[2])


def test_gaussian_law_score_and_draws(double):
    residuals = RNG.normal(size=(400, 3)) * [2.0, 1.0, 0.5]
    labels = np.arange(400) % 2
    residuals[labels == 1] *= 3
    law = gaussian.fit_gaussian(residuals, labels)
    features = jnp.array([0.0, 1.0, 0.3, -0.2, 0.1])
    z, t = jnp.array([1.0, 2.0, -1.0]), jnp.asarray(0.3)
    slope = jax.grad(lambda z: law.log_prob(z, 2 * t, features))(z)
    np.testing.assert_allclose(law.score(z, t, features), slope, rtol=1e-10)
    draws = jax.vmap(lambda k: law.sample(k, 2 * t, features))(jr.split(jr.key(0), 20000))
    expected = (residuals[labels == 1].T @ residuals[labels == 1]) / 200 + 0.6 * np.eye(3)
    np.testing.assert_allclose(np.mean(draws, axis=0), features[2:], atol=0.15)
    np.testing.assert_allclose(np.diag(np.cov(draws.T)), np.diag(expected), rtol=0.08)


def test_gaussian_law_of_told_widths(double):
    """Score, density and draws where features tell the mean and how wide each direction is."""
    turn, variances = random_rotation(3), np.array([0.5, 1.0, 2.0])
    law = gaussian.Gaussian(jnp.asarray(turn)[None], jnp.asarray(variances)[None], scaled=True)
    mean, factors = np.array([0.3, -0.2, 0.1]), np.array([4.0, 0.25, 1.5])
    features = jnp.concatenate([jnp.array([9.0, -7.0]), mean, np.log(factors)])
    z, t = jnp.array([1.0, 2.0, -1.0]), jnp.asarray(0.3)
    covariance = (turn * variances * factors) @ turn.T + 0.6 * np.eye(3)
    expected = multivariate_normal(mean, covariance)
    found = law.log_prob(z, 2 * t, features)
    np.testing.assert_allclose(found, expected.logpdf(z), rtol=1e-12)
    slope = jax.grad(lambda z: law.log_prob(z, 2 * t, features))(z)
    np.testing.assert_allclose(law.score(z, t, features), slope, rtol=1e-10)
    draws = jax.vmap(lambda k: law.sample(k, 2 * t, features))(jr.split(jr.key(0), 20000))
    np.testing.assert_allclose(np.mean(draws, axis=0), mean, atol=0.05)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.08)


def test_widths_follow_the_condition():
    """Places that scatter more for larger numbers, one direction more than the other."""
    rng = np.random.default_rng(2)
    rows = rng.uniform(-1, 1, size=(600, 1))
    deviations = np.exp(rows * [1.0, 0.2])
    places = 0.1 * deviations * rng.normal(size=(600, 2))
    mean, others = regression.regress_on_numbers(rows, places, np.array([1.0]))
    squares = (places - others) ** 2
    found, logs = regression.regress_factors(rows, squares, mean)
    np.testing.assert_allclose(np.mean(squares / np.exp(logs), axis=0), np.mean(squares, axis=0))
    ends = np.asarray(jax.vmap(found)(jnp.array([[-0.8], [0.8]], jnp.float32)))
    np.testing.assert_allclose(ends[1] - ends[0], [3.2, 0.64], atol=0.7)
    high = jnp.array([0.8], jnp.float32)
    np.testing.assert_allclose(mean.beside(found)(high), [*mean(high), *ends[1]], atol=1e-5)


@pytest.mark.parametrize("given", [False, True])
def test_held_out_rows_are_told_what_all_others_predict(given):
    """Unless they were given by themselves: then they are predicted and predict nothing."""
    manifold, values = calor.SPD(2), matrices(40, 2)
    numbers = RNG.normal(size=(40, 1))
    validation = (values[:10], numbers[:10]) if given else 0.25
    rest = slice(10, None) if given else slice(None)
    prepared = data.prepare(manifold, values[rest], numbers[rest], validation, jr.key(0), "fit")
    found, law = guesses.find_gaussian(None, manifold, prepared, "fit")
    assert law.scaled
    assert found.encoder.regression.rows.shape == (30 if given else 40, 1)
    told = np.asarray(found.held_features)
    assert told.shape == (10, 1 + 3 + 3)
    predicted = np.asarray(jax.vmap(found.encoder.regression)(prepared.held_features))
    assert np.allclose(told[:, 1:], predicted, atol=1e-5) == given
    lowest, highest = law.widths(found.features)
    assert 0 < lowest < highest


def test_matrices_that_are_not_centred_have_no_gaussian_around_the_identity():
    manifold = calor.SPD(2)
    prepared = data.prepare(manifold, 9 * matrices(40, 2), None, 0.1, jr.key(0), "fit", False)
    assert guesses.find_gaussian(None, manifold, prepared, "fit")[1] is None
    with pytest.raises(ValueError, match="without conditions needs centred=True"):
        guesses.find_gaussian(True, manifold, prepared, "fit")


def test_wide_data_ask_for_more_centres_where_the_kernel_ends_early():
    manifold = calor.Hyperbolic(4)
    kernel = calor.heat_kernel(manifold)
    product = calor.heat_kernel(calor.Product(manifold, calor.Euclidean(1)), "short-time")
    assert product.latest() == kernel.latest() == manifold.curved_from() == 0.5
    points = jax.vmap(
        lambda v: manifold.exp(manifold.origin(), manifold.tangent(manifold.origin(), v))
    )
    points = points(2 * jr.normal(jr.key(0), (30, 5)))
    scales = data.find_scales(manifold, points, None, None, "fit", kernel)
    assert scales.t1 == 0.5 < scales.wanted
    with pytest.warns(calor.PriorWarning, match=r"up to t1 = 0\.5 only.*centres=64"):
        fitting.make_prior(kernel, points, scales.t1, 1, jr.key(0), "fit", scales.wanted)


def test_prior_survives_a_file():
    law = gaussian.fit_gaussian(RNG.normal(size=(9, 3)), None)
    law = gaussian.Gaussian(law.vectors, law.variances, scaled=True)
    prior = gaussian.GaussianPrior(calor.SPD(2), law, jnp.asarray(0.3))
    arrays = {}
    code = json.loads(json.dumps(checkpoint._encode(prior, arrays)))
    again = checkpoint._decode(code, arrays, None)
    assert eqx.tree_equal(again, prior)


def test_shrinkage_keeps_the_trace_and_helps_where_rows_are_few():
    truth = np.diag([1.0, 1.0, 2.0, 2.0, 3.0, 3.0])
    few = RNG.normal(size=(100, 10, 6)) @ np.sqrt(truth)
    raw = np.einsum("mni,mnj->mij", few, few) / 10
    found = np.stack([gaussian.shrunk(rows) for rows in few])
    traces = (np.trace(m, axis1=1, axis2=2) for m in (found, raw))
    np.testing.assert_allclose(*traces, rtol=1e-6)
    assert np.mean((found - truth) ** 2) < 0.6 * np.mean((raw - truth) ** 2)
    many = RNG.normal(size=(50000, 6)) @ np.sqrt(truth)
    np.testing.assert_allclose(gaussian.shrunk(many), truth, atol=0.1)


def test_matrices_at_the_door():
    manifold = calor.SPD(3)
    good = matrices(4, 3)
    check = lambda values, **more: data.checked_points(manifold, values, "fit", **more)
    off = good.copy()
    off[0, 0, 1] += 1e-7
    found = np.asarray(check(off))
    np.testing.assert_array_equal(found, found.transpose(0, 2, 1))
    with pytest.raises(TypeError, match="complex128.*real part"):
        check(good + 0j)
    bad = good.copy()
    bad[2] -= 10 * np.eye(3)
    with pytest.raises(ValueError, match=r"data\[2\].*not positive definite"):
        check(bad)
    bad = good.copy()
    bad[1, 0, 2] += 1.0
    with pytest.raises(ValueError, match=r"data\[1\].*not symmetric"):
        check(bad)
    # A condition number that all share is taken away by centring, one of a single matrix is not.
    mixing = random_rotation(3) @ np.diag([1e-2, 1.0, 1e2])
    shared = mixing @ good @ mixing.T
    found = check(shared, centre=mixing @ good.mean(axis=0) @ mixing.T)
    expected = np.asarray(check(good, centre=good.mean(axis=0)))
    np.testing.assert_allclose(np.linalg.eigvalsh(found), np.linalg.eigvalsh(expected), rtol=1e-3)
    with pytest.raises(ValueError, match=r"data\[0\] is nearly singular: rounding to float32"):
        check(shared)


@pytest.mark.slow
def test_conditional_model_of_matrices(tmp_path):
    """The mean follows the condition, in the given coordinates; it survives a file."""
    rng = np.random.default_rng(3)
    condition = rng.uniform(-1, 1, size=(160, 1))
    noise = 0.05 * rng.normal(size=(160, 2, 2))
    symmetric = noise + noise.transpose(0, 2, 1)
    symmetric[:, 0, 0] += condition[:, 0]
    root = np.diag([1.0, 30.0])
    points = root @ _rivals.metrics.matrix_function(symmetric, np.exp) @ root
    kernel = calor.heat_kernel(calor.SPD(2))
    network = Network(width=16, depth=1, frequencies=0)
    training = Training(steps=20, batch=64, validate_every=20, learning_rate=1e-3)
    model = calor.fit(
        kernel, points, condition=condition, key=jr.key(0), network=network, training=training
    )
    for value in (-0.8, 0.8):
        drawn = np.asarray(model.sample(200, condition=[[value]], key=jr.key(1), steps=40), float)
        logs = np.log(drawn[:, 0, 0])
        assert abs(np.mean(logs) - value) < 0.05
        assert 0.05 < np.std(logs) < 0.16
        assert 6.5 < np.mean(np.log(drawn[:, 1, 1])) < 7.1
    likely = model.log_prob(points[:20], condition=condition[:20])
    unlikely = model.log_prob(points[:20], condition=-condition[:20])
    assert np.mean(likely) > np.mean(unlikely)
    model.save(tmp_path / "model.calor")
    loaded = calor.load(tmp_path / "model.calor")
    again = loaded.log_prob(points[:20], condition=condition[:20])
    np.testing.assert_allclose(again, likely, rtol=1e-5)


@pytest.mark.slow
def test_likelihood_on_spd3_integrates_to_one():
    """By importance sampling from a wide wrapped Gaussian, in coordinates that are not centred."""
    manifold, points = calor.SPD(3), matrices(200, 3, 0.2)
    model = calor.fit(
        calor.heat_kernel(manifold),
        points,
        key=jr.key(0),
        network=Network(width=16, depth=1, frequencies=0),
        training=Training(steps=30, batch=64, validate_every=30),
    )
    assert model.centre is not None
    centre = jnp.asarray(model.centre, jnp.float32)
    inside = jax.vmap(lambda x: manifold.to_origin(x, centre))(jnp.asarray(points, jnp.float32))
    covariance = 1.5 * np.cov(np.asarray(jax.vmap(manifold.embedding)(inside)).T)
    proposal = multivariate_normal(np.zeros(6), covariance, seed=1)
    z = proposal.rvs(600)
    near = jax.vmap(manifold.decode)(jnp.asarray(z, jnp.float32))
    volumes = np.asarray(jax.vmap(manifold.log_chart_volume)(near))
    x = jax.vmap(lambda x: manifold.from_origin(x, centre))(near)
    ratios = np.exp(np.asarray(model.log_prob(x), float) - proposal.logpdf(z) + volumes)
    error = np.std(ratios) / np.sqrt(len(ratios))
    assert error < 0.05
    assert abs(np.mean(ratios) - 1) < 3 * error + 0.02


@pytest.mark.slow
def test_likelihood_on_spd10_of_a_wrapped_gaussian():
    """In 55 dimensions a factor of two in the variance would be off by eight."""
    manifold, width = calor.SPD(10), 0.1
    rng = np.random.default_rng(1)
    root = np.diag(np.geomspace(0.3, 3, 10))
    z = jnp.asarray(width * rng.normal(size=(1040, 55)), jnp.float32)
    inside = jax.vmap(manifold.decode)(z)
    truth = multivariate_normal(np.zeros(55), width**2 * np.eye(55)).logpdf(z)
    truth = truth - np.asarray(jax.vmap(manifold.log_chart_volume)(inside))
    points = root @ np.asarray(inside, float) @ root
    model = calor.fit(
        calor.heat_kernel(manifold),
        points[40:],
        key=jr.key(0),
        network=Network(width=16, depth=1, frequencies=0),
        training=TINY,
    )
    found = np.asarray(model.log_prob(points[:40]), float)
    assert abs(np.mean(found - truth[:40])) < 1.0
    assert np.corrcoef(found, truth[:40])[0, 1] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("manifold", "bound"),
    [
        (calor.SPD(5), 0.04),
        (calor.SPD(13), 0.1),
        (calor.SPD(22), 0.15),
        (calor.Hyperbolic(4), 0.02),
        (calor.Hyperbolic(7), 0.04),
    ],
    ids=str,
)
def test_the_closed_form_is_good_for_the_times_in_use(manifold, bound, double):
    """The residual of the equation, added up to the last time that `fit` chooses by itself."""
    law = calor.heat_kernel(manifold)
    assert isinstance(law, calor.FirstOrder)
    origin = manifold.origin()
    phi = lambda t, y: law._gaussian(t, y) + law._correction(t, y)
    residual = lambda t, y: radial_terms(phi, manifold, t, y).residual()

    @jax.jit
    @jax.vmap
    def look(t, key):
        y = manifold.kernel_coordinates(law._sample(t, origin, key), origin)
        slope, score = jax.grad(residual, 1)(t, y), jax.grad(phi, 1)(t, y)
        return residual(t, y), jnp.linalg.norm(slope), jnp.linalg.norm(score)

    last = law.latest()
    times = jnp.linspace(0, last, 129)[1:]
    found = look(times, jr.split(jr.key(0), 128))
    total, slopes, scores = (np.abs(values) for values in found)
    assert last * np.mean(total) < bound
    assert last * np.mean(slopes) / np.mean(scores[-8:]) < 0.004


@pytest.mark.slow
def test_a_last_time_beyond_the_closed_form_is_warned_of():
    values = matrices(30, 4)
    with pytest.warns(calor.PoorKernelWarning, match=r"t1 = 5 is later than 1\.7.*calor\.solve"):
        calor.fit(
            calor.heat_kernel(calor.SPD(4)),
            values,
            key=jr.key(0),
            t1=5.0,
            training=TINY,
            network=Network(width=8, depth=1),
        )


# Denoisers of the paper.


def test_lifting_eigenvalues_has_derivatives_where_they_meet(double):
    e = RNG.normal(size=(3, 3))
    e = jnp.asarray(e + e.T)
    for x in (jnp.eye(3), jnp.diag(jnp.array([2.0, -1.0, -1.0]))):
        lifted = lambda h, x=x: denoisers.rectify(x + h * e)
        h = 1e-5
        found = jax.jvp(lifted, (0.0,), (1.0,))[1]
        np.testing.assert_allclose(found, (lifted(h) - lifted(-h)) / (2 * h), atol=1e-8)
        slope = jax.grad(lambda h: jnp.sum(lifted(h) * e))(0.0)
        np.testing.assert_allclose(slope, jnp.sum(found * e), rtol=1e-8)


def test_spd_net_has_the_sizes_of_the_paper_and_names_matrices():
    network = denoisers.spd_net(jr.key(0), calor.SPD(10), 2, (1e-3, 0.1))
    sizes = [network.maps[0].shape[1], *(weight.shape[0] for weight in network.maps)]
    assert sizes == [10, 10, 6, 6, 3, 3, 6, 6, 10, 10]
    network = denoisers.spd_net(jr.key(0), calor.SPD(4), 2, (1e-3, 0.1))
    x = jnp.asarray(matrices(1, 4, 0.05)[0], jnp.float32)
    total = lambda network: jnp.sum(network(x, jnp.asarray(0.01), jnp.ones(2)))
    value, slope = eqx.filter_jit(eqx.filter_value_and_grad(total))(network)
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slope))
    made = eqx.filter_jit(network)(x, jnp.asarray(0.01), jnp.ones(2))
    np.testing.assert_allclose(made, made.T, atol=1e-5)
    assert np.linalg.eigvalsh(made)[0] > 0
    with pytest.raises(ValueError, match=r"for SPD\(n\), not for Sphere"):
        denoisers.spd_net(jr.key(0), calor.Sphere(2), 0, (1e-3, 0.1))


@pytest.mark.slow
@pytest.mark.parametrize("score", [calor.SPDNetScore, calor.TriangularScore])
def test_denoisers_of_the_paper_are_fitted_and_kept(score, tmp_path):
    kernel, values = calor.heat_kernel(calor.SPD(3)), matrices(60, 3)
    options = {"network": Network(width=16, depth=1), "training": TINY, "key": jr.key(0)}
    labels = np.repeat(["a", "b"], 30)
    model = calor.fit(kernel, values, condition=labels, score=score, **options)
    model.save(tmp_path / "model.calor")
    again = calor.load(tmp_path / "model.calor")
    drawn = again.sample(8, condition="a", key=jr.key(1), steps=5)
    np.testing.assert_array_equal(drawn, model.sample(8, condition="a", key=jr.key(1), steps=5))
    assert np.all(np.linalg.eigvalsh(drawn) > 0)


# Data sets.


def recording(sessions=("0", "1", "2"), runs=("0", "1")):
    """Trials as a paradigm of moabb returns them: signals, labels, and a table about them."""
    rng = np.random.default_rng(5)
    about = {"subject": [], "session": [], "run": []}
    for subject in (1, 2):
        for session in sessions:
            for run in runs:
                for name, value in (("subject", subject), ("session", session), ("run", run)):
                    about[name] += [value] * 4
    count = len(about["run"])
    mixing = rng.normal(size=(5, 5))
    signals = np.einsum("ij,njs->nis", mixing, rng.normal(size=(count, 5, 80)))
    labels = np.array(["feet", "right_hand"] * (count // 2))
    return signals, labels, {name: np.array(values) for name, values in about.items()}


def test_recordings_become_covariances():
    from sklearn.covariance import oas

    signals, labels, about = recording()
    found, kept, groups = datasets.from_recordings(signals, labels, about, by_session=True)
    assert found.shape == (32, 5, 5)  # the third session is left out
    assert len(np.unique(groups)) == 4
    np.testing.assert_allclose(found[0], oas(signals[0].T)[0])
    found, kept, groups = datasets.from_recordings(signals, labels, about, by_session=False)
    assert (len(found), len(kept), len(np.unique(groups))) == (48, 48, 12)
    parts = eeg.folds("BNCI2014-002", groups)
    assert len(parts) == 5
    assert sorted(np.concatenate(parts)) == list(range(48))
    for part in parts:
        assert not set(groups[part]) & set(np.delete(groups, part))


def test_moabb_is_asked_by_the_protocol(monkeypatch):
    asked = []
    package = types.ModuleType("moabb")
    package.datasets = types.ModuleType("moabb.datasets")
    package.paradigms = types.ModuleType("moabb.paradigms")
    package.datasets.BNCI2015_001 = lambda: "recordings of 2015-001"

    class MotorImagery:
        def get_data(self, source):
            asked.append(source)
            return recording()

    package.paradigms.MotorImagery = MotorImagery
    for name in ("moabb", "moabb.datasets", "moabb.paradigms"):
        module = package if name == "moabb" else getattr(package, name.split(".")[1])
        monkeypatch.setitem(__import__("sys").modules, name, module)
    found, labels, _ = datasets.moabb("BNCI2015-001")
    assert asked == ["recordings of 2015-001"]
    assert len(found) == len(labels) == 32
    with pytest.raises(ValueError, match="known are BNCI2014-002 and BNCI2015-001"):
        datasets.moabb("BNCI2014-001")


def test_moabb_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "moabb.datasets", None)
    with pytest.raises(datasets.DataError, match=r"calor\[eeg\]"):
        datasets.moabb("BNCI2014-002")


# Rivals.


def test_charts_of_rivals_lead_back():
    values = matrices(6, 3)
    chart = _rivals.LogEuclidean(values)
    inside = chart.inside(values)
    np.testing.assert_allclose(inside.mean(axis=0), 0, atol=1e-8)
    np.testing.assert_allclose(chart.outside(inside), values, rtol=1e-9)
    triangle = _rivals.Triangle(values)
    np.testing.assert_allclose(triangle.outside(triangle.inside(values)), values, rtol=1e-9)
    standard = _rivals.Standardized(triangle, values)
    np.testing.assert_allclose(standard.inside(values).std(axis=0), 1, rtol=1e-9)
    np.testing.assert_allclose(standard.outside(standard.inside(values)), values, rtol=1e-9)
    assert np.all(np.linalg.eigvalsh(triangle.outside(5 * RNG.normal(size=(9, 6)))) > 0)


@pytest.mark.parametrize("draw", [_rivals.linear_regression, _rivals.extra_trees])
def test_regressions_follow_the_predictors(draw):
    values = matrices(80, 2, 0.05)
    predictors = RNG.uniform(-1, 1, size=(80, 3))
    values = values * np.exp(predictors[:, :1, None])
    drawn = draw(predictors[:60], values[:60], predictors[60:], 20, 0)
    drawn = drawn[0] if isinstance(drawn, tuple) else drawn
    assert drawn.shape == (20, 20, 2, 2)
    means = _rivals.metrics.frechet_means(drawn)
    seen = np.log(np.linalg.det(means)) / 2
    assert np.corrcoef(seen, predictors[60:, 0])[0, 1] > 0.9


def test_gaussian_by_class():
    values = np.concatenate([matrices(30, 2), 9 * matrices(30, 2)])
    labels = np.repeat(["a", "b"], 30)
    made = _rivals.gaussian_by_class(values, labels, 0)
    ratio = np.linalg.det(made[30:]).mean() / np.linalg.det(made[:30]).mean()
    assert 30 < ratio < 200


def test_experiments_refuse_what_they_do_not_know():
    with pytest.raises(ValueError, match="taxi: known data sets are random, contiguous"):
        taxi.Settings.of("quick", ["mars"], None)
    with pytest.raises(ValueError, match="eeg: seeds must be at least 1"):
        eeg.Settings.of("quick", None, 0)
    parts = taxi.folds("random", 23)
    assert sorted(np.concatenate(parts)) == list(range(23))


@pytest.mark.slow
@pytest.mark.skipif("CALOR_DATA" not in os.environ, reason="CALOR_DATA is not set")
@pytest.mark.parametrize("experiment", ["taxi", "eeg"])
def test_reproduce_quickly(experiment, tmp_path, capsys):
    only = ["random"] if experiment == "taxi" else ["fists or feet"]
    arguments = ["reproduce", experiment, "--budget", "quick", "--only", *only]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    assert "calor" in capsys.readouterr().out
    results = json.loads((tmp_path / f"{experiment}.json").read_text())["results"]
    assert set(results[only[0]]) == set((taxi if experiment == "taxi" else eeg).METHODS)


def test_condition_as_an_array_of_the_same_file(tmp_path, monkeypatch):
    """`calor fit data.npz --condition predictors` finds points and predictors by themselves."""
    from calor import diffusion

    seen = {}

    def fit(kernel, points, *, condition, **more):
        seen.update(points=points, condition=condition)
        raise ValueError("enough")

    monkeypatch.setattr(diffusion, "fit", fit)
    values, predictors = matrices(12, 2), RNG.normal(size=(12, 3))
    file = tmp_path / "data.npz"
    np.savez(file, predictors=predictors, spd=values)
    arguments = ["fit", "--manifold", "spd:2", str(file), "--condition", "predictors"]
    assert main([*arguments, "--out", str(tmp_path / "a.calor")]) == 2
    np.testing.assert_allclose(seen["points"], values)
    np.testing.assert_allclose(seen["condition"], predictors)
