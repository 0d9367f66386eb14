"""SPD(n) in use: centring, data at the door, models and how good their kernels are."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import calor
from calor.data import prepare as data
from calor.experiments import rivals as _rivals
from calor.heat.equation import radial_terms
from calor.manifolds.matrices import symmetric_sqrt
from calor.models.network import Network
from calor.models.prior import find_prior
from calor.models.times import find_scales
from calor.training.settings import Training
from matrices import matrices, random_rotation

RNG = np.random.default_rng(0)
TINY = Training(steps=2, batch=8, validate_every=2)


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


def test_wide_data_ask_for_more_centres_where_the_kernel_ends_early():
    manifold = calor.Hyperbolic(4)
    kernel = calor.heat_kernel(manifold)
    product = calor.heat_kernel(calor.Product(manifold, calor.Euclidean(1)), "short-time")
    assert product.latest() == kernel.latest() == manifold.curved_from() == 0.5
    points = jax.vmap(
        lambda v: manifold.exp(manifold.origin(), manifold.tangent(manifold.origin(), v))
    )
    points = points(2 * jr.normal(jr.key(0), (30, 5)))
    scales = find_scales(kernel, points)
    assert scales.t1 == 0.5 < scales.t1_asked
    with pytest.warns(calor.PriorWarning, match=r"up to t1 = 0\.5 only.*centres=64"):
        find_prior(kernel, points, scales, 1, jr.key(0))


def test_matrices_at_the_door():
    manifold = calor.SPD(3)
    good = matrices(4, 3)
    check = lambda values, **more: data.checked_points(manifold, values, **more)
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
        kernel,
        points,
        condition=condition,
        parts="diffusion",
        key=jr.key(0),
        network=network,
        training=training,
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
        parts="diffusion",
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
        parts="diffusion",
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
    residual = lambda t, y: radial_terms(law.phi, manifold, t, y).residual()

    @jax.jit
    @jax.vmap
    def look(t, key):
        y = manifold.kernel_coordinates(law.draw(t, origin, key), origin)
        slope, score = jax.grad(residual, 1)(t, y), jax.grad(law.phi, 1)(t, y)
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
            parts="diffusion",
            key=jr.key(0),
            t1=5.0,
            training=TINY,
            network=Network(width=8, depth=1),
        )
