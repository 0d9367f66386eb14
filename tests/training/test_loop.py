"""The training loop: resuming, pools of noise, validation, and what it compiles."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import calor
from calor.training import loop as training
from calor.training import steps as making
from calor.training.fixed import Fixed, trainable
from calor.training.optimizers import optimizer
from calor.training.run import Run


class Line(eqx.Module):
    network: jnp.ndarray


def squares(line):
    """The squared distances to the weights (1, 2)."""
    return (line.network - jnp.array([1.0, 2.0])) ** 2


class Squares(making.AbstractLoss):
    """Their mean over noisy weights of the two."""

    data: jnp.ndarray

    def draw(self, count, step, key):
        return 1 + 0.1 * jr.normal(key, (count, 2)) + 0 * self.data[0]

    def __call__(self, line, examples, state):
        return jnp.sum(squares(line) * jnp.mean(examples, axis=0)), {}


class Held:
    """They themselves, as a validation."""

    def __len__(self):
        return 2

    def __call__(self, lines):
        return sum(np.asarray(squares(line)) for line in lines)


LOSS = Squares(jnp.ones(1))


def train(settings, line=None, **options):
    line = Line(jnp.zeros(2)) if line is None else line
    return training.train(line, LOSS, settings, key=jr.key(0), judge=Held(), **options)


@pytest.mark.parametrize(("stopped", "reuse"), [(3, 1), (10, 1), (11, 1), (20, 1), (11, 2)])
def test_an_interrupted_training_goes_on_as_if_nothing_had_happened(
    stopped, reuse, tmp_path, monkeypatch
):
    settings = calor.Training(steps=20, batch=4, validate_every=10, reuse=reuse)
    path, advance = tmp_path / "line.partial", making._advance

    def run(**options):
        return train(settings, run=Run("", {"of": "a line"}, **options))

    def stop(number, calls):
        def counted(*inputs):
            calls.append(1)
            if len(calls) == number:
                raise KeyboardInterrupt
            return advance(*inputs)

        return counted

    monkeypatch.setattr(making, "_CALL", 0.0)  # a call for every step
    whole, history = run()
    calls = []
    monkeypatch.setattr(making, "_advance", stop(stopped, calls))
    with pytest.raises(KeyboardInterrupt):
        run(resume=path)
    monkeypatch.setattr(making, "_advance", stop(99, calls := []))
    again, second = run(resume=path)
    assert len(calls) == 20 - (stopped - 1)  # the step that was interrupted is made again
    np.testing.assert_array_equal(again.network, whole.network)
    np.testing.assert_array_equal(second.validations, history.validations)
    assert second.steps.tolist() == [10, 20]


def test_noise_that_takes_long_is_drawn_once_for_many_steps(monkeypatch):
    pools, fill = [], making._fill
    monkeypatch.setattr(making, "_fill", lambda *inputs: pools.append(fill(*inputs)) or pools[-1])
    settings = calor.Training(steps=20, batch=5, validate_every=10, reuse=2)
    counts, draw = [], Squares.draw

    def counted(self, count, step, key):
        counts.append(count)
        return draw(self, count, step, key)

    monkeypatch.setattr(Squares, "draw", counted)
    train(settings)
    assert set(counts) == {20}  # never a batch of five: steps learn from what is in the pool
    assert [pool.shape for pool in pools] == [(1, 20, 2)] * 3  # at the steps 0, 8 and 16
    assert not np.any(pools[0] == pools[1])
    assert calor.Sphere(2).noise_reuse() == 1
    surface = calor.Submanifold(lambda x: x @ x - 1, 3)
    assert calor.Product(calor.Sphere(2), surface).noise_reuse() > 1


def test_the_last_weights_that_are_not_clearly_worse_are_kept():
    values = np.random.default_rng(0).normal(size=400)
    learner = making.Learner(jnp.zeros(1), jnp.zeros(1), None, {"loss": jnp.zeros(1)}, None)
    history = training.History.empty(4)
    start = training.State(
        jnp.zeros((), int), learner, jnp.zeros(1), jnp.full(400, jnp.inf), history
    )
    noise = np.random.default_rng(1).normal(size=400)
    noise = (noise - noise.mean()) / noise.std()  # of mean zero, standard error 0.05
    kept = []
    for row, worse in enumerate((0 * noise, noise + 0.04, noise + 0.06, noise - 0.01)):
        start = eqx.tree_at(lambda s: s.learners.averaged, start, jnp.full(1, row + 1.0))
        start = training._validated(start, row, values + worse, 1.0)
        kept.append(float(start.best[0]))
    assert kept == [1, 2, 2, 4]
    assert start.history.kept.tolist() == [True, True, False, True]
    np.testing.assert_allclose(start.history.validation(), np.mean(values) - 0.01, atol=1e-6)
    np.testing.assert_allclose(start.lowest, values + noise - 0.01, atol=1e-6)


def test_the_learning_rate_rises_and_decays():
    transform = optimizer(calor.Training(steps=100, learning_rate=1e-3))
    weights, gradient = {"w": jnp.ones(3)}, {"w": jnp.ones(3)}
    state, sizes = transform.init(weights), []
    for _ in range(100):
        update, state = transform.update(gradient, state, weights, total=jnp.asarray(100))
        sizes.append(float(jnp.max(jnp.abs(update["w"]))))
    assert 0.9e-3 < max(sizes) < 1.1e-3
    assert sizes[0] < 0.1 * max(sizes)
    assert sizes[-1] < 0.02 * max(sizes)


def test_nothing_is_compiled_after_the_first_step(monkeypatch):
    traced, step = [], making._step
    monkeypatch.setattr(making, "_step", lambda *inputs: traced.append(1) or step(*inputs))
    counts, advance = [], making._advance
    monkeypatch.setattr(
        making, "_advance", lambda *inputs: counts.append(int(inputs[-2][1])) or advance(*inputs)
    )
    settings = calor.Training(steps=97, batch=3, validate_every=50, reuse=3)
    train(settings)
    assert sum(counts) == 97
    assert max(counts) > 1  # of so small a network several steps at once, up to a pool's twelve
    assert len(traced) == 1
    train(calor.Training(steps=31, batch=3, validate_every=10, reuse=3))
    assert len(traced) == 1  # a training of another length shares it


def test_members_learn_as_if_each_were_alone():
    """From data of their own; they are judged and stopped together."""

    class Data(Squares):
        def draw(self, count, step, key):
            return self.data[:2] + jr.normal(key, (count, 2))

    data = [jnp.array([1.0, 2.0]), jnp.array([3.0, 5.0])]
    settings = calor.Training(steps=12, batch=4, validate_every=6)
    lines = [Line(jnp.zeros(2)), Line(jnp.full(2, 0.5))]
    loss = making.together([Data(values) for values in data])
    found, history = training.train_together(lines, loss, settings, key=jr.key(0), judge=Held())
    assert history.steps.tolist() == [6, 12]
    for number in range(2):
        alone = making.together([Data(data[number])])
        learners, rest = making.started([lines[number]], alone, settings, lambda line: line)
        learner = jax.tree.map(lambda a: a[0], learners)
        for at in range(12):
            key = jr.fold_in(jr.fold_in(jr.key(0), number), at)
            total, own = jnp.asarray(12), alone.member(0)
            made = jnp.asarray(at)
            learner = making._step(learner, made, total, own, None, key, rest, settings)
        np.testing.assert_allclose(found[number].network, learner.averaged.network, rtol=1e-5)
    assert not np.allclose(found[0].network, found[1].network)


@pytest.mark.parametrize("is_guess", [False, True])
def test_a_guess_competes_with_what_training_makes_of_it(is_guess):
    """At the target from the start, and shaken by steps that are far too large."""
    settings = calor.Training(steps=4, batch=4, learning_rate=5.0, validate_every=2, average=0.0)
    line = Line(jnp.array([1.0, 2.0]) + 1e-3)
    best, history = train(settings, line, is_guess=is_guess)
    assert history.steps.tolist() == [0, 2, 4][1 - is_guess :]
    assert np.allclose(best.network, line.network) == is_guess


def test_how_many_steps_are_made_at_once_does_not_matter(monkeypatch):
    settings, found = calor.Training(steps=40, batch=4, validate_every=20), []
    for seconds in (0.0, 100.0):
        monkeypatch.setattr(making, "_CALL", seconds)
        found.append(train(settings))
    np.testing.assert_array_equal(found[0][0].network, found[1][0].network)
    np.testing.assert_array_equal(found[0][1].losses, found[1][1].losses)


def test_without_a_judge_the_last_average_is_kept():
    line, history = training.train(
        Line(jnp.zeros(2)), LOSS, calor.Training(steps=7, batch=4, validate_every=3), key=jr.key(0)
    )
    assert history.steps.tolist() == [3, 6, 7]
    assert history.kept.all()
    assert jnp.isnan(history.validations).all()
    assert 0 < float(line.network[0]) < 1


class Balanced(making.AbstractLoss):
    """Two terms, the weights of which are counted; every third step is not a number."""

    def draw(self, count, step, key):
        return jnp.where(step % 3 == 2, jnp.nan, step) + jnp.zeros(count)

    def names(self):
        return ("first", "second")

    def begin(self):
        return jnp.zeros(2)

    def adapt(self, state, model, examples, step):
        return state + jnp.stack([1.0, jnp.asarray(step, float)])

    def __call__(self, line, examples, state):
        terms = squares(line) * (1 + 0 * examples[0])
        return jnp.sum(terms), {"first": state[0], "second": state[1]}


def test_a_loss_balances_its_terms_and_steps_that_are_not_finite_are_passed_over():
    def descent(settings):
        return optax.sgd(settings.learning_rate)

    settings = calor.Training(
        steps=6, learning_rate=0.1, average=0.0, optimizer=descent, skip_nonfinite=True
    )
    line, history = training.train(Line(jnp.zeros(2)), Balanced(), settings, key=jr.key(0))
    # Four steps of six are made, each of which takes off a fifth.
    np.testing.assert_allclose(line.network, (1 - 0.8**4) * jnp.array([1.0, 2.0]), rtol=1e-5)
    assert np.isfinite(history.losses).all()
    assert settings.record()["optimizer"].endswith("descent")
    with pytest.raises(FloatingPointError, match="diverged at step 6"):
        training.train(
            Line(jnp.zeros(2)), Balanced(), calor.Training(steps=6, average=0.0), key=jr.key(0)
        )


def test_what_is_fixed_or_no_part_of_it_is_not_trained():
    model = {"network": [jnp.ones(2), Fixed(jnp.ones(3)), 4], "place": jnp.ones(5)}
    sizes = lambda trained: [leaf.size for leaf in jax.tree.leaves(trained[0])]
    assert sizes(trainable(model)) == [2, 5]
    assert sizes(trainable(model, lambda m: m["network"])) == [2]
