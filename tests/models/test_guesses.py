"""First guesses: regressions, the Gaussian law around them, groups that are left out."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.covariance import oas

import calor
from calor.data import folds
from calor.data import prepare as data
from calor.experiments import rivals as _rivals
from calor.models import guesses
from calor.models.guesses import gaussian, regression
from calor.store import stored as checkpoint
from matrices import matrices, random_rotation

RNG = np.random.default_rng(0)


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
    law = gaussian.fit_gaussian(residuals, np.eye(2)[labels])
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
    mean, others = regression.regress_on_numbers(rows, places, inverse=np.array([1.0]))
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
    came = data.Given(values[rest], numbers[rest], validation=validation)
    prepared = data.prepare(manifold, came, key=jr.key(0)).part(0)
    found, law = guesses.find_gaussian(None, manifold, prepared)
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
    given = data.Given(9 * matrices(40, 2))
    prepared = data.prepare(manifold, given, key=jr.key(0), centred=False).part(0)
    assert guesses.find_gaussian(None, manifold, prepared)[1] is None
    with pytest.raises(ValueError, match="without conditions needs centred=True"):
        guesses.find_gaussian(True, manifold, prepared)


def test_prior_survives_a_file():
    law = gaussian.fit_gaussian(RNG.normal(size=(9, 3)), None)
    law = gaussian.Gaussian(law.vectors, law.variances, scaled=True)
    prior = gaussian.GaussianPrior(calor.SPD(2), law, jnp.asarray(0.3))
    arrays = {}
    code = json.loads(json.dumps(checkpoint._encode(prior, arrays, set())))
    again = checkpoint._decode(code, arrays, None)
    assert eqx.tree_equal(again, prior)


def test_shrinkage_is_that_of_the_largest_likelihood_on_rows_left_out():
    rng = np.random.default_rng(3)
    truth = np.diag([1.0, 1.0, 2.0, 2.0, 3.0, 30.0])
    many = rng.normal(size=(20000, 6)) @ np.sqrt(truth)
    np.testing.assert_allclose(covariances(many)[0], truth, rtol=0.05, atol=0.6)
    narrow = rng.normal(size=(5000, 3)) * [1, 1, 0.01]
    np.testing.assert_allclose(np.diag(covariances(narrow)[0])[2], 1e-4, rtol=0.1)
    one = covariances(rng.normal(size=(200, 3)) * [3, 1, 0.1], groups=np.zeros(200, int))[0]
    np.testing.assert_allclose(np.sqrt(np.diag(one)), [3, 1, 0.1], rtol=0.2)
    # Heavy tails and few rows: OAS takes them for Gaussian and shrinks too little.
    gains = []
    for _ in range(20):
        tails = rng.normal(size=(1000, 20)) / np.sqrt(rng.gamma(1.5, 1 / 1.5, size=(1000, 1)))
        tails = tails * np.geomspace(0.5, 2, 20)
        few, rest = tails[:60], tails[60:]
        ours, theirs = covariances(few)[0], oas(few, assume_centered=True)[0]
        np.testing.assert_allclose(np.trace(ours), np.trace(few.T @ few / 60), rtol=1e-5)
        gains.append(likelihood(rest, ours) - likelihood(rest, theirs))
    assert np.mean(gains) > 3 * np.std(gains) / np.sqrt(20)


def covariances(rows, labels=None, groups=None):
    law = gaussian.fit_gaussian(rows, labels, groups)
    vectors, variances = np.asarray(law.vectors, float), np.asarray(law.variances, float)
    return (vectors * variances[:, None]) @ vectors.transpose(0, 2, 1)


def likelihood(rows, covariance):
    return np.mean(multivariate_normal(np.zeros(len(covariance)), covariance).logpdf(rows))


def test_labels_share_a_covariance_unless_they_differ():
    rng = np.random.default_rng(4)
    labels = np.eye(3)[np.arange(60) % 2]  # the third label has no rows
    rows = rng.normal(size=(60, 8))
    found = covariances(rows, labels)
    assert found.shape == (3, 8, 8)
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
    assert np.all(np.linalg.eigvalsh(found[2]) > 0)
    rows[::2] *= 10
    found = covariances(rows, labels)
    ratio = np.trace(found[0]) / np.trace(found[1])
    assert 0.5 < ratio / (np.sum(rows[::2] ** 2) / np.sum(rows[1::2] ** 2)) <= 1.01


@pytest.mark.parametrize("rows", [np.zeros((1, 3)), np.zeros((5, 3)), np.ones((1, 3))])
def test_covariance_of_next_to_nothing(rows):
    found = covariances(rows)[0]
    assert np.all(np.isfinite(found))
    assert np.all(np.linalg.eigvalsh(found) > 0)


@pytest.mark.parametrize("most", [12, 15])
def test_groups_are_predicted_by_all_others(most, monkeypatch):
    """The closed form against leaving a group out, also of rows that predict nothing."""
    rng = np.random.default_rng(5)
    rows, places = rng.normal(size=(15, 2)), 1 + rng.normal(size=(15, 3))
    chosen = np.random.default_rng(0).permutation(15)[:most]
    groups = np.arange(15) % 4
    groups[np.setdiff1d(np.arange(15), chosen)[:2]] = 4
    lengths, noises = np.array([0.7, 0.2]), np.array([0.2, 0.4, 0.9])
    monkeypatch.setattr(regression, "_inverse_lengths", lambda *_: lengths)
    monkeypatch.setattr(regression, "_noises", lambda spectrum, values: noises)
    monkeypatch.setattr(regression, "_ROWS", most)
    _, others = regression.regress_on_numbers(rows, places, groups)
    scaled, vectors = rows * lengths, np.linalg.svd(places - places.mean(axis=0))[2]
    for group in np.unique(groups):
        rest, own = chosen[groups[chosen] != group], groups == group
        mean = places[~own].mean(axis=0)
        kernel = regression._kernel_matrix(scaled[rest], scaled[rest])
        across = regression._kernel_matrix(scaled[own], scaled[rest])
        values = (places[rest] - mean) @ vectors.T
        columns = [
            across @ np.linalg.solve(kernel + noise * np.eye(len(rest)), values[:, k])
            for k, noise in enumerate(noises)
        ]
        np.testing.assert_allclose(others[own], mean + np.stack(columns, 1) @ vectors, rtol=1e-8)


def test_means_of_labels_without_the_group():
    rng = np.random.default_rng(5)
    places, groups = rng.normal(size=(15, 3)), np.arange(15) % 4
    labels = np.eye(2)[np.arange(15) % 2]
    labels = np.concatenate([labels, np.zeros((15, 1))], axis=1)
    labels[groups == 3] = [0, 1, 0]
    labels[3] = labels[7] = [0, 0, 1]  # in one group only
    _, others = regression.regress_on_labels(labels, places, groups)
    mean = places.mean(axis=0)
    rest = (groups != 1) & (labels[:, 1] > 0)
    expected = (places[rest].sum(axis=0) + mean) / (rest.sum() + 1)
    np.testing.assert_allclose(others[5], expected)
    np.testing.assert_allclose(others[3], (places[7] + mean) / 2)


@pytest.mark.parametrize("condition", ["labels", "numbers", "none"])
def test_a_guess_is_as_wide_as_groups_differ(condition):
    """Few groups with shifts of their own: the law of a new group has their variance too."""
    rng = np.random.default_rng(6)
    groups, widths = np.repeat(np.arange(6), 15), []
    given = {"labels": np.repeat(["a"], 90), "numbers": rng.normal(size=(90, 1)), "none": None}
    for _ in range(12):
        logs = 0.05 * rng.normal(size=(90, 3)) + 0.4 * rng.normal(size=(6, 3))[groups]
        values = _rivals.metrics.matrix_function(_rivals.from_vectors(logs, 2), np.exp)
        rest = given[condition], (values[:2], None if condition == "none" else given[condition][:2])
        validation = values[:2] if condition == "none" else rest[1]
        came = data.Given(values, rest[0], groups, validation)
        prepared = data.prepare(calor.SPD(2), came, key=jr.key(0)).part(0)
        _, law = guesses.find_gaussian(None, calor.SPD(2), prepared)
        widths.append(float(jnp.mean(law.variances)))
    # A new group is off by its own shift and by that of the mean of the five others.
    expected = 0.4**2 * (1 + 1 / 5) + 0.05**2
    assert abs(np.mean(widths) / expected - 1) < 0.2


def test_groups_are_not_split():
    names = np.array(["x", "y", "z", "u", "v"])[np.arange(50) % 5]
    numbers = np.unique(names, return_inverse=True)[1]
    (held,) = folds.split_groups(jr.key(0), numbers, 0.3)
    assert len(held) in (10, 20)
    assert not set(names[np.setdiff1d(np.arange(50), held)]) & set(names[held])
    in_turn = folds.split_groups(jr.key(0), numbers, 0.2, 9)
    assert [len(set(names[rows])) for rows in in_turn] == [1] * 5
    assert sorted(np.concatenate(in_turn)) == list(range(50))
    sizes = np.repeat(np.arange(3), [90, 5, 5])
    for seed in range(8):  # a large group is not put aside for a small part
        assert len(folds.split_groups(jr.key(seed), sizes, 0.1)[0]) in (5, 10)
        assert len(folds.split_groups(jr.key(seed), sizes, 0.99)[0]) < 100
    assert [len(held) for held in folds.split(jr.key(0), 40, 0.1)] == [4]
    in_turn = folds.split(jr.key(0), 40, 0.3, 5)
    assert [len(rows) for rows in in_turn] == [8] * 5
    assert sorted(np.concatenate(in_turn)) == list(range(40))
    points = np.arange(50.0)[:, None]
    prepared = data.prepare(
        calor.Euclidean(1), data.Given(points, groups=names, validation=0.2), key=jr.key(1)
    ).part(0)
    together = names[np.asarray(prepared.held_out[:, 0], int)]
    assert len(set(together)) == 1
    assert len(together) == 10
    given = data.Given(points, np.where(names == "u", "b", "a"), names, 0.2)
    key = jr.key(int(np.argmax(put_aside(names, "u"))))
    with pytest.warns(UserWarning, match="label 'b' occurs only among the points that are put"):
        data.prepare(calor.Euclidean(1), given, key=key)


def put_aside(names, group):
    """For some seeds, whether a group is put aside."""
    numbers = np.unique(names, return_inverse=True)[1]
    parts = [folds.split_groups(jr.key(seed), numbers, 0.2)[0] for seed in range(20)]
    return [group in names[part] for part in parts]


def test_a_model_of_points_that_belong_together():
    points = RNG.normal(size=(60, 2))
    model = calor.fit(
        calor.heat_kernel(calor.Euclidean(2)),
        points,
        groups=np.arange(60) // 20,
        parts="diffusion",
        key=jr.key(0),
        training=calor.Training(steps=4, batch=8, validate_every=2),
        network=calor.Network(width=8, depth=1, frequencies=4),
    )
    assert model.history.steps.tolist() == [2, 4]
    assert model.sample(3, key=jr.key(1), steps=4).shape == (3, 2)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.zeros(19), "one group for each of the 20 points.*shape \\(19,\\)"),
        (np.zeros((20, 2)), "shape \\(20, 2\\)"),
        (np.full(20, "x"), "all points are of one group, x; at least two"),
        ([[1], [2, 3]] * 10, "one name for each point"),
        (np.where(np.arange(20) == 7, np.nan, 1.0), "groups has NaN in row 7"),
        ([None] * 20, "by numbers or strings"),
    ],
)
def test_groups_at_the_door(groups, message):
    with pytest.raises(ValueError, match=f"fit: .*{message}"):
        calor.fit(
            calor.heat_kernel(calor.Euclidean(2)),
            RNG.normal(size=(20, 2)),
            groups=groups,
            parts="diffusion",
            key=jr.key(0),
        )
