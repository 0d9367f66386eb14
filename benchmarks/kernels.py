"""How fast the kernels that need no training are: log p, score and draws, on one core.

    python benchmarks/kernels.py [--batch 128 4096] [--repeats 50] [--json kernels.json]

Every figure is the median time of one call after compilation, batched by `jax.vmap` under
`jax.jit`, with one time per point. The compilation time of each is listed too. Where `geomstats`
or `geometric_kernels` can be imported, what they offer on the same manifold is timed beside.
"""

from _measure import heading, median_time, one_core, write

one_core()

import argparse
import importlib.util
import platform
import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import calor


def rows_of(calls, batch, repeats, **more):
    """A row for each call; the keys are the case and what is called."""
    rows = []
    for (case, what), call in calls.items():
        first, later = median_time(call, repeats)
        row = {"case": case, "what": what, "batch": batch, "ms": later, "compile_s": first / 1e3}
        rows.append(row | more)
    return rows


def kernel_rows(batch, repeats):
    """Times of log p, score and draws for each kernel."""
    cases = {
        "S^2 exact": (calor.Sphere(2), "exact"),
        "SO(3) exact": (calor.SO3(), "exact"),
        "T^2 exact": (calor.Torus(2), "exact"),
        "H^3 exact": (calor.Hyperbolic(3), "exact"),
        "H^2 exact": (calor.Hyperbolic(2), "exact"),
        "SPD(2) exact": (calor.SPD(2), "exact"),
        "SPD(10) first order": (calor.SPD(10), "short-time"),
    }
    rows = []
    for name, (manifold, method) in cases.items():
        start = time.perf_counter()
        kernel = calor.heat_kernel(manifold, method)
        build = time.perf_counter() - start
        keys = jr.split(jr.key(0), batch)
        t = jnp.exp(jr.uniform(jr.key(1), (batch,), minval=np.log(0.01), maxval=np.log(2.0)))
        x0 = jax.vmap(manifold.random_point)(jr.split(jr.key(2), batch))
        draw = jax.jit(jax.vmap(lambda s, y, key, kernel=kernel: kernel.sample(s, y, key=key)))
        x = draw(t, x0, keys)
        log_prob = jax.jit(jax.vmap(kernel.log_prob))
        score = jax.jit(jax.vmap(kernel.score))
        calls = {
            (name, "log p"): lambda: log_prob(t, x, x0),
            (name, "score"): lambda: score(t, x, x0),
            (name, "draw"): lambda: draw(t, x0, keys),
        }
        rows += rows_of(calls, batch, repeats, build_s=build)
    return rows


def spd_rows(batch, repeats):
    """exp, log and dist on SPD(10), beside the eigendecompositions that each of them needs."""
    manifold = calor.SPD(10)
    x = jax.vmap(manifold.random_point)(jr.split(jr.key(0), batch))
    y = jax.vmap(manifold.random_point)(jr.split(jr.key(1), batch))
    v = jax.jit(jax.vmap(manifold.log))(x, y)
    eigh = jax.jit(jnp.linalg.eigh)
    eigvalsh = jax.jit(jnp.linalg.eigvalsh)
    exp, log, dist = (jax.jit(jax.vmap(f)) for f in (manifold.exp, manifold.log, manifold.dist))
    calls = {
        "eigh alone": lambda: eigh(x),
        "eigvalsh alone": lambda: eigvalsh(x),
        "exp": lambda: exp(x, v),
        "log": lambda: log(x, y),
        "dist": lambda: dist(x, y),
    }
    return rows_of({("SPD(10)", what): call for what, call in calls.items()}, batch, repeats)


def other_libraries(batch, repeats):
    """The nearest counterparts in other libraries, if they are installed."""
    calls = {}
    if importlib.util.find_spec("geomstats"):
        from geomstats.geometry.hypersphere import Hypersphere
        from geomstats.geometry.spd_matrices import SPDAffineMetric, SPDMatrices

        sphere = Hypersphere(2)
        a, b = sphere.random_uniform(batch), sphere.random_uniform(batch)
        spd = SPDMatrices(10, equip=False)
        spd.equip_with_metric(SPDAffineMetric)
        p, q = spd.random_point(batch), spd.random_point(batch)
        calls = {
            ("S^2 geomstats", "dist (no heat kernel)"): lambda: sphere.metric.dist(a, b),
            ("SPD(10) geomstats", "log"): lambda: spd.metric.log(q, p),
            ("SPD(10) geomstats", "dist"): lambda: spd.metric.dist(p, q),
        }
    if importlib.util.find_spec("geometric_kernels"):
        from geometric_kernels.kernels import MaternGeometricKernel
        from geometric_kernels.spaces import Hypersphere as GKSphere

        kernel = MaternGeometricKernel(GKSphere(2))
        params = kernel.init_params()
        params["nu"] = np.array([np.inf])
        params["lengthscale"] = np.array([0.5])
        points = np.random.default_rng(0).normal(size=(batch, 3))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        source = points[:1]
        title = "S^2 geometric-kernels", "p (one source, one t)"
        calls[title] = lambda: kernel.K(params, points, source)
    return rows_of(calls, batch, repeats)


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, nargs="+", default=[128, 4096])
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    rows = []
    for batch in options.batch:
        for measure in (kernel_rows, spd_rows, other_libraries):
            rows += measure(batch, options.repeats)
    print(heading(f"float32, median of {options.repeats}", f"one {platform.machine()} core"))
    print(f"{'case':24}{'what':24}{'batch':>7}{'ms':>10}{'first call s':>14}")
    for row in rows:
        print(
            f"{row['case']:24}{row['what']:24}{row['batch']:7d}{row['ms']:10.3f}"
            f"{row['compile_s']:14.2f}"
        )
    if options.json:
        write(options.json, rows)


if __name__ == "__main__":
    main()
