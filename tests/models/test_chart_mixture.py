"""Mixtures in the chart: normalized, chosen by points put aside, labels, groups and weights."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import calor
from calor.data import prepare as data
from calor.models.chart_mixture import fit_folds
from calor.models.guesses import choose, em

SPD2 = calor.SPD(2)
KERNEL = calor.heat_kernel(SPD2)


def clusters(count=300, seed=0, apart=1.5):
    """Matrices in two clusters, of different shapes, and which one."""
    rng = np.random.default_rng(seed)
    label = np.arange(count) % 2
    logs = rng.normal(size=(count, 3)) * np.array([[0.1, 0.3, 0.2], [0.3, 0.1, 0.1]])[label]
    logs += apart * np.array([[0.5, 0.5, 0.0], [-0.5, -0.3, 0.2]])[label]
    return np.asarray(jax.vmap(SPD2.decode)(jnp.asarray(logs))), label


def spd2_grid(count=41, width=3.0):
    """Matrices and quadrature weights in the Riemannian volume sqrt(2) det^(-3/2) da db dc."""
    one = np.linspace(-width, width, count)
    u, v, w = (axis.ravel() for axis in np.meshgrid(one, one, one, indexing="ij"))
    a, c = np.exp(u), np.exp(v)
    b = np.sqrt(a * c) * np.tanh(w)
    density = np.sqrt(2) * (a * c - b * b) ** -1.5 * a * c * np.sqrt(a * c) / np.cosh(w) ** 2
    points = np.stack([np.stack([a, b], 1), np.stack([b, c], 1)], 1)
    return points, density * (one[1] - one[0]) ** 3


def test_it_is_normalized_and_draws_what_it_says():
    points, _ = clusters()
    model = calor.fit_mixture(KERNEL, points, key=jr.key(0))
    assert model.law.count() > 1
    x, weights = spd2_grid()
    values = np.exp(np.asarray(model.log_prob(x), float))
    np.testing.assert_allclose(np.sum(weights * values), 1, atol=0.01)
    drawn = np.asarray(model.sample(2000, key=jr.key(1)), float)
    mean = np.sum((weights * values)[:, None, None] * x, axis=0)
    error = drawn.std(axis=0) / np.sqrt(2000)
    assert np.all(np.abs(drawn.mean(axis=0) - mean) < 4 * error + 0.01)
    # Expectations of another density over this one are its mass.
    other = calor.fit_mixture(KERNEL, clusters(seed=3)[0], key=jr.key(0), validation=0.2)
    ratios = np.exp(np.asarray(other.log_prob(drawn) - model.log_prob(drawn), float))
    assert abs(ratios.mean() - 1) < 4 * ratios.std() / np.sqrt(2000)


def test_a_mixture_survives_a_file(tmp_path):
    points, label = clusters(100)
    model = calor.fit_mixture(KERNEL, points, condition=label, key=jr.key(0))
    model.save(tmp_path / "mixture.calor")
    again = calor.load(tmp_path / "mixture.calor")
    np.testing.assert_array_equal(
        again.log_prob(points, condition=label), model.log_prob(points, condition=label)
    )
    np.testing.assert_array_equal(
        again.sample(4, condition=1, key=jr.key(1)), model.sample(4, condition=1, key=jr.key(1))
    )


def test_what_is_put_aside_was_not_seen():
    points, _ = clusters(120)
    folds = data.prepare(SPD2, data.Given(points), key=jr.key(0), parts=3, centred=False)
    model, judged = fit_folds(SPD2, folds, key=jr.key(1))
    assert judged.shape == (36,)
    truth = np.asarray(model.log_prob(points), float)[np.concatenate(folds.rows)]
    assert 0 < np.mean(truth - judged) < 0.5
    # A point that is far from all others when it is put aside is as unlikely as that.
    moved = points.copy()
    moved[folds.rows[0][0]] = np.diag([30.0, 0.1])
    folds = data.prepare(SPD2, data.Given(moved), key=jr.key(0), parts=3, centred=False)
    assert fit_folds(SPD2, folds, key=jr.key(1))[1][0] < judged[0] - 5
    given = data.Given(points[:100], validation=points[100:])
    folds = data.prepare(SPD2, given, key=jr.key(0))
    model, judged = fit_folds(SPD2, folds, key=jr.key(1))
    np.testing.assert_allclose(judged, model.log_prob(points[100:]), atol=1e-3)


def test_what_is_put_aside_but_not_judged_was_not_seen_either(monkeypatch):
    points, _ = clusters()
    groups = np.repeat(np.arange(5), 60)
    given = data.Given(points, groups=groups, validation=None)
    folds = data.prepare(SPD2, given, key=jr.key(0), parts=3, most=60)
    assert all(
        len(rows) == 20 and len(more) >= 40
        for rows, more in zip(folds.rows, folds.unseen, strict=True)
    )
    seen = []
    monkeypatch.setattr(
        "calor.models.chart_mixture.choose_by_label",
        lambda points, size, splits, *rest: seen.extend(splits) or 1 / 0,
    )
    with pytest.raises(ZeroDivisionError):
        fit_folds(SPD2, folds, key=jr.key(1))
    for rows, aside in seen:
        assert not set(groups[rows]) & set(groups[aside])


def test_one_gaussian_is_chosen_where_data_are_few():
    """In 40 dimensions 60 points ask for one Gaussian, and for a covariance that is shrunk."""
    rng = np.random.default_rng(0)
    places, rows = rng.normal(size=(60, 40)), np.arange(60)
    splits = [(np.setdiff1d(rows, rows[k::5]), rows[k::5]) for k in range(5)]
    points = em.Points(places, np.zeros(60, int), np.ones(60))
    found = choose.choose(points, 1, splits, rows, 0)
    assert len(found.parts.means) == 1
    truth = multivariate_normal(np.zeros(40), np.eye(40))
    new = rng.normal(size=(2000, 40))
    values = found.parts.log_densities(em.Points(new, np.zeros(2000, int), np.ones(2000)))[0]
    # The mean alone, of 60 points, costs 40 / (2 * 60) nats, and the width not much more.
    assert np.mean(values) > np.mean(truth.logpdf(new)) - 1.0


def test_labels_have_weights_or_mixtures_of_their_own():
    points, label = clusters(400)
    names = np.array(["a", "b"])[label]
    model = calor.fit_mixture(KERNEL, points, condition=names, key=jr.key(0))
    x, weights = spd2_grid()
    for name in ("a", "b"):
        values = np.exp(np.asarray(model.log_prob(x, condition=name), float))
        np.testing.assert_allclose(np.sum(weights * values), 1, atol=0.02)
    drawn = np.asarray(model.sample(400, condition="b", key=jr.key(1)))
    truth = points[label == 1]
    np.testing.assert_allclose(drawn.mean(axis=0), truth.mean(axis=0), atol=0.06)
    blind = calor.fit_mixture(KERNEL, points, key=jr.key(0))
    gain = model.log_prob(points, condition=names) - blind.log_prob(points)
    assert abs(float(jnp.mean(gain)) - np.log(2)) < 0.1


def test_a_label_of_its_own_shape_has_a_mixture():
    """Two shapes that overlap, one of them of two far parts: common parts cannot say so."""
    rng = np.random.default_rng(0)
    places = 0.3 * rng.normal(size=(600, 2))
    labels = np.arange(600) % 2
    places[labels == 1] *= [0.1, 3.0]
    points = em.Points(places, labels, np.ones(600))
    rows = np.arange(600)
    splits = [(np.setdiff1d(rows, rows[k::5]), rows[k::5]) for k in range(2)]
    shared = choose.choose(points, 2, splits, rows, 0, counts=(1,))
    own = choose.choose_by_label(points, 2, splits, rows, 0, counts=(1,))
    truth = [multivariate_normal([0, 0], np.diag(s)) for s in ([0.09, 0.09], [0.0009, 0.81])]
    aside = np.concatenate([held for _, held in splits])
    expected = np.mean([truth[labels[row]].logpdf(places[row]) for row in aside])
    assert np.mean(np.concatenate(own.judged)) > expected - 0.05
    assert np.mean(np.concatenate(own.judged)) >= np.mean(np.concatenate(shared.judged))
    for label in range(2):
        found = np.exp(own.parts.log_weights[label]) @ own.parts.covariances.reshape(-1, 4)
        np.testing.assert_allclose(found[[0, 3]], np.diag(truth[label].cov), rtol=0.25)


def test_numbers_move_a_mixture():
    rng = np.random.default_rng(1)
    number = rng.uniform(-1, 1, size=200)
    logs = 0.1 * rng.normal(size=(200, 3)) + number[:, None] * [1.0, 0.0, 0.5]
    points = np.asarray(jax.vmap(SPD2.decode)(jnp.asarray(logs)))
    folds = data.prepare(SPD2, data.Given(points, number), key=jr.key(0), parts=3)
    model, judged = fit_folds(SPD2, folds, key=jr.key(1))
    truth = np.asarray(model.log_prob(points, condition=number), float)[np.concatenate(folds.rows)]
    assert abs(np.mean(truth - judged)) < 0.4
    plain = calor.fit_mixture(KERNEL, points, key=jr.key(0))
    assert np.mean(truth) > float(jnp.mean(plain.log_prob(points))) + 0.5
    drawn = np.asarray(model.sample(300, condition=0.8, key=jr.key(1)), float)
    assert abs(np.mean(np.log(np.linalg.det(drawn))) - 1.2) < 0.15
    folds = data.prepare(SPD2, data.Given(points, number, weights=number + 2), key=jr.key(0))
    assert fit_folds(SPD2, folds, key=jr.key(1)) is None


def test_points_count_by_their_weights():
    """Twice is the same as a weight of two, and a weight of zero as not at all."""
    rng = np.random.default_rng(2)
    places = rng.normal(size=(60, 3))
    weights = rng.integers(0, 3, size=60).astype(float)
    shrinkage = em.Shrinkage(1.0, 0.1)
    once = em.Points(places, np.zeros(60, int), weights)
    start = em.fit_parts(once, 1, 2, shrinkage, rng)
    twice = np.repeat(places, weights.astype(int), axis=0)
    often = em.Points(twice, np.zeros(len(twice), int), np.ones(len(twice)))
    for left, right in zip(
        em.fit_parts(once, 1, 2, shrinkage, rng, start),
        em.fit_parts(often, 1, 2, shrinkage, rng, start),
        strict=True,
    ):
        np.testing.assert_allclose(left, right, atol=1e-6)
    points, label = clusters(200)
    model = calor.fit_mixture(KERNEL, points, weights=1.0 * (label == 0), key=jr.key(0))
    first = calor.fit_mixture(KERNEL, points[label == 0], key=jr.key(0))
    drawn = [np.asarray(m.sample(1000, key=jr.key(1))).mean(axis=0) for m in (model, first)]
    np.testing.assert_allclose(*drawn, atol=0.06)


def test_groups_that_differ_make_parts_wider():
    """Groups with shifts of their own: new ones are likelier if the law is not too narrow."""
    rng = np.random.default_rng(3)
    groups = np.repeat(np.arange(10), 30)
    logs = 0.05 * rng.normal(size=(300, 3)) + rng.normal(size=(10, 3))[groups]
    points = np.asarray(jax.vmap(SPD2.decode)(jnp.asarray(logs)))
    apart = calor.fit_mixture(KERNEL, points, groups=groups, key=jr.key(0), validation=0.2)
    mixed = calor.fit_mixture(KERNEL, points, key=jr.key(0), validation=0.2)
    assert apart.law.count() < mixed.law.count()
    assert float(jnp.min(apart.law.variances)) > 10 * float(jnp.min(mixed.law.variances))


@pytest.mark.parametrize(
    "manifold",
    [calor.Euclidean(2), calor.Hyperbolic(2), calor.Product(calor.Hyperbolic(2), SPD2)],
    ids=str,
)
def test_charts_have_the_volume_of_the_metric(manifold, double):
    z = jnp.asarray(np.random.default_rng(0).normal(size=manifold.dim))
    x = manifold.decode(z)
    np.testing.assert_allclose(manifold.embedding(x), z, atol=1e-9)
    tangents = jnp.moveaxis(jax.jacfwd(manifold.decode)(z), -1, 0)
    inner = jax.vmap(jax.vmap(manifold.inner, (None, None, 0)), (None, 0, None))
    expected = jnp.linalg.slogdet(inner(x, tangents, tangents))[1] / 2
    np.testing.assert_allclose(manifold.log_chart_volume(x), expected, rtol=1e-8, atol=1e-9)


def test_elsewhere_there_is_none():
    sphere = calor.Sphere(2)
    points = jax.vmap(sphere.random_point)(jr.split(jr.key(0), 20))
    with pytest.raises(ValueError, match=r"fit_mixture: no single chart covers Sphere\(2\)"):
        calor.fit_mixture(calor.heat_kernel(sphere), points, key=jr.key(0))
    folds = data.prepare(sphere, data.Given(points), key=jr.key(0))
    assert fit_folds(sphere, folds, key=jr.key(0)) is None
