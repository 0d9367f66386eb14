"""`calor.fit` of several parts: folds, weights, plans, points with a noise of their own."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import calor
from calor.data.prepare import Given, prepare
from calor.models import weighed
from calor.models.fit import batches, begin
from calor.models.flow import FLOW
from calor.models.objectives import Denoising
from calor.models.plan import Pace, Plan, sized
from calor.models.specification import Choices
from calor.models.times import Times
from calor.models.verdict import draws_against_data
from calor.training import steps
from fits import SMALL, points_of

SPHERE = calor.Sphere(2)
KERNEL = calor.heat_kernel(SPHERE)
TINY = calor.Training(steps=12, batch=64, validate_every=6)
PLAN = {"parts": ["density", "diffusion"], "members": 2, "steps": 12}


def around_north(count, seed=0):
    """Points around the north pole."""
    north = jnp.array([0.0, 0.0, 1.0])
    return jax.vmap(lambda key: KERNEL.sample(0.05, north, key=key))(jr.split(jr.key(seed), count))


def fit(data, **options):
    options = {"plan": PLAN, "network": SMALL, "progress": False, "key": jr.key(0), **options}
    return calor.fit(KERNEL, data, **options)


@pytest.fixture(scope="module")
def fitted():
    """A model of two parts, and its data."""
    data = around_north(240)
    # Both are kept here, whether or not they help.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weighed, "mean_and_error", lambda values, counts: (np.mean(values), -np.inf))
        return fit(data), data


def test_a_model_of_parts_is_a_model(fitted, tmp_path):
    model, data = fitted
    assert set(model.names) == {"density", "diffusion"}
    assert len(model.part("diffusion").models) == 2
    np.testing.assert_allclose(sum(model.weights), 1, rtol=1e-6)
    uniform = jax.vmap(SPHERE.random_point)(jr.split(jr.key(1), 4000))
    values = np.asarray(model.log_prob(uniform, tolerance=1e-3))
    mass, error = 4 * np.pi * np.exp(values).mean(), 4 * np.pi * np.exp(values).std() / 4000**0.5
    assert abs(mass - 1) < 4 * error
    drawn = model.sample(60, key=jr.key(2), steps=10)
    assert float(jax.vmap(SPHERE.offset_at)(drawn).max()) < 1e-5
    model.save(tmp_path / "model.calor")
    again = calor.load(tmp_path / "model.calor")
    np.testing.assert_array_equal(again.log_prob(data[:3]), model.log_prob(data[:3]))
    assert str(again) == str(model)


def test_what_is_in_a_model_is_plain_to_see(fitted):
    model, _ = fitted
    shown = str(model)
    for word in ("density", "diffusion", "all together", "uniform", "240", "±"):
        assert word in shown or word == "240"
    about = model.about
    assert about["plan"] == PLAN | {"points": 1000}
    assert about["held_out"]["points"] == 2 * 48  # a fifth of the points for each member
    assert about["held_out"]["whole"]["uniform"][0] == pytest.approx(-np.log(4 * np.pi), rel=1e-5)
    parts = about["held_out"]["parts"]
    assert parts["density"][0] > about["held_out"]["whole"]["uniform"][0] + 1
    with pytest.raises(ValueError, match="there is no part 'flow'; the parts are 'density', 'diff"):
        model.part("flow")


def test_the_same_plan_does_the_same_again():
    data, uniform = around_north(60), points_of(SPHERE, 4)
    first = fit(data)
    second = fit(data, plan=calor.Plan.of(first.about["plan"]))
    np.testing.assert_array_equal(first.log_prob(uniform), second.log_prob(uniform))
    assert first.names == second.names


def test_an_interrupted_fit_goes_on_to_the_same_model(tmp_path, monkeypatch):
    data, path, uniform = around_north(60), tmp_path / "fit.partial", points_of(SPHERE, 4)
    whole, advance, calls = fit(data), steps._advance, []
    monkeypatch.setattr(steps, "_CALL", 0.0)  # a call for every step

    def interrupted(*inputs):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return advance(*inputs)

    monkeypatch.setattr(steps, "_advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(data, resume=path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "fit.partial",
        "fit.partial-diffusion",
    ]
    with pytest.raises(calor.FileError, match="belongs to another run: its key"):
        fit(data, resume=path, plan=None, key=jr.key(1))
    with pytest.raises(ValueError, match=r"is of a fit to other data; remove .*fit\.partial-diff"):
        fit(around_north(60, seed=1), resume=path, plan=None)
    again = fit(data, resume=path, plan=None)  # it is in the file
    assert not list(tmp_path.iterdir())
    assert again.about["plan"] == whole.about["plan"]
    np.testing.assert_array_equal(again.log_prob(uniform), whole.log_prob(uniform))


def test_time_sizes_the_plan():
    parts, trained = ("density", "diffusion", "flow"), ("diffusion", "flow")
    pace = Pace(step=0.01, look=0.5, seen=500, last=3.0, points=1000)

    def plan(seconds, pace=pace, most=1000):
        return sized(parts, trained, pace, seconds, most)

    assert plan(1e4) == Plan(parts, 3, 3000, 1000)
    short = plan(60)
    assert short.members == 3
    assert plan(1) == Plan(("density",), 3, 1, 1000)
    assert sized(trained, trained, pace, 1, 1000) == Plan(("diffusion",), 1, 1, 240)
    found = [plan(seconds) for seconds in (5, 20, 30, 60, 150, 1000)]
    steps = [each.steps * each.members for each in found]
    assert steps == sorted(steps)
    assert found[0].parts == ("density", "diffusion")
    assert found[0].members == 1
    for each, seconds in zip(found[1:], (20, 30, 60, 150, 1000), strict=True):
        assert each.parts == parts
        taken = 2 * (each.steps * each.members * pace.step + pace.judging(each.points))
        assert taken <= seconds
    # Where it takes long to judge there are fewer points to judge by, not fewer members.
    slow = plan(150, Pace(step=0.01, look=5.0, seen=500, last=30.0, points=1000))
    assert (slow.members, slow.points) == (3, 240)
    assert plan(1e4, most=240).points == 240


def test_time_is_taken_from_the_first_steps():
    given = Given(around_north(40), validation=None)
    folds = prepare(SPHERE, given, key=jr.key(0), parts=2, most=10)
    untrained = begin(FLOW, KERNEL, folds, Choices(network=SMALL), key=jr.key(1))
    assert 0 < untrained.seconds_of_a_step() < 10
    assert all(0 < seconds < 20 for seconds in untrained.seconds_to_judge())
    assert untrained.seen() == 10


def test_parts_that_help_are_kept_and_weighed():
    rng, h = np.random.default_rng(0), 2000
    inside = rng.random(h) < 0.7
    first = np.where(inside, 0.0, -6.0) + 0.01 * rng.normal(size=h)
    second = np.where(inside, -6.0, 0.0)
    noise = first - 0.5 + 0.1 * rng.normal(size=h)
    found = {
        name: weighed.Fitted(None, values)
        for name, values in (("noise", noise), ("first", first), ("second", second))
    }
    given = Given(jnp.arange(10.0)[:, None], validation=jnp.zeros((h, 1)))
    folds = prepare(calor.Euclidean(1), given, key=jr.key(0))
    kept, weights = weighed._helpful(found, folds)
    assert kept == ["first", "second"]
    np.testing.assert_allclose(weights, [0.7, 0.3], atol=0.04)


def test_every_point_is_judged_by_what_has_not_seen_it():
    points = np.arange(50.0)[:, None]
    folds = prepare(calor.Euclidean(1), Given(points, validation=0.1), key=jr.key(0), parts=4)
    for number, rows in enumerate(folds.rows):
        part = folds.part(number)
        assert len(part.points) == 45
        assert not set(np.ravel(part.points)) & set(rows)
        np.testing.assert_array_equal(np.ravel(part.held_out), rows)
    judged = folds.judged([np.ravel(folds.part(number).held_out) for number in range(4)])
    np.testing.assert_array_equal(judged, np.concatenate(folds.rows))
    crossed = folds.crossed()
    for number, rows in enumerate(folds.rows):  # each sees one of the parts
        part = crossed.part(number)
        assert len(part.points) == 35
        assert set(rows) <= set(np.ravel(part.points))
    for few, most in ((crossed, 40), (crossed.few(12, 4)[0], 12)):
        places = crossed.few(most, 4)[1]
        values = [np.ravel(crossed.part(n).held_out)[places[n]] for n in range(4)]
        np.testing.assert_allclose(few.judged(values), np.concatenate(few.rows), atol=1e-4)
        # Three models judge a row, by the mean of what they say.
        said = [np.log(np.full(len(v), n + 1.0)) for n, v in enumerate(values)]
        found = np.exp(few.judged(said))[:: len(few.rows[0])]
        np.testing.assert_allclose(found, [9 / 3, 8 / 3, 7 / 3, 6 / 3])
    groups = np.arange(50) // 10
    given = Given(points, groups=groups, validation=0.2)
    folds = prepare(calor.Euclidean(1), given, key=jr.key(0), parts=3, most=12)
    for number, rows in enumerate(folds.rows):
        assert len(rows) == 4  # enough to judge by; the rest of the group is not learned from
        assert len(folds.part(number).points) == 40
        assert groups[rows[0]] not in groups[np.ravel(folds.part(number).points).astype(int)]
    given = Given(points, validation=points[:6])
    folds = prepare(calor.Euclidean(1), given, key=jr.key(0), parts=3)
    assert len(folds.part(2).points) == 50
    np.testing.assert_allclose(
        folds.judged([np.log([1.0]), np.log([2.0]), np.log([6.0])]), np.log([3.0])
    )


def test_points_count_as_often_as_their_weights_say():
    points, weights = np.arange(8.0)[:, None], np.array([0, 1, 0, 2, 0, 1, 0, 0.0])
    given = Given(points, weights=weights, validation=points)
    part = prepare(calor.Euclidean(1), given, key=jr.key(0)).part(0)
    kernel = calor.heat_kernel(calor.Euclidean(1))
    loss = batches(Denoising(Times(1e-12, 2e-12), kernel), part, 11)  # so little noise, and padding
    seen = np.rint(loss.draw(4000, 0, jr.key(0)).x[:, 0])
    found = {value: np.mean(seen == value) for value in np.unique(seen)}
    assert set(found) == {1, 3, 5}
    np.testing.assert_allclose([found[1], found[3], found[5]], [0.25, 0.5, 0.25], atol=0.03)
    with pytest.raises(ValueError, match="weights must be finite numbers that are not negative"):
        fit(points_of(SPHERE, 8), weights=-weights)
    with pytest.raises(ValueError, match=r"for each of the 8 points, got an array of shape \(3,\)"):
        fit(points_of(SPHERE, 8), weights=weights[:3])


def test_points_that_were_measured_with_noise_are_draws_at_a_later_time():
    """Noised to the time t they are as wide as true points noised to the time t."""
    rng, count = np.random.default_rng(0), 40_000
    starts = rng.choice([0.1, 0.6], count)
    points = rng.normal(size=(count, 1)) * np.sqrt(2 * starts)[:, None]  # all of the true ones at 0
    given = Given(points, validation=points, concentration=None)
    part = prepare(calor.Euclidean(1), given, key=jr.key(0)).part(0)
    kernel, none = calor.heat_kernel(calor.Euclidean(1)), jnp.zeros((count, 0))
    examples = Denoising(Times(0.2, 2.0), kernel).draw(
        part.points, none, jr.key(1), jnp.asarray(starts, jnp.float32)
    )
    early = (examples.t < starts) & (starts > 0.5)
    assert float(jnp.max(examples.weight[early])) == 0
    used = examples.weight > 0
    for low, high in ((0.3, 0.5), (0.8, 1.2)):
        near = used & (examples.t > low) & (examples.t < high)
        assert float(
            jnp.mean(examples.x[near] ** 2 / (2 * examples.t[near, None]))
        ) == pytest.approx(1, abs=0.05)
        # The score of the noised truth, -x/2t, is what targets are in the mean.
        slope = jnp.sum(examples.target[near] * examples.x[near]) / jnp.sum(examples.x[near] ** 2)
        assert float(slope) == pytest.approx(-1 / (low + high), rel=0.12)
    model = calor.fit(
        KERNEL,
        around_north(60),
        concentration=np.full(60, 50.0),
        key=jr.key(0),
        network=SMALL,
        training=TINY,
        progress=False,
    )
    assert model.stops == (pytest.approx(1.5 * 0.01),)
    with pytest.raises(ValueError, match="concentration takes parts='diffusion', got 'flow'"):
        fit(around_north(60), parts="flow", concentration=np.ones(60), plan=None)
    with pytest.raises(ValueError, match="concentration must be positive"):
        fit(around_north(60), parts="diffusion", concentration=np.zeros(60), plan=None)


def test_one_part_is_a_model_of_its_own():
    data = around_north(40)
    small = {"plan": None, "training": TINY}
    assert isinstance(fit(data, parts="diffusion", **small), calor.Diffusion)
    assert isinstance(fit(data, parts="flow", **small), calor.Flow)
    assert isinstance(fit(data, parts="density", **small), calor.KernelDensity)
    pure = calor.fit(
        calor.Varadhan(SPHERE), data, key=jr.key(0), network=SMALL, training=TINY, progress=False
    )
    assert isinstance(pure, calor.Diffusion)  # no density has a mass of one there


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"parts": "forest"},
            "parts must be some of 'density', 'mixture', 'diffusion', 'flow', got",
        ),
        ({"parts": []}, "parts must be some of"),
        ({"minutes": 0.0, "parts": ["density"]}, "minutes must be positive, got 0.0"),
        ({"parts": "density"}, "a plan is for several parts weighed together, not for 'density'"),
        ({"parts": ["flow"]}, r"the plan has the part 'density', parts are \('flow',\)"),
        ({"score": calor.TangentScore, "parts": ["flow"]}, "score takes parts='diffusion'"),
        ({"plan": {"parts": ["tree"], "members": 1, "steps": 1}}, "parts must be some of"),
        ({"plan": {"parts": "flow", "members": 1, "steps": 1}}, "plan must be the"),
        ({"plan": {"parts": ["density"]}}, r"plan must be the about\['plan'\] of a model"),
    ],
)
def test_bad_choices_are_refused(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit(around_north(20), **options)


def test_a_model_fitted_by_the_command_line(tmp_path, capsys):
    from calor import cli

    table, out = tmp_path / "points.npy", tmp_path / "model.calor"
    np.save(table, np.asarray(around_north(60)))
    small = ["--steps", "6", "--batch", "32", "--width", "8", "--parts", "density,flow", "--json"]
    assert cli.main(["fit", "--manifold", "sphere:2", str(table), "--out", str(out), *small]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plan"]["parts"] == ["density", "flow"]
    assert set(found["held_out"]["parts"]) == {"density", "flow"}
    assert calor.load(out).names[0] == "density"
    assert (
        cli.main(["fit", "--manifold", "sphere:2", str(table), "--out", str(out), "--parts", "x"])
        == 2
    )
    assert "parts must be some of" in capsys.readouterr().err


def test_the_plan_of_few_groups_does_the_same_again():
    data = around_north(300)
    groups = np.repeat(["a", "b"], 150)
    plan = {"parts": ["density"], "members": 3, "steps": 1, "points": 60}
    first = fit(data, groups=groups, plan=plan)
    assert first.about["plan"] == plan
    again = fit(data, groups=groups, plan=first.about["plan"])
    assert again.about["held_out"] == first.about["held_out"]


def test_a_part_that_diverges_is_left_out(monkeypatch):
    def diverges(setting):
        raise FloatingPointError("training diverged at step 3")

    monkeypatch.setitem(weighed.PARTS, "flow", weighed.PARTS["flow"]._replace(fit=diverges))
    plan = {"parts": ["density", "flow"], "members": 2, "steps": 3}
    with pytest.warns(UserWarning, match="flow is left out: training diverged at step 3"):
        model = fit(around_north(60), plan=plan)
    assert model.names == ("density",)
    with pytest.raises(ValueError, match="none of the parts mixture can be fitted"):
        fit(around_north(60), plan=plan | {"parts": ["mixture"]})
    with pytest.raises(ValueError, match="9 points are too few to weigh parts by, 10 are needed"):
        fit(around_north(9), plan=plan)


def test_points_that_do_not_count_are_not_there():
    data, labels = np.asarray(around_north(90)), np.repeat(["a", "b"], 45)
    weights = np.where(np.arange(90) % 3 == 0, 0.0, 2.0)
    plan, kept = {"parts": ["density"], "members": 2, "steps": 1}, weights > 0
    some = fit(data, condition=labels, weights=weights, plan=plan)
    same = fit(data[kept], condition=labels[kept], weights=weights[kept], plan=plan)
    x = points_of(SPHERE, 5)
    np.testing.assert_array_equal(some.log_prob(x, condition="a"), same.log_prob(x, condition="a"))
    with pytest.raises(ValueError, match="at least two points must count"):
        fit(data, weights=np.eye(90)[0], plan=plan)


def test_what_one_model_lost_others_know(fitted, monkeypatch):
    model, data = fitted
    lost = lambda self, x, **more: jnp.where(jnp.arange(len(x)) == 0, jnp.nan, 0.0)
    monkeypatch.setattr(type(model.part("density")), "log_prob", lost)
    values = np.asarray(model.log_prob(data[:3]))
    assert np.isfinite(values).all()
    assert values[1] != values[0]
    monkeypatch.setattr(type(model.part("diffusion")), "log_prob", lost)
    assert np.isnan(np.asarray(model.log_prob(data[:3]))).tolist() == [True, False, False]


def test_draws_and_data_of_the_same_law_look_alike():
    """Whatever arrays stand for points of a quotient, and however much points count."""
    plane = calor.Quotient(SPHERE, np.stack([np.eye(3), -np.eye(3)]))

    def on_one_half(count, key):
        points = np.array(jax.vmap(SPHERE.random_point)(jr.split(key, count)))
        points[points[:, 2] < 0] *= -1
        return points, np.where(points[:, 0] > 0, 3.0, 1.0)

    points, counts = on_one_half(3000, jr.key(3))

    def model(counts):
        def sample(n, *, condition, key, steps):
            key_new, key_rows, key_signs = jr.split(key, 3)
            new, weights = on_one_half(20 * n, key_new)
            shares = weights**counts
            rows = jr.choice(key_rows, 20 * n, (n,), replace=False, p=shares / shares.sum())
            return new[rows] * np.asarray(jr.rademacher(key_signs, (n, 1)))

        return SimpleNamespace(
            manifold=plane, sample=sample, features=lambda told, n: np.zeros((n, 0))
        )

    def auc(model, weights):
        given = Given(points, weights=weights)
        return draws_against_data(model, prepare(plane, given, key=jr.key(0)), key=jr.key(1))

    for mean, error in (auc(model(0), None), auc(model(1), counts)):
        assert abs(mean - 0.5) < max(4 * error, 0.04)
    mean, error = auc(model(1), None)
    assert mean > 0.55 + 2 * error


@pytest.mark.parametrize(("manifold", "waves"), [(SPHERE, True), (calor.SPD(2), False)])
def test_members_have_networks_that_suit_the_manifold(manifold, waves):
    """Waves, but where a law in the chart is near."""
    folds = prepare(manifold, Given(points_of(manifold, 60)), key=jr.key(0), parts=2)
    plan, run = Plan(("diffusion",), 2, 8), weighed.Run("fit", progress=False)
    kernel = calor.heat_kernel(manifold)
    setting = weighed.Setting(kernel, folds, folds, Choices(), plan, jr.key(0), run)
    for model in weighed._untrained("diffusion", setting).models:
        chosen = model.about["network"]
        assert (chosen["width"], chosen["depth"]) == (128, 3)
        assert (model.field.network.frequencies.value.shape[1] > 0) == waves
