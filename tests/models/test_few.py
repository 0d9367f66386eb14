"""Draws in few steps: the order of the method, and the laws that it ends at."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from test_diffusion import exact_model

import calor
from calor import cli
from calor.manifolds.names import manifold_named
from calor.models.few import level_of, multistep, time_of
from fits import points_of

NOTHING = jnp.zeros(0)


def moved(model, x, steps, stop=1e-3):
    """Points after so many steps from the prior to a stop."""
    levels = model.levels(jnp.asarray(stop), steps)

    def reach(level, x):
        return model.reach(level, x, NOTHING)

    return jax.jit(jax.vmap(lambda x: multistep(reach, model.manifold, levels, x)))(x)


@pytest.mark.parametrize("gap", [0.0, 1.0, 2.0])
def test_levels_are_the_integral_of_the_size_of_a_score(double, gap):
    t = jnp.geomspace(1e-6, 2.0, 20)
    size = jnp.sqrt(gap / jnp.expm1(2 * gap * t)) if gap else 1 / jnp.sqrt(2 * t)
    np.testing.assert_allclose(jax.vmap(jax.grad(lambda t: level_of(t, gap)))(t), size, 1e-9)
    np.testing.assert_allclose(time_of(level_of(t, gap), gap), t, 1e-9)


@pytest.mark.parametrize(
    "name", ["sphere:2", *(pytest.param(n, marks=pytest.mark.slow) for n in ("spd:2", "torus:2"))]
)
def test_the_error_is_of_second_order(double, name):
    model, _ = exact_model(name, time=0.05)
    x = jax.vmap(lambda key: model.prior.sample(key, NOTHING))(jr.split(jr.key(0), 32))
    truth = moved(model, x, 1024)
    distance = jax.vmap(model.manifold.dist_at)
    errors = [float(jnp.median(distance(moved(model, x, n), truth))) for n in (32, 64, 128)]
    assert errors[0] / errors[1] > 3.2
    assert errors[1] / errors[2] > 3.2


def test_a_gaussian_in_flat_space(double):
    # Data of variance c^2 around zero: the flow keeps x / sqrt(c^2 + 2t).
    model, _ = exact_model("euclidean:2", time=0.02, count=1)
    centre, known = model.prior.centres[0], 0.04
    x = centre + jr.normal(jr.key(1), (16, 2))
    shrunk = jnp.sqrt((known + 2e-3) / (known + 2 * model.t1))
    np.testing.assert_allclose(moved(model, x, 200), centre + shrunk * (x - centre), atol=2e-4)


def test_few_steps_end_at_the_law_of_heat_around_a_point(double):
    # Heat around one point of the sphere: E cos(angle) = exp(-2 (t + stop)), E P_2 = exp(-6 ...).
    model, score = exact_model("sphere:2", time=0.1, count=1)
    x = model.sample(4000, key=jr.key(2), method="multistep", steps=12)
    cosine = np.asarray(x @ score.centres[0])
    for degree in (1, 2):
        values = cosine if degree == 1 else (3 * cosine**2 - 1) / 2
        error = values.std() / np.sqrt(len(values))
        truth = np.exp(-degree * (degree + 1) * (0.1 + 1e-3))
        assert abs(values.mean() - truth) < 4 * error + 5e-3


def test_flows_and_stops(tmp_path):
    manifold = calor.Sphere(2)
    kernel = calor.heat_kernel(manifold)
    data = np.asarray(jax.vmap(manifold.random_point)(jr.split(jr.key(0), 200)))
    training = calor.Training(steps=30, batch=128, validate_every=15)
    network = calor.Network(width=16, depth=1, frequencies=8)
    given = {"network": network, "training": training, "progress": False}
    flow = calor.fit_flow(kernel, data, key=jr.key(1), **given)
    many = flow.sample(50, key=jr.key(2), method="flow", steps=400)
    few = flow.sample(50, key=jr.key(2), method="multistep", steps=64)
    assert float(jnp.median(jax.vmap(manifold.dist)(many, few))) < 0.01
    # What is drawn from the prior stays where it is.
    far = flow.run_few(jnp.zeros(5), jr.key(3), jnp.asarray(flow.t1, few.dtype), NOTHING)
    np.testing.assert_allclose(far, flow.prior.sample(jr.key(3), NOTHING), atol=1e-6)
    # The same on the command line.
    flow.save(tmp_path / "flow.calor")
    asked = [tmp_path / "flow.calor", "-n", 5, "--steps", 3, "--method", "multistep"]
    asked += ["--out", tmp_path / "few.npy"]
    assert cli.main(["sample", *map(str, asked)]) == 0
    drawn = flow.sample(5, key=jr.key(0), steps=3, method="multistep")
    np.testing.assert_allclose(np.load(tmp_path / "few.npy"), drawn, atol=1e-6)
    assert cli.main(["sample", *map(str, asked), "--method", "none"]) == 2


# Distillation.


def toy(manifold):
    """A teacher of little training, of points of two kinds."""
    kernel = calor.heat_kernel(manifold)
    data = points_of(manifold, 300)
    label = np.where(np.arange(300) % 2 == 0, "a", "b")
    network = calor.Network(width=24, depth=2, frequencies=8)
    training = calor.Training(steps=60, batch=128, validate_every=30)
    return calor.fit(
        kernel,
        data,
        condition=label,
        parts="diffusion",
        key=jr.key(0),
        network=network,
        training=training,
        t_min=1e-2,
        stops=[1e-2, 2e-2],
        progress=False,
    )


@pytest.mark.parametrize("name", ["sphere:2", pytest.param("spd:2", marks=pytest.mark.slow)])
def test_a_distilled_model_draws_what_its_teacher_does(name, tmp_path):
    teacher = toy(manifold_named(name))
    training = calor.Training(steps=400, batch=256, validate_every=200)
    model = calor.distill(
        teacher, condition=["a", "b"], key=jr.key(1), draws=1500, training=training, progress=False
    )
    assert model.history.validations[-1] < 0.5 * model.history.validations[0]
    condition, key = ["a"] * 200, jr.key(2)
    many = teacher.sample(200, condition=condition, key=key, method="multistep", steps=100)
    distance = jax.vmap(teacher.manifold.dist)
    # The same key draws the same point of the prior.
    errors = [
        float(jnp.median(distance(many, model.sample(200, condition=condition, key=key, steps=n))))
        for n in (1, 2, 4)
    ]
    euler = teacher.sample(200, condition=condition, key=key, method="multistep", steps=1)
    assert errors[0] < 0.4 * float(jnp.median(distance(many, euler)))
    assert max(errors) < 0.06
    # Of 200 steps it makes four; its density is that of the teacher; and in a file it is the same.
    x = model.sample(5, condition="a", key=key)
    model.save(tmp_path / "few.calor")
    again = calor.load(tmp_path / "few.calor")
    np.testing.assert_array_equal(again.sample(5, condition="a", key=key, steps=4), x)
    np.testing.assert_array_equal(
        again.log_prob(x, condition="a"), teacher.log_prob(x, condition="a")
    )
    both = calor.stack([teacher, again], x, condition="a")
    assert both.sample(4, condition="a", key=key, steps=4).shape == x[:4].shape


def test_what_cannot_be_distilled():
    data = points_of(calor.Sphere(2), 30)
    density = calor.fit_density(calor.heat_kernel(calor.Sphere(2)), data, key=jr.key(0), t_min=1e-2)
    with pytest.raises(ValueError, match="distill: only a diffusion or a flow can be distilled"):
        calor.distill(density, key=jr.key(0))
