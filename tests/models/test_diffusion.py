"""Diffusion models, flows and kernel densities: right densities, right draws, equivariance."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.special import logsumexp

import calor
from calor.data.conditions import learn_condition
from calor.manifolds.names import manifold_named
from calor.models import likelihood
from calor.models.diffusion import Diffusion
from calor.models.fields import AbstractField
from calor.models.model import mixture_weights
from calor.models.network import field_network
from calor.models.objectives import Denoising, squared_error
from calor.models.prior import KernelPrior, Uniform
from calor.models.times import Times
from calor.training.loop import History
from fits import SHORT, SMALL, fitted, points_of
from quotients import sphere_grid

HISTORY = History.empty(1)


def slow(*values):
    """A case that only runs with -m slow."""
    return pytest.param(*values, marks=pytest.mark.slow)


class MixtureScore(AbstractField):
    """The exact score of noised data whose law is a mixture of heat kernels at `time`."""

    manifold: calor.Manifold
    kernel: calor.HeatKernel
    centres: jax.Array
    time: float
    network: None = None
    guess: None = None

    def log_prob(self, t, x):
        values = jax.vmap(lambda c: self.kernel.log_prob_at(t + self.time, x, c))(self.centres)
        return logsumexp(values) - jnp.log(len(self.centres))

    def vector_at(self, t, x, condition):
        values = jax.vmap(lambda c: self.kernel.log_prob_at(t + self.time, x, c))(self.centres)
        scores = jax.vmap(lambda c: self.kernel.score_at(t + self.time, x, c))(self.centres)
        return jnp.tensordot(jax.nn.softmax(values), scores, axes=1)


def exact_model(name, time=0.1, t1=None, count=3, stop=1e-3):
    manifold = manifold_named(name)
    kernel = calor.heat_kernel(manifold, "exact")
    keys = jr.split(jr.key(3), count)
    origin = manifold.random_point(jr.key(4)) if manifold.is_compact() else manifold.origin()
    spread = 1.0 if manifold.is_compact() else 0.5

    def centre(key):
        return manifold.exp(origin, spread * manifold.random_tangent(key, origin))

    centres = jax.vmap(centre)(keys)
    score = MixtureScore(manifold, kernel, centres, time)
    if manifold.is_compact():
        prior, t1 = Uniform(manifold), 6 / manifold.spectral_gap()
    else:
        prior, t1 = KernelPrior(kernel, 1.0 + time, centres), 1.0
    model = Diffusion(manifold, score, prior, None, None, (stop,), (1.0, 0.0), t1, HISTORY, "{}")
    return model, score


# Densities.

NAMES = [
    "sphere:2",
    *map(slow, ("so3", "hyperbolic:2", "torus:2", "spd:2", "sphere:3", "euclidean:2")),
]


@pytest.mark.parametrize("name", NAMES)
def test_likelihood_of_a_known_mixture(name):
    model, score = exact_model(name)
    draws = jax.vmap(lambda c, k: score.kernel.sample(0.1, c, key=k))
    x = draws(jnp.repeat(score.centres, 8, axis=0), jr.split(jr.key(5), 24))
    found = model.log_prob(x, tolerance=1e-4)
    truth = jax.vmap(lambda x: score.log_prob(jnp.asarray(1e-3), x))(x)
    # On compact manifolds p_T differs from the uniform law by some parts in a thousand.
    np.testing.assert_allclose(found, truth, atol=0.02)


def rotation_grid(size=14):
    """Euler angles; the weights add up to the volume pi^2 of SO(3)."""
    z, weights = np.polynomial.legendre.leggauss(size)
    angle = np.arange(2 * size) * np.pi / size
    a, b, c = (g.ravel() for g in np.meshgrid(angle, np.arccos(z), angle, indexing="ij"))
    quaternion = jax.vmap(lambda v: calor.SO3().from_euler("ZYZ", v))(jnp.stack([a, b, c], 1))
    share = np.broadcast_to(weights[None, :, None], (2 * size, size, 2 * size)).ravel()
    return np.asarray(quaternion), share / share.sum() * np.pi**2


def torus_grid():
    angle = np.arange(40) * 2 * np.pi / 40 - np.pi
    x = np.stack(np.meshgrid(angle, angle), -1).reshape(-1, 2)
    return x, np.full(len(x), (2 * np.pi / 40) ** 2)


def hyperbolic_grid():
    node, weights = np.polynomial.legendre.leggauss(64)
    r = (node + 1) * 4.5
    phi = np.arange(48) * 2 * np.pi / 48
    s = np.sinh(r)[:, None]
    x = np.stack([np.cosh(r)[:, None] + 0 * phi, s * np.cos(phi), s * np.sin(phi)], -1)
    return x.reshape(-1, 3), np.repeat(weights * 4.5 * np.sinh(r), 48) * 2 * np.pi / 48


def spd2_grid():
    """exp(u) times the matrices of determinant one, a hyperbolic plane of radius sqrt(2)."""
    node, weights = np.polynomial.legendre.leggauss(20)
    u, w = node * 4, (node + 1) * 2.5
    phi = np.arange(24) * np.pi / 24
    u_grid, w_grid, angle = (g.ravel() for g in np.meshgrid(u, w, phi, indexing="ij"))
    q = np.stack([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    q = np.moveaxis(q, -1, 0)
    r = np.stack([u_grid + w_grid, u_grid - w_grid], 1)
    x = np.einsum("nij,nj,nkj->nik", q, np.exp(r), q)
    # |dX|^2 = 2 du^2 + 2 dw^2 + 8 sinh^2(w) dphi^2
    cell = np.repeat(np.outer(weights * 4, weights * 2.5).ravel(), 24) * np.pi / 24
    return x, cell * 2 * np.sqrt(8) * np.sinh(w_grid)


GRIDS = {
    "sphere:2": lambda: sphere_grid(47),
    "so3": rotation_grid,
    "torus:2": torus_grid,
    "hyperbolic:2": hyperbolic_grid,
    "spd:2": spd2_grid,
}


@pytest.mark.parametrize("name", ["sphere:2", *map(slow, list(GRIDS)[1:])])
def test_density_integrates_to_one(name):
    model = fitted(name)
    x, weights = GRIDS[name]()
    kernel = calor.heat_kernel(model.manifold, "exact")
    centre = jnp.asarray(points_of(model.manifold, 1)[0])
    log_prob = jax.jit(jax.vmap(kernel.log_prob, (None, 0, None)))
    mass = np.sum(weights * np.exp(log_prob(0.4, jnp.asarray(x, jnp.float32), centre)))
    assert abs(mass - 1) < 3e-3, "the grid itself"
    assert abs(np.sum(weights * np.exp(model.log_prob(x))) - 1) < 0.01


@pytest.mark.slow
def test_estimated_divergence_is_the_exact_one_on_average():
    model = fitted("sphere:3")
    x = points_of(model.manifold, 6)
    exact = model.log_prob(x)
    estimates = jnp.stack([model.log_prob(x, probes=16, key=jr.key(i)) for i in range(12)])
    error = jnp.mean(estimates, axis=0) - exact
    assert jnp.all(jnp.abs(error) < 4 * jnp.std(estimates, axis=0) / np.sqrt(12) + 0.01)
    assert likelihood.EXACT_DIVERGENCE >= 3


# Draws.


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("sphere:2", "walk"),
        slow("sphere:2", "flow"),
        slow("sphere:2", "corrected"),
        slow("so3", "walk"),
        slow("so3", "flow"),
        slow("hyperbolic:2", "walk"),
        slow("hyperbolic:2", "flow"),
        slow("spd:2", "walk"),
        slow("spd:2", "flow"),
    ],
)
def test_draws_follow_the_law(name, method):
    model, score = exact_model(name, count=1, time=0.2)
    manifold, centre = model.manifold, score.centres[0]
    x = model.sample(4000, key=jr.key(7), method=method, steps=100)
    offsets = jax.vmap(manifold.contains)(x)
    assert float(jnp.max(offsets)) < 1e-5
    exact = jax.vmap(lambda k: score.kernel.sample(0.201, centre, key=k))(jr.split(jr.key(8), 4000))
    square = jax.vmap(lambda x: manifold.dist_at(x, centre) ** 2)
    found, truth = np.asarray(square(x)), np.asarray(square(exact))
    error = np.hypot(found.std(), truth.std()) / np.sqrt(4000)
    assert abs(found.mean() - truth.mean()) < 4 * error + 0.02 * truth.mean()
    for level in (0.1, 0.5, 0.9):
        assert abs(np.mean(found < np.quantile(truth, level)) - level) < 0.04


def test_seeds_reproduce_and_methods_are_checked():
    model = fitted("sphere:2")
    first, again = (model.sample(5, key=jr.key(1)) for _ in range(2))
    assert jnp.array_equal(first, again)
    assert not jnp.array_equal(first, model.sample(5, key=jr.key(2)))
    twin = fitted("sphere:2", again=1)
    assert jnp.array_equal(first, twin.sample(5, key=jr.key(1)))
    with pytest.raises(ValueError, match="method must be one of 'walk'"):
        model.sample(5, key=jr.key(1), method="magic")
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        model.sample(0, key=jr.key(1))


# Scores.


@pytest.mark.parametrize("kind", [calor.TangentScore, calor.DenoisedScore])
@pytest.mark.parametrize(
    "name", ["sphere:2", *map(slow, ("torus:2", "hyperbolic:2", "so3*euclidean:3", "spd:3"))]
)
def test_scores_are_tangent_and_bounded_in_time(name, kind):
    manifold = manifold_named(name)
    x = manifold.random_point(jr.key(0))
    places = jax.vmap(manifold.embedding)(jax.vmap(manifold.random_point)(jr.split(jr.key(1), 9)))
    outputs = kind.outputs(manifold)
    network = field_network(SMALL, places, (0.1, 1.0), (1e-4, 1.0), 0, outputs, key=jr.key(2))
    score = kind(manifold, network)
    at = jax.jit(lambda t, x: score(t, x, jnp.zeros(0)))
    for t in (1e-4, 0.1, 1.0):
        v = at(jnp.asarray(t), x)
        np.testing.assert_allclose(
            manifold.tangent(x, v), v, atol=2e-4 * float(jnp.max(jnp.abs(v)))
        )
        assert float(t * manifold.inner(x, v, v)) < 20
    slope = jax.jit(jax.jacfwd(lambda x: at(jnp.asarray(0.1), x)))(x)
    assert jnp.all(jnp.isfinite(slope))


def test_rotations_are_equivariant_by_construction(double):
    so3, t = calor.SO3(), jnp.asarray(0.05)
    places = jr.normal(jr.key(0), (9, 10))
    network = field_network(SMALL, places, (0.1, 1.0), (1e-3, 1.0), 0, 3, key=jr.key(2))
    score = calor.TangentScore(so3, network)
    x = so3.random_point(jr.key(3))
    v = score(t, x, jnp.zeros(0))
    assert float(jnp.linalg.norm(v)) > 1e-4
    np.testing.assert_allclose(score(t, -x, jnp.zeros(0)), -v, rtol=1e-12)


def test_quotients_are_equivariant_by_construction(double):
    turn = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, -1]])
    group = [np.linalg.matrix_power(turn, k) for k in range(4)]
    quotient = calor.Quotient(calor.Sphere(2), np.stack(group))
    places = jr.normal(jr.key(0), (9, 3))
    network = field_network(SMALL, places, (0.1, 1.0), (1e-3, 1.0), 0, 3, key=jr.key(2))
    score = calor.TangentScore(quotient, network)
    x, t = quotient.random_point(jr.key(1)), jnp.asarray(0.1)
    v = score(t, x, jnp.zeros(0))
    assert float(jnp.linalg.norm(v)) > 1e-4
    for g in group:
        np.testing.assert_allclose(score(t, g @ x, jnp.zeros(0)), g @ v, atol=1e-12)


def test_loss_is_bounded_for_small_times_and_smallest_for_the_right_score():
    model, score = exact_model("sphere:2")
    keys = jr.split(jr.key(1), 4096)
    chosen = score.centres[jr.randint(jr.key(2), (4096,), 0, 3)]
    x0 = jax.vmap(lambda c, k: score.kernel.sample(0.1, c, key=k))(chosen, keys)
    empty = jnp.zeros((4096, 0))

    class Scaled(eqx.Module):
        factor: float

        def __call__(self, t, x, condition):
            return self.factor * score(t, x, condition)

    def loss(factor, law):
        examples = Denoising(law, score.kernel).draw(x0, empty, jr.key(3))
        return float(squared_error(Scaled(factor), score.kernel.manifold, examples))

    for law in (Times(1e-6, 3.0), Times(1e-6, 3.0, 0.5)):
        losses = {factor: loss(factor, law) for factor in (0.7, 1.0, 1.4, 2.0)}
        assert losses[1.0] == min(losses.values())
    # t |z|^2 / 2t with two degrees of freedom
    assert 0.9 < loss(1.0, Times(1e-8, 1e-7)) < 1.1


# Conditions, flows, kernel densities.


@pytest.mark.slow
def test_conditions_are_used():
    sphere = calor.Sphere(2)
    poles = np.array([[0, 0, 1.0], [0, 0, -1.0]], np.float32)
    label = np.arange(600) % 2
    noise = 0.2 * np.random.default_rng(0).normal(size=(600, 3))
    data = poles[label] + noise
    data /= np.linalg.norm(data, axis=1, keepdims=True)
    training = calor.Training(steps=300, batch=256, validate_every=100)
    for condition, ask in ((np.array(["north", "south"])[label], "south"), (label * 2.0, [2.0])):
        model = calor.fit(
            calor.heat_kernel(sphere),
            data,
            condition=condition,
            parts="diffusion",
            key=jr.key(0),
            network=SMALL,
            training=training,
            t_min=1e-3,
            progress=False,
        )
        x = model.sample(200, condition=ask, key=jr.key(1))
        assert float(jnp.mean(x[:, 2] < 0)) > 0.95
        gap = model.log_prob(poles[1:], condition=ask) - model.log_prob(poles[:1], condition=ask)
        assert float(gap[0]) > 1
        with pytest.raises(ValueError, match="fitted with conditions"):
            model.sample(3, key=jr.key(1))
    with pytest.raises(ValueError, match="labels of the training data"):
        learn_condition(["a", "b"])(["c"], 1)


@pytest.mark.parametrize("name", [slow("sphere:2"), slow("hyperbolic:2")])
def test_flows_integrate_to_one_and_stay_on_the_manifold(name):
    manifold = manifold_named(name)
    model = calor.fit_flow(
        calor.heat_kernel(manifold),
        points_of(manifold, 300),
        key=jr.key(0),
        network=SMALL,
        training=SHORT,
        progress=False,
    )
    x, weights = GRIDS[name]()
    assert abs(np.sum(weights * np.exp(model.log_prob(x))) - 1) < 0.01
    drawn = model.sample(50, key=jr.key(1))
    assert float(jnp.max(jax.vmap(manifold.contains)(drawn))) < 1e-5


@pytest.mark.slow
def test_flow_matching_learns_a_bump():
    sphere = calor.Sphere(2)
    data = points_of(sphere, 800)
    model = calor.fit_flow(
        calor.heat_kernel(sphere),
        data,
        key=jr.key(0),
        network=SMALL,
        training=calor.Training(steps=300, batch=256, validate_every=100),
        progress=False,
    )
    new = points_of(sphere, 400)
    centre = sphere.project(jnp.mean(jnp.asarray(data), axis=0))
    drawn = model.sample(500, key=jr.key(1))
    close = np.asarray(jax.vmap(lambda x: sphere.dist(x, centre))(drawn))
    assert abs(np.mean(close**2) - 2 * 0.4**2) < 0.1
    assert float(jnp.mean(model.log_prob(new))) > -np.log(4 * np.pi) + 1


@pytest.mark.parametrize("adaptive", [slow(False), True])
def test_kernel_densities_integrate_to_one_and_draw_what_they_say(adaptive):
    sphere = calor.Sphere(2)
    kernel = calor.heat_kernel(sphere)
    data = points_of(sphere, 200)
    density = calor.fit_density(kernel, data, key=jr.key(0), adaptive=adaptive)
    uniform = jax.vmap(sphere.random_point)(jr.split(jr.key(2), 20000))
    values = 4 * np.pi * np.exp(density.log_prob(uniform))
    assert abs(np.mean(values) - 1) < 4 * np.std(values) / np.sqrt(20000)
    drawn = density.sample(4000, key=jr.key(1))
    # E log p over draws is the integral of p log p.
    entropy = np.mean(values * np.log(values / (4 * np.pi)))
    spread = np.std(values * np.log(values / (4 * np.pi))) / np.sqrt(20000)
    assert abs(float(jnp.mean(density.log_prob(drawn))) - entropy) < 4 * spread + 0.1
    assert float(jnp.mean(density.log_prob(points_of(sphere, 200)))) > -np.log(4 * np.pi)


def test_mixture_weights_are_found():
    random = np.random.default_rng(0)
    which = random.random(4000) < 0.3
    x = np.where(which, random.normal(3, 1, 4000), random.normal(0, 0.5, 4000))
    parts = np.stack([-((x - 3) ** 2) / 2, -(x**2) / 0.5 - np.log(0.5)], axis=1)
    np.testing.assert_allclose(mixture_weights(parts), [0.3, 0.7], atol=0.03)
