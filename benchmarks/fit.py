"""How fast models are trained, drawn from and scored, and which law of times is best.

    python benchmarks/fit.py [--json fit.json]
    python benchmarks/fit.py --times          # laws of the times of training, on the floods

Two cores, after compilation, medians. "Outside" is the share of a step that is not the network:
drawing from the kernel and its score. "Ratio" is a whole training step, optimizer included, over
the bare forward and backward pass of its network. `--times` needs CALOR_DATA.
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from _measure import heading, milliseconds, write

import calor
from calor import datasets
from calor.data.prepare import Given, prepare
from calor.manifolds.names import manifold_named
from calor.models.fields import TangentVelocity
from calor.models.fit import batches
from calor.models.network import Task
from calor.models.objectives import Denoising, FlowMatching
from calor.models.prior import Uniform
from calor.models.times import Times, find_scales
from calor.training.fixed import trainable
from calor.training.steps import _advance, started, together

FLOW = "flow matching"


def training_speed(name, method):
    """Times of a step and of its parts, with the kernel of a method, or of flow matching."""
    manifold, settings = manifold_named(name), calor.Training()
    flow = method == FLOW
    kernel = calor.heat_kernel(manifold, "exact" if flow else method)
    points = jax.vmap(manifold.random_point)(jr.split(jr.key(0), 5000))
    prepared = prepare(manifold, Given(points), key=jr.key(1)).part(0)
    scales = find_scales(kernel, prepared.points, t_min=1e-5)
    kind = TangentVelocity if flow else calor.TangentScore
    task = Task(manifold, prepared.points, scales, 0, outputs=kind.outputs(manifold))
    network = calor.Network().build(task, key=jr.key(2))
    field = kind(manifold, network)
    law = Times(scales.t_min, scales.t1)
    objective = Denoising(law, kernel)
    if flow:
        objective = FlowMatching(law, kernel, Uniform(manifold))
    loss, first = batches(objective, prepared), jnp.zeros((), int)
    parameters, rest = trainable(field, lambda field: field.network)
    times = law.draw(jr.key(3), settings.batch)
    x = prepared.points[: settings.batch]
    empty = jnp.zeros((settings.batch, 0))

    # The batch is an argument: of constants, the compiler would work out the waves beforehand.
    def bare(parameters, times, x):
        values = jax.vmap(eqx.combine(parameters, rest))(times, x, empty)
        return jnp.mean(values * x)

    def full(parameters, key):
        examples = loss.draw(settings.batch, first, key)
        return loss(eqx.combine(parameters, rest), examples, None)[0]

    backward, whole = jax.jit(jax.grad(bare)), jax.jit(jax.grad(full))
    losses = together([loss])
    learners, stack = started([field], losses, settings, lambda field: field.network)
    members, now = jnp.arange(1), tuple(map(jnp.asarray, (0, 1, settings.steps)))

    def advanced(learners, key):
        return _advance(learners, members, losses, None, key, stack, now, settings)

    holder = [advanced(learners, jr.key(4))]

    def one_step():
        holder[0] = advanced(holder[0], jr.key(5))
        return holder[0].running["loss"]

    calls = {
        "step": one_step,
        "bare": lambda: backward(parameters, times, x),
        "loss": lambda: whole(parameters, jr.key(6)),
    }
    if not flow:
        keys = jr.split(jr.key(7), settings.batch)
        batched = jax.jit(jax.vmap(kernel.draw_with_score))
        calls["noise"] = lambda: batched(times, x, keys)
    row = milliseconds(calls)
    if not flow:
        row["outside"] = row["noise"] / row["step"]
    row["ratio"] = row["step"] / row["bare"]
    return row


def use_speed(name, method):
    """Draws and likelihoods a second, of a model that was trained for a moment."""
    manifold = manifold_named(name)
    points = jax.vmap(manifold.random_point)(jr.split(jr.key(0), 2000))
    run = calor.fit_flow if method == FLOW else calor.fit
    training = calor.Training(steps=20, validate_every=20)
    kernel = calor.heat_kernel(manifold)
    model = run(kernel, points, key=jr.key(1), training=training, t_min=1e-5, progress=False)
    calls = {
        "draw": lambda: model.sample(512, key=jr.key(2)),
        "score": lambda: model.log_prob(points[:512]),
    }
    times = milliseconds(calls, 3)
    return {
        "draws a second": 512e3 / times["draw"],
        "likelihoods a second": 512e3 / times["score"],
        "stops": len(model.stops),
    }


def compare_times():
    """Test log-likelihood of the floods for laws of the times of training, t^power uniform."""
    train, held, test = datasets.split(datasets.earth("floods"), 0)
    kernel = calor.heat_kernel(calor.Sphere(2))
    for power in (0.0, 0.1, 0.25, 0.5, 1.0):
        model = calor.fit(
            kernel,
            train,
            parts="diffusion",
            key=jr.key(0),
            validation=held,
            training=calor.Training(steps=1000),
            time_power=power,
            progress=False,
        )
        print(f"t^{power:g} uniform: {float(jnp.mean(model.log_prob(test))):.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    parser.add_argument("--times", action="store_true", help="compare laws of times")
    options = parser.parse_args()
    print(heading(f"batch {calor.Training().batch}, network 4 x 192"))
    if options.times:
        compare_times()
        return
    report = {}
    for name in ("sphere:2", "so3"):
        for method in ("exact", "pinn", FLOW):
            title = f"{name} {method}"
            row = report[title] = training_speed(name, method)
            if method != "pinn":  # a fitted model does not know its kernel
                row |= use_speed(name, method)
            print(
                f"{title:24} step {row['step']:.1f} ms ({1e3 / row['step']:.0f} a second), ratio "
                f"{row['ratio']:.2f}"
                + (f", outside {row['outside']:.0%}" if "outside" in row else "")
                + (
                    f", draws/s {row['draws a second']:.0f}, likelihoods/s "
                    f"{row['likelihoods a second']:.0f} ({row['stops']} stops)"
                    if "stops" in row
                    else ""
                ),
                flush=True,
            )
    if options.json:
        write(options.json, report)


if __name__ == "__main__":
    main()
