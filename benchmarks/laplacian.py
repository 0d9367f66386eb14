"""Compare ways to take the Laplacian of a network along a tangent frame.

Every way computes sum_j d^2 f(e_j, e_j) + df(b), as `calor.manifolds.calculus.laplacian` does, for
a batch of points.  Run on one core, so that figures from different machines can be compared:

    python benchmarks/laplacian.py --batch 128 --repeats 20
"""

from _measure import heading, milliseconds, one_core

one_core()

import argparse
import platform

import jax
import jax.numpy as jnp
import jax.random as jr

from calor.manifolds import calculus
from calor.manifolds.sphere import Sphere

try:
    import folx
except ImportError:
    folx = None

# name, number of layers, width, dimension N of the ambient space (the sphere of dimension N - 1)
NETWORKS = [
    ("4 x 256, N = 3", 4, 256, 3),
    ("3 x 64, N = 3", 3, 64, 3),
    ("3 x 64, N = 55", 3, 64, 55),
]


def network(depth, width, size, key):
    """A tanh network with one output."""
    sizes = [size] + [width] * depth + [1]
    keys = jr.split(key, depth + 1)
    shapes = list(zip(sizes[:-1], sizes[1:], strict=True))
    layers = [jr.normal(k, shape) / shape[0] ** 0.5 for k, shape in zip(keys, shapes, strict=True)]

    def f(x):
        for weights in layers[:-1]:
            x = jnp.tanh(x @ weights)
        return (x @ layers[-1])[0]

    return f


def linearized_gradient(f, x, frame, drift):
    """Forward over reverse: the gradient, linearized once and applied to every frame vector."""
    df, hessian_times = jax.linearize(jax.grad(f), x)
    second = jax.vmap(lambda e: e @ hessian_times(e))(frame)
    return jnp.sum(second) + df @ drift


def full_hessian(f, x, frame, drift):
    """The whole Hessian, contracted afterwards."""
    hessian = jax.hessian(f)(x)
    return jnp.einsum("ji,ik,jk->", frame, hessian, frame) + jax.grad(f)(x) @ drift


def forward_laplacian(f, x, frame, drift):
    """Value, gradient and Laplacian pushed forward together; flat coordinates along the frame."""
    flat = folx.forward_laplacian(lambda c: f(x + c @ frame))(jnp.zeros(len(frame), x.dtype))
    return flat.laplacian + jax.jvp(f, (x,), (drift,))[1]


WAYS = {
    "forward over forward (calculus.py)": calculus.laplacian,
    "linearized gradient": linearized_gradient,
    "Hessian, then contraction": full_hessian,
}
if folx is not None:
    WAYS["forward Laplacian (folx)"] = forward_laplacian


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    about = f"batch {arguments.batch}, median of {arguments.repeats}, milliseconds"
    print(heading(about, f"{processor()}, one core"))
    print(f"{'':36}" + "".join(f"{name:>18}" for name, *_ in NETWORKS))
    reference = {}
    for way, laplacian in WAYS.items():
        cells = []
        for name, depth, width, size in NETWORKS:
            sphere = Sphere(size - 1)
            f = network(depth, width, size, jr.key(0))
            points = jax.vmap(sphere.project)(jr.normal(jr.key(1), (arguments.batch, size)))

            def one(x, f=f, sphere=sphere, laplacian=laplacian):
                return laplacian(f, x, sphere.frame(x), sphere.coordinate_laplacian(x))

            batched = jax.jit(jax.vmap(one))
            values = batched(points)
            expected = reference.setdefault(name, values)
            error = float(jnp.max(jnp.abs(values - expected)) / jnp.max(jnp.abs(expected)))
            if error > 1e-3:
                raise RuntimeError(f"{way} disagrees on {name}: relative difference {error:.2g}")
            call = {name: lambda: batched(points)}
            cells.append(milliseconds(call, arguments.repeats)[name])
        print(f"{way:36}" + "".join(f"{cell:18.2f}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
