"""What the scripts here share: one core, medians of times, the head of a report, short JSON.

JAX is imported late, since `one_core` has to come before it.
"""

import datetime
import json
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np


def one_core():
    """Keep this process on one core; to be called before JAX is imported."""
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1 "
    os.environ["XLA_FLAGS"] = flags + os.environ.get("XLA_FLAGS", "")
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def today():
    return datetime.date.today().isoformat()


def heading(about, cores=None):
    """Date, versions and machine, and what is measured."""
    cores = cores or f"{os.cpu_count()} {platform.machine()} cores"
    return f"{today()}, jax {version('jax')}, {cores}, {about}"


def seconds(function):
    """How long one call takes."""
    import jax

    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start


def median_time(function, repeats, most=3.0):
    """Milliseconds of the first call and of the later ones, in the median, for at most 3 s."""
    first, times = seconds(function), []
    while len(times) < repeats and sum(times) < most:
        times.append(seconds(function))
    return 1e3 * first, 1e3 * float(np.median(times))


def milliseconds(calls, repeats=40):
    """The median times of some calls; they take turns, so that all see the same machine."""
    for call in calls.values():
        seconds(call)
    rows = [[seconds(call) for call in calls.values()] for _ in range(repeats)]
    return dict(zip(calls, 1e3 * np.median(rows, axis=0), strict=True))


def read(path, otherwise):
    """The report in a file, if there is one."""
    return json.loads(Path(path).read_text()) if Path(path).is_file() else otherwise


def write(path, report):
    """Write a report, six digits of each number; values of a line's length stay on one line."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(_text(_rounded(report)) + "\n")


def _rounded(value):
    if isinstance(value, dict):
        return {str(key): _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _text(value, before="", width=300):
    line = json.dumps(value, ensure_ascii=False)
    if len(line) <= width or not isinstance(value, dict | list):
        return line
    inside = before + " "
    if isinstance(value, list):
        parts = [_text(inner, inside, width) for inner in value]
    else:
        parts = [f"{json.dumps(k)}: {_text(inner, inside, width)}" for k, inner in value.items()]
    ends = "[]" if isinstance(value, list) else "{}"
    return ends[0] + "\n" + ",\n".join(inside + part for part in parts) + "\n" + before + ends[1]
