"""Solved kernels of a user's own manifolds, kept on disk by content.

A manifold given by functions has no name.  What identifies it is what the functions compute: their
program as JAX hands it to the compiler, with the constants in it.  The file holds arrays only; the
functions are those of the caller.
"""

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from . import files
from ._types import Key
from .certificate import Certificate
from .geodesics import GeodesicLaw
from .manifolds import Submanifold
from .polynomials import Block, Polynomials
from .spectral import SpectralKernel

_KIND = "spectral"
_REVISION = 1  # raised when the solver changes what it finds


def folder(given: str | Path | None) -> Path:
    """Where kernels are kept: what is given, else CALOR_CACHE, else a folder of the user's own."""
    if given is not None:
        return Path(given)
    if "CALOR_CACHE" in os.environ:
        return Path(os.environ["CALOR_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "calor"


def fingerprint(manifold: Submanifold, key: Key, settings: dict) -> str:
    """A name for a solve: the equations, the metric, the settings, the seed and the version."""
    from . import __version__

    digest = hashlib.sha256(f"{__version__} {_REVISION} {sorted(settings.items())}".encode())
    point = jax.ShapeDtypeStruct(manifold.shape, jnp.float32)
    for function in (manifold.constraint, manifold.metric):
        if function is not None:
            digest.update(jax.jit(function).lower(point).as_text().encode())
        digest.update(b"|")
    data = jr.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    digest.update(np.asarray(data).tobytes())
    digest.update(str((manifold.shape, manifold.steps)).encode())
    return digest.hexdigest()[:24]


def store(path: Path, kernel: SpectralKernel) -> None:
    """Keep a kernel; a file appears whole, so two processes may keep the same one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {
        "middle": kernel.functions.middle,
        "half": kernel.functions.half,
        "coefficients": kernel.coefficients,
        "eigenvalues": kernel.eigenvalues,
        "log_volume": kernel.log_volume,
    }
    for i, block in enumerate(kernel.functions.blocks):
        for name in ("products", "last", "before"):
            tensors[f"{i:03d}.{name}"] = getattr(block, name)
    measured = {
        field.name: getattr(kernel.certificate, field.name)
        for field in dataclasses.fields(kernel.certificate)
        if field.name != "manifold"
    }
    header = {"kind": _KIND, "t0": kernel.t0, "certificate": measured}
    files.write(path, {name: np.asarray(value) for name, value in tensors.items()}, header)


def find(path: Path, manifold: Submanifold) -> SpectralKernel | None:
    """The kernel that was kept, or nothing; a damaged file counts as nothing."""
    if not path.is_file():
        return None
    try:
        header, tensors = files.read(path, [_KIND])
        arrays = {name: jnp.asarray(value) for name, value in tensors.items()}
        count = sum(name.endswith(".products") for name in arrays)
        blocks = tuple(
            Block(*(arrays[f"{i:03d}.{name}"] for name in ("products", "last", "before")))
            for i in range(count)
        )
        measured: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in header["certificate"].items()
        }
        return SpectralKernel(
            manifold,
            GeodesicLaw(manifold),
            Polynomials(arrays["middle"], arrays["half"], blocks),
            arrays["coefficients"],
            arrays["eigenvalues"],
            arrays["log_volume"],
            header["t0"],
            Certificate(manifold=manifold, **measured),
        )
    except (files.FileError, KeyError, TypeError):
        return None
