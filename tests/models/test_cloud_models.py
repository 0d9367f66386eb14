"""Models of point clouds: symmetries of the network, the prior, fitting, saving, molecules."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from calor.data.molecules import molecule_space
from calor.experiments import plane
from calor.models import clouds as equivariant
from calor.models.clouds import CloudNetwork, CloudScore, cloud_prior, point_scale
from calor.models.network import Task
from calor.models.times import Scales

SMALL = CloudNetwork(8, 2)


def clouds_of(manifold, count, key):
    return jax.jit(jax.vmap(manifold.random_point))(jr.split(key, count))


def score_of(manifold, clouds, conditions=0):
    task = Task(manifold, clouds, Scales(1e-3, 10.0, 0.1, 1.0), conditions)
    return CloudScore(manifold, SMALL.build(task, key=jr.key(1)))


@pytest.mark.parametrize("centred", [0, 3])
def test_the_score_turns_and_is_relabeled_with_the_cloud(double, centred):
    """Rotations, reflections, permutations; the mean of centred places does not move."""
    manifold = calor.PointCloud(5, 4, smallest=3, centred=centred)
    field = eqx.filter_jit(score_of(manifold, clouds_of(manifold, 20, jr.key(0))))
    if not centred:  # the fourth coordinate is a feature, and the mean of the places zero
        network = CloudNetwork(8, 2, space=3)
        clouds = clouds_of(manifold, 20, jr.key(0))
        both = jnp.concatenate([clouds, clouds * jnp.array([-1.0, -1, -1, 1, 1])])
        task = Task(manifold, both, Scales(1e-3, 10.0, 0.1, 1.0), 0)
        field = eqx.filter_jit(CloudScore(manifold, network.build(task, key=jr.key(1))))
    x = manifold.random_point(jr.key(3))
    t, none = jnp.asarray(0.2), jnp.zeros(0)
    turn, _ = jnp.linalg.qr(jr.normal(jr.key(4), (3, 3)))
    whole = jnp.eye(5).at[:3, :3].set(turn)
    assert jnp.abs(jnp.linalg.det(turn)) > 0.99
    value = field(t, x, none)
    np.testing.assert_allclose(field(t, x @ whole, none), value @ whole, atol=1e-10)
    reflected = whole.at[:3, 0].multiply(-1)
    np.testing.assert_allclose(field(t, x @ reflected, none), value @ reflected, atol=1e-10)
    count = int(manifold.count(x))
    order = jnp.concatenate([jr.permutation(jr.key(5), count), jnp.arange(count, 5)])
    np.testing.assert_allclose(field(t, x[order], none), value[order], atol=1e-10)
    np.testing.assert_array_equal(value[count:], 0)
    np.testing.assert_array_equal(value[:, -1], 0)
    if centred:
        np.testing.assert_allclose(jnp.sum(value[:, :3], axis=0), 0, atol=1e-10)


def test_absent_points_are_not_seen(double):
    """The score of three points is the same among five."""
    large, small = calor.PointCloud(5, 2, smallest=3), calor.PointCloud(3, 2)
    few = clouds_of(small, 10, jr.key(0))
    padded = jnp.pad(jnp.concatenate([few, jnp.ones((10, 3, 1))], -1), ((0, 0), (0, 2), (0, 0)))
    t, none = jnp.asarray(0.1), jnp.zeros(0)
    value = eqx.filter_jit(score_of(small, few))(t, few[0], none)
    other = eqx.filter_jit(score_of(large, padded))(t, padded[0], none)
    np.testing.assert_allclose(other[:3, :2], value, atol=1e-10)


def test_the_prior_has_unit_mass_and_the_numbers_of_the_data(double):
    """One or two points on a line; two of them modulo their order."""
    manifold = calor.PointCloud(2, 1, smallest=1)
    clouds = clouds_of(manifold, 200, jr.key(0))
    prior = cloud_prior(manifold, clouds, 0.3)
    axis = np.linspace(-9, 9, 181)
    step = axis[1] - axis[0]
    one = np.zeros((len(axis), 2, 2))
    one[:, 0, 0], one[:, 0, 1] = axis, 1
    two = np.ones((len(axis) ** 2, 2, 2))
    two[:, :, 0] = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    density = jax.jit(jax.vmap(lambda x: prior.log_prob(x, jnp.zeros(0))))
    masses = [np.sum(np.exp(density(jnp.asarray(one)))) * step]
    masses.append(np.sum(np.exp(density(jnp.asarray(two)))) * step**2 / 2)
    share = float(jnp.mean(jax.vmap(manifold.count)(clouds) == 1))
    np.testing.assert_allclose(masses, [share, 1 - share], rtol=1e-6)
    draw = lambda key: prior.sample(key, jnp.zeros(0))
    drawn = jax.jit(jax.vmap(draw))(jr.split(jr.key(1), 2000))
    found = float(jnp.mean(jax.vmap(manifold.count)(drawn) == 1))
    np.testing.assert_allclose(found, share, atol=0.04)
    spread = np.asarray(drawn[:, 0, 0]).std()
    np.testing.assert_allclose(spread, np.sqrt(prior.variance[0]), rtol=0.06)


def test_labels_and_quotient_teach_the_same_score(double):
    """The target of the quotient is the mean of those with labels over all that lead here.

    Weighted with how likely each relabeling of x0 leads to x, labelled scores have the mean that
    the quotient has: only the noise of the target is different.
    """
    import itertools

    manifold = calor.PointCloud(4, 2)
    x, x0 = clouds_of(manifold, 2, jr.key(0))
    labelled, quotient = (calor.heat_kernel(manifold, m) for m in ("labelled", "exact"))
    orders = [jnp.array(order) for order in itertools.permutations(range(4))]
    weights = jax.nn.softmax(jnp.stack([labelled.log_prob(0.4, x, x0[o]) for o in orders]))
    scores = jnp.stack([labelled.score(0.4, x, x0[o]) for o in orders])
    expected = jnp.tensordot(weights, scores, axes=1)
    np.testing.assert_allclose(quotient.score(0.4, x, x0), expected, atol=1e-10)


@pytest.mark.parametrize("method", ["exact", "labelled"])
@pytest.mark.parametrize("run", [calor.fit, calor.fit_flow])
def test_fit_sample_save(tmp_path, run, method):
    manifold = calor.PointCloud(4, 2, smallest=3, centred=2)
    points = clouds_of(manifold, 60, jr.key(0))
    training = calor.Training(steps=2, batch=8, validate_every=2)
    model = run(
        calor.heat_kernel(manifold, method),
        points,
        condition=np.asarray(jax.vmap(manifold.count)(points)),
        key=jr.key(1),
        network=CloudNetwork(4, 1),
        training=training,
        progress=False,
    )
    drawn = model.sample(4, condition=3.0, key=jr.key(2), steps=3)
    assert max(float(manifold.contains(x)) for x in drawn) < 1e-4
    model.save(tmp_path / "clouds.calor")
    again = calor.load(tmp_path / "clouds.calor")
    np.testing.assert_array_equal(again.sample(4, condition=3.0, key=jr.key(2), steps=3), drawn)


def test_a_network_for_other_manifolds_is_refused():
    manifold = calor.PointCloud(3, 2)
    points = clouds_of(manifold, 10, jr.key(0))
    with pytest.raises(TypeError, match="must be a calor.CloudNetwork"):
        calor.fit(calor.heat_kernel(manifold), points, key=jr.key(0), network=calor.Network(8))
    with pytest.raises(ValueError, match="space must be at most the 2 coordinates"):
        calor.fit(
            calor.heat_kernel(manifold), points, key=jr.key(0), network=CloudNetwork(8, 2, space=5)
        )


def test_names_of_clouds():
    from calor.manifolds.names import manifold_named, name_of

    for manifold in (calor.PointCloud(9, 3), calor.PointCloud(7, 2, centred=1), molecule_space()):
        again = manifold_named(name_of(manifold))
        assert (again.shape, again.dim, str(again)) == (manifold.shape, manifold.dim, str(manifold))
    with pytest.raises(ValueError, match="cloud:9x3"):
        manifold_named("cloud:9")


def test_energy_distance_tells_laws_apart():
    rng = np.random.default_rng(0)
    first, second = (plane.invariants(plane.ginibre(rng, 300, 5)) for _ in range(2))
    free = plane.invariants(rng.normal(size=(300, 5, 2)))
    assert abs(plane.energy_distance(first, second)) < 0.01
    assert plane.energy_distance(first, free) > 0.02
    clouds = plane.ginibre(rng, 4000, 5)
    # E |z|^2 = (n + 1) / 2, by Ginibre's density.
    np.testing.assert_allclose(np.mean(np.sum(clouds**2, axis=-1)), 3.0, rtol=0.02)


def test_points_are_scaled_by_their_neighbours():
    manifold = calor.PointCloud(3, 1, smallest=2)
    clouds = jnp.array([[[0.0, 1], [2.0, 1], [5.0, 1]], [[0.0, 1], [2.0, 1], [0.0, 0]]])
    assert point_scale(manifold, clouds) == pytest.approx(2.0)
    assert equivariant.cloud_moments(manifold, clouds, 1)[0][0] == pytest.approx(9 / 5)
