"""Files of the first release, written by it (8a74d4f), and what they said then.

python make.py FOLDER

Every kind of value that a file can hold is here once, as small as it can be.
"""

import dataclasses
import sys
from pathlib import Path

import jax
import jax.random as jr
import numpy as np

import calor
from calor import recipes

TRAINING = calor.Training(steps=4, batch=16, validate_every=2)
NETWORK = calor.Network(width=4, depth=1, frequencies=4)
CLOUD_NETWORK = calor.CloudNetwork(width=4, depth=1)
PAPER = recipes.paper(width=4, depth=1, frequencies=2, steps=50, batch=64)
S2, H2, SO3, SPD = calor.Sphere(2), calor.Hyperbolic(2), calor.SO3(), calor.SPD(2)
PRODUCT = calor.Product(S2, calor.Euclidean(2))
SURFACE = calor.Submanifold(lambda x: x @ x - 1, 3)
VARYING, PLAIN = calor.PointCloud(4, 3, smallest=3, centred=3), calor.PointCloud(3, 2)
LABELS = np.array(["a", "b"] * 12)


def points(manifold, n=24, seed=1):
    return jax.vmap(manifold.random_point)(jr.split(jr.key(seed), n))


def fit(manifold, fit=calor.fit, kernel=None, n=24, **options):
    kernel = calor.heat_kernel(manifold) if kernel is None else kernel
    options = {"network": NETWORK, "training": TRAINING, "progress": False, **options}
    return fit(kernel, points(manifold, n), key=jr.key(0), **options)


def solve(manifold, recipe):
    options = {"certificate_points": 16, "progress": False}
    return calor.solve(manifold, recipe, key=jr.key(0), **options)


def models():
    """Models, and a condition to ask them under."""
    numbers = {"condition": np.linspace(-1, 1, 24)}
    yield "diffusion-spd-numbers", fit(SPD, **numbers), np.array([0.1, 0.2, 0.3])
    yield "diffusion-spd-plain", fit(SPD), None
    yield "diffusion-spd-labels", fit(SPD, condition=LABELS), np.array(["a", "b", "a"])
    yield "triangular-spd", fit(SPD, score=calor.TriangularScore), None
    yield "spdnet-spd", fit(SPD, score=calor.SPDNetScore), None
    yield "denoised-so3", fit(SO3, score=calor.DenoisedScore), None
    centred = dataclasses.replace(NETWORK, centres=2)
    yield "mixture-sphere", fit(S2, n=48, network=centred), None
    yield "learned-prior-hyperbolic", fit(H2, centres=2), None
    labels = np.array([0, 1] * 12)
    flow = fit(S2, calor.fit_flow, condition=labels)
    yield "flow-sphere-labels", flow, np.array([0, 1, 0])
    yield "diffusion-product", fit(PRODUCT), None
    yield "diffusion-cloud", fit(VARYING, network=CLOUD_NETWORK), None
    bethe = calor.heat_kernel(VARYING, "bethe")
    yield "flow-cloud", fit(VARYING, calor.fit_flow, bethe, network=CLOUD_NETWORK), None
    series = calor.solve_spectral(SURFACE, key=jr.key(0), functions=100)
    yield "diffusion-submanifold", fit(SURFACE, kernel=series), None


def kernels():
    windows = {"points": 64, "steps": 4}
    yield "solved-so3", solve(SO3, recipes.default(**windows))
    yield "solved-spd2", solve(SPD, recipes.default(**windows, rounds=1))
    for name, manifold in {"sphere": S2, "so3": SO3, "spd2": SPD, "cloud": PLAIN}.items():
        yield f"paper-{name}", solve(manifold, PAPER)
    yield "solved-cloud", solve(PLAIN, recipes.clouds(width=4, depth=1, steps=25, batch=8))
    interval = {"t0": 0.1, "t1": 1.0, "r_max": 3.0}
    recipe = recipes.pairs(points=64, steps=2, rounds=1, widths=(4, 4), **interval)
    pairs = solve(SURFACE, recipe)
    yield "pairs-submanifold", pairs
    series = calor.solve_spectral(SURFACE, key=jr.key(0), functions=100)
    yield "series-submanifold", series
    late = series.certificate.after(0.6, pairs.certificate.until(0.6))
    both = dataclasses.replace(series, law=pairs, t0=0.6, certificate=late)
    yield "series-after-network", both


def said_by_a_model(model, condition):
    given = {} if condition is None else {"condition": condition}
    x = points(model.manifold, 3, 7)
    yield "x", x
    yield "log_prob", model.log_prob(x, **given)
    yield "draws", model.sample(3, key=jr.key(5), steps=8, **given)


def said_by_a_kernel(kernel):
    x, x0 = points(kernel.manifold, 3, 7), points(kernel.manifold, 3, 8)
    pairs = list(zip(x, x0, strict=True))
    yield from {"x": x, "x0": x0}.items()
    yield "log_prob", [kernel.log_prob(0.4, *pair) for pair in pairs]
    yield "score", [kernel.score(0.4, *pair) for pair in pairs]
    yield "early", [kernel.log_prob(0.05, *pair) for pair in pairs]


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    expected = {}
    for name, model, condition in models():
        calor.save(folder / f"{name}.calor", model)
        for what, values in said_by_a_model(model, condition):
            expected[f"{name}/{what}"] = np.asarray(values)
    for name, kernel in kernels():
        calor.save(folder / f"{name}.calor", kernel)
        for what, values in said_by_a_kernel(kernel):
            expected[f"{name}/{what}"] = np.asarray(values)
    np.savez_compressed(folder / "expected.npz", **expected)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
