"""Files of the first release, written by it (8a74d4f), and what they said then.

    python make.py FOLDER          # with that release installed

Every kind of value that a file can hold is here once, as small as it can be.
"""

import dataclasses
import sys
import warnings
from pathlib import Path

import jax
import jax.random as jr
import numpy as np

import calor

warnings.simplefilter("ignore")
out = Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
expected = {}
TINY = calor.Training(steps=4, batch=16, validate_every=2)
NET = calor.Network(width=4, depth=1, frequencies=4)


def points(manifold, n=24, seed=1):
    return jax.vmap(manifold.random_point)(jr.split(jr.key(seed), n))


def keep(name, value, manifold, condition=None, sampled=True):
    calor.save(out / f"{name}.calor", value)
    x = points(manifold, 3, 7)
    if hasattr(value, "certificate") or not hasattr(value, "field"):
        x0 = points(manifold, 3, 8)
        expected[name] = {
            "x": x,
            "x0": x0,
            "log_prob": [float(value.log_prob(0.4, a, b)) for a, b in zip(x, x0, strict=False)],
            "score": np.asarray([value.score(0.4, a, b) for a, b in zip(x, x0, strict=False)]),
            "early": [float(value.log_prob(0.05, a, b)) for a, b in zip(x, x0, strict=False)],
        }
    else:
        c = {} if condition is None else {"condition": condition}
        expected[name] = {
            "x": x,
            "log_prob": np.asarray(value.log_prob(x, **c)),
            "draws": np.asarray(value.sample(3, key=jr.key(5), steps=8, **c)),
        }
    print(name, (out / f"{name}.calor").stat().st_size, flush=True)


S2, SO3, SPD = calor.Sphere(2), calor.SO3(), calor.SPD(2)


def fit(kernel, data, **k):
    options = {"key": jr.key(0), "network": NET, "training": TINY, "progress": False, **k}
    return calor.fit(kernel, data, **options)


# models
d = points(SPD)
c = np.linspace(-1, 1, 24)
keep(
    "diffusion-spd-numbers",
    fit(calor.heat_kernel(SPD), d, condition=c),
    SPD,
    condition=np.array([0.1, 0.2, 0.3]),
)
keep("diffusion-spd-plain", fit(calor.heat_kernel(SPD), d), SPD)
keep(
    "diffusion-spd-labels",
    fit(calor.heat_kernel(SPD), d, condition=np.array(["a", "b"] * 12)),
    SPD,
    condition=np.array(["a", "b", "a"]),
)
keep("triangular-spd", fit(calor.heat_kernel(SPD), d, score=calor.TriangularScore), SPD)
keep("spdnet-spd", fit(calor.heat_kernel(SPD), d, score=calor.SPDNetScore), SPD)
keep("denoised-so3", fit(calor.heat_kernel(SO3), points(SO3), score=calor.DenoisedScore), SO3)
keep(
    "mixture-sphere",
    fit(
        calor.heat_kernel(S2),
        points(S2, 48),
        network=calor.Network(width=4, depth=1, frequencies=4, centres=2),
    ),
    S2,
)
keep(
    "learned-prior-hyperbolic",
    fit(calor.heat_kernel(calor.Hyperbolic(2)), points(calor.Hyperbolic(2)), centres=2),
    calor.Hyperbolic(2),
)
flow = calor.fit_flow(
    calor.heat_kernel(S2),
    points(S2),
    condition=np.array([0, 1] * 12),
    key=jr.key(0),
    network=NET,
    training=TINY,
    progress=False,
)
keep("flow-sphere-labels", flow, S2, condition=np.array([0, 1, 0]))
prod = calor.Product(S2, calor.Euclidean(2))
keep("diffusion-product", fit(calor.heat_kernel(prod), points(prod)), prod)
cloud = calor.PointCloud(4, 3, smallest=3, centred=3)
cn = calor.CloudNetwork(width=4, depth=1)
keep("diffusion-cloud", fit(calor.heat_kernel(cloud), points(cloud), network=cn), cloud)
keep(
    "flow-cloud",
    calor.fit_flow(
        calor.heat_kernel(cloud, "bethe"),
        points(cloud),
        key=jr.key(0),
        network=cn,
        training=TINY,
        progress=False,
    ),
    cloud,
)
# kernels
r = calor.recipes
keep(
    "solved-so3",
    calor.solve(
        SO3, r.default(points=64, steps=4), key=jr.key(0), certificate_points=16, progress=False
    ),
    SO3,
)
keep(
    "solved-spd2",
    calor.solve(
        SPD,
        r.default(points=64, steps=4, rounds=1),
        key=jr.key(0),
        certificate_points=16,
        progress=False,
    ),
    SPD,
)
keep(
    "paper-sphere",
    calor.solve(
        S2,
        r.paper(width=4, depth=1, frequencies=2, steps=50, batch=64),
        key=jr.key(0),
        certificate_points=16,
        progress=False,
    ),
    S2,
)
keep(
    "paper-so3",
    calor.solve(
        SO3,
        r.paper(width=4, depth=1, frequencies=2, steps=50, batch=64),
        key=jr.key(0),
        certificate_points=16,
        progress=False,
    ),
    SO3,
)
keep(
    "paper-spd2",
    calor.solve(
        SPD,
        r.paper(width=4, depth=1, frequencies=2, steps=50, batch=64),
        key=jr.key(0),
        certificate_points=16,
        progress=False,
    ),
    SPD,
)
plain = calor.PointCloud(3, 2)
keep(
    "paper-cloud",
    calor.solve(
        plain,
        r.paper(width=4, depth=1, frequencies=2, steps=50, batch=64),
        key=jr.key(0),
        certificate_points=16,
        progress=False,
    ),
    plain,
)
keep(
    "solved-cloud",
    calor.solve(
        plain,
        r.clouds(width=4, depth=1, steps=25, batch=8),
        key=jr.key(0),
        certificate_points=16,
        progress=False,
    ),
    plain,
)
sphere = calor.Submanifold(lambda x: x @ x - 1, 3)
pairs = calor.solve(
    sphere,
    r.pairs(points=64, steps=2, rounds=1, widths=(4, 4), t0=0.1, t1=1.0, r_max=3.0),
    key=jr.key(0),
    certificate_points=16,
    progress=False,
)
keep("pairs-submanifold", pairs, sphere)
series = calor.solve_spectral(sphere, key=jr.key(0), functions=100)
keep("series-submanifold", series, sphere)
late = series.certificate.after(0.6, pairs.certificate.until(0.6))
both = dataclasses.replace(series, law=pairs, t0=0.6, certificate=late)
keep("series-after-network", both, sphere)
keep("diffusion-submanifold", fit(series, points(sphere)), sphere)
flat = {
    f"{n}/{k}": np.asarray(v, np.float64 if k in ("log_prob", "early") else None)
    for n, e in expected.items()
    for k, v in e.items()
}
np.savez_compressed(out / "expected.npz", **flat)
