"""How fast and how good models of SPD(n) are, and whether draws of the first guess are as wide.

    python benchmarks/spd.py [--only muscle|brain|spread] [--json spd.json]

Needs CALOR_DATA.  `muscle`: three channels of muscle signals, 3000 matrices of SPD(3), 1000 more
to test on; `brain`: one subject of PhysioNet's motor imagery, SPD(13), 300 trials, 60 to test on.
The mean log-likelihood of test matrices, of a mixture in the chart and of a diffusion with
defaults, the paired difference and its standard error, and CPU seconds of each fit, with what is
compiled.

`spread`: a diffusion whose network has learned nothing.  The eigenvalues of the covariance of
matrix logarithms, the mean log-determinant and the mean trace, of data and of draws: of two made-up
clusters of SPD(3), and of muscle signals of SPD(8), four fifths of the segments.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _measure import heading, write

import calor
from calor import datasets

UNTRAINED = {
    "training": calor.Training(steps=1, batch=8, learning_rate=1e-9, validate_every=1),
    "network": calor.Network(width=8, depth=1, frequencies=0),
}


def compare(name):
    """The mixture and the diffusion on the same test matrices."""
    if name == "muscle":
        matrices = datasets.emg()[0][:, :3, :3]
        manifold, count, least = calor.SPD(3), 3000, 4000
    else:
        matrices = datasets.eeg()[0]
        manifold, count, least = calor.SPD(13), 300, 360
    chosen = np.random.default_rng(0).permutation(len(matrices))[:least]
    train, test = matrices[chosen[:count]], matrices[chosen[count:]]
    kernel, values, row = calor.heat_kernel(manifold), {}, {}
    fits = {
        "mixture": lambda: calor.fit_mixture(kernel, train, key=jr.key(0)),
        "diffusion": lambda: calor.fit(
            kernel, train, parts="diffusion", key=jr.key(0), progress=False
        ),
    }
    for method, fit in fits.items():
        started = time.process_time()
        model = fit()
        row[f"{method} seconds"] = time.process_time() - started
        values[method] = np.asarray(model.log_prob(test), float)
        row[method] = float(np.mean(values[method]))
        print(f"{name}: {method} {row[method]:.3f} in {row[f'{method} seconds']:.0f} s", flush=True)
    gaps = values["diffusion"] - values["mixture"]
    row["difference"] = [float(gaps.mean()), float(gaps.std() / np.sqrt(len(gaps)))]
    print(f"{name}: difference {gaps.mean():.3f} +- {row['difference'][1]:.3f}", flush=True)
    return row


def two_clusters(count):
    """Matrices of SPD(3) in two clusters of different shapes."""
    rng = np.random.default_rng(0)
    label = rng.random(count) < 0.6
    z = rng.normal(size=(count, 6)) * [0.5, 0.2, 0.2, 0.4, 0.2, 0.3]
    z[label] = rng.normal(size=(label.sum(), 6)) * [0.2, 0.2, 0.5, 0.3, 0.3, 0.2]
    z += np.where(label[:, None], [0.8, 0.3, 0, 0.2, 0, -0.6], [-0.8, 0, -0.4, 0, 0.3, 0.7])
    return np.asarray(jax.vmap(calor.SPD(3).decode)(jnp.asarray(z)), float)


def spreads(manifold, matrices):
    """Eigenvalues of the covariance of logarithms, mean log-determinant and trace with errors."""
    places = jax.jit(jax.vmap(manifold.embedding))(jnp.asarray(matrices, jnp.float32))
    volumes, traces = np.linalg.slogdet(matrices)[1], np.trace(matrices, axis1=1, axis2=2)
    error = lambda values: float(np.std(values) / np.sqrt(len(values)))
    return {
        "spectrum": np.linalg.eigvalsh(np.cov(np.asarray(places, float).T))[::-1].tolist(),
        "log det": [float(volumes.mean()), error(volumes)],
        "trace": [float(traces.mean()), error(traces)],
    }


def spread():
    """Data beside draws of the guess alone."""
    matrices, _, segments = datasets.emg()
    rng = np.random.default_rng(0)
    each = rng.permutation(np.unique(segments))
    kept = np.flatnonzero(np.isin(segments, each[: int(0.8 * len(each))]))
    report = {}
    for name, manifold, points in (
        ("two clusters", calor.SPD(3), two_clusters(3000)),
        ("muscle", calor.SPD(8), matrices[rng.permutation(kept)[:1500]]),
    ):
        kernel = calor.heat_kernel(manifold)
        model = calor.fit(
            kernel, points, parts="diffusion", key=jr.key(0), progress=False, **UNTRAINED
        )
        drawn = np.asarray(model.sample(2000, key=jr.key(1), steps=100), float)
        # As seen from the mean of the data, or else traces are those of a few channels.
        centre = calor.frechet_mean(manifold, jnp.asarray(points, jnp.float32))
        inside = jax.jit(jax.vmap(lambda x, c=centre, m=manifold: m.to_origin(x, c)))
        report[name] = {}
        for title, values in (("data", points), ("draws", drawn)):
            seen = np.asarray(inside(jnp.asarray(values, jnp.float32)), float)
            row = report[name][title] = spreads(manifold, seen)
            top = " ".join(f"{value:.3f}" for value in row["spectrum"][:6])
            print(
                f"{name}, {title}: {top}, sum {sum(row['spectrum']):.3f}, log det "
                f"{row['log det'][0]:.3f} +- {row['log det'][1]:.3f}, trace "
                f"{row['trace'][0]:.3f} +- {row['trace'][1]:.3f}",
                flush=True,
            )
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    parser.add_argument("--only", choices=("muscle", "brain", "spread"))
    options = parser.parse_args()
    print(heading("CPU seconds, compilation included"))
    tasks = {"muscle": lambda: compare("muscle"), "brain": lambda: compare("brain")}
    tasks["spread"] = spread
    chosen = [options.only] if options.only else tasks
    report = {name: tasks[name]() for name in chosen}
    if options.json:
        write(options.json, report)


if __name__ == "__main__":
    main()
