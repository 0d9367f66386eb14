"""Solved kernels of a user's own manifolds, kept on disk by content.

A manifold given by functions has no name.  What identifies it is what the functions compute: their
program as JAX hands it to the compiler, with the constants in it.  The file holds arrays only; the
functions are those of the caller.
"""

import hashlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .. import __version__
from ..core.checks import key_numbers
from ..core.types import Key
from ..heat.kernel import AbstractHeatKernel
from ..manifolds import Submanifold
from ..store import files
from ..store import stored as checkpoint
from .recipes import REVISION

# Where functions are evaluated that compute outside of JAX.
_PLACES = 256


def fingerprint(manifold: Submanifold, key: Key | None, settings: dict[str, Any]) -> str:
    """A name for a solve: the equations, the metric, the settings, the seed and the version."""
    digest = hashlib.sha256(f"{__version__} {REVISION} {sorted(settings.items())}".encode())
    point = jax.ShapeDtypeStruct(manifold.shape, jnp.float32)
    spread = np.random.default_rng(1).normal(size=(_PLACES, *manifold.shape)) * manifold.width
    near = np.resize(np.asarray(manifold.anchors or 0.0), spread.shape)
    places = jnp.asarray(near + spread, jnp.float32)
    for function in (manifold.constraint, manifold.metric):
        if function is not None:
            digest.update(jax.jit(function).lower(point).as_text().encode())
            if _calls_back(function, point):  # the program does not say what Python computes
                digest.update(np.asarray(jax.vmap(function)(places), np.float32).tobytes())
        digest.update(b"|")
    if manifold.symmetries is not None:
        move = jax.jit(lambda key, x: manifold.symmetries(key)(x))  # pyright: ignore
        digest.update(move.lower(jr.key(0), point).as_text().encode())
    # They tell components of one set apart, and where an open set is looked at.
    digest.update(str(manifold.anchors).encode())
    if key is not None:
        digest.update(key_numbers(key).tobytes())
    digest.update(str((manifold.shape, manifold.steps)).encode())
    return digest.hexdigest()[:24]


def _calls_back(function: Any, point: Any) -> bool:
    """Whether a function leaves JAX to compute in Python."""
    return "callback" in str(jax.make_jaxpr(function)(point))


def store(path: Path, kernel: AbstractHeatKernel) -> None:
    """Keep a kernel; a file appears whole, so two processes may keep the same one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.save(path, kernel)


def find(path: Path, manifold: Submanifold) -> Any:
    """The kernel that was kept, or nothing; a damaged file counts as nothing."""
    if not path.is_file():
        return None
    try:
        return checkpoint.load(path, manifold)
    except files.FileError:
        return None
