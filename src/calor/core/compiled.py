"""Compiled functions are kept on disk: what one process compiled, a later one finds.

It is JAX's own cache, in a folder of calor's, set when the first manifold is imported.  A user's
choice comes first: a folder that JAX was given, or a cache that was switched off.
"""

import functools
import hashlib
import os
import platform
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax

from .folders import folder

P = ParamSpec("P")
R = TypeVar("R")

# Functions that compile in less are not kept: they are compiled as fast as they are read.
_SECONDS = 0.01
# Bytes that are kept; those beyond that were written first are removed.
_MOST = 512 * 2**20
# What folders are called, one for each kind of machine; nothing else is ever removed.
_OURS = "machine-"
_OFF = ("", "0", "off", "no", "false")


@functools.cache
def keep() -> None:
    """Keep compiled functions from now on, unless a user has chosen otherwise."""
    given = os.environ.get("CALOR_COMPILED")
    if given is not None and given.lower() in _OFF:
        return
    chosen = jax.config.jax_compilation_cache_dir or "JAX_COMPILATION_CACHE_DIR" in os.environ  # pyright: ignore[reportAttributeAccessIssue]
    if chosen or not jax.config.jax_enable_compilation_cache:  # pyright: ignore[reportAttributeAccessIssue]
        return
    try:
        whole = folder(None) / "compiled" if given is None else Path(given).expanduser()
        place = whole / (_OURS + _machine())
        # What is in it is run, so that nobody else may write to it.
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(place, os.W_OK | os.X_OK):
            return
        make_room(whole, _MOST)
    except (OSError, RuntimeError):  # a home that is read-only, or none: everything is compiled
        return
    # An entry that another process writes at this moment, or a full disk: JAX compiles and warns.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
    jax.config.update("jax_compilation_cache_dir", str(place))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _SECONDS)


def quickly(function: Callable[P, R]) -> Callable[P, R]:
    """As `eqx.filter_jit`, for what runs once: code that is ready sooner and runs slower."""
    options: dict[str, Any] = {"compiler_options": {"xla_backend_optimization_level": 0}}
    return eqx.filter_jit(function, **options)


def make_room(place: Path, most: int) -> None:
    """Remove what was written first until at most so many bytes are left.

    JAX's own bound needs a package that calor does not, and a lock for every entry that is read.
    """
    entries = []
    for path in place.glob(f"{_OURS}*/*-cache"):
        try:
            found = path.stat()
        except OSError:  # another process has removed it
            continue
        entries.append((found.st_mtime, found.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= most:
            break
        path.unlink(missing_ok=True)
        total -= size


def _machine() -> str:
    """What tells machines apart that cannot run each other's code, which may share a home."""
    about = [platform.machine(), platform.processor(), jax.__version__]
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        about += sorted(
            {line for line in lines if line.startswith(("flags", "Features", "model name"))}
        )
    except OSError:
        pass
    return hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]
