"""How soon a fit begins: seconds until its first and second step, and what is compiled for it.

    python benchmarks/start.py [--only sphere:2 torus:2] [--json start.json] [--calls]

Each manifold is fitted twice in a process that finds nothing compiled, the second time to other
data of the same shape, and once in a process after it.  Seconds are those of a single core, so that
other work on the machine does not count.  "Ended" is a fit of three steps with its validation and
the weights of its stops; of tracing, lowering and compiling it is the share of the clock, and
"compiled" is how many functions the compiler was handed or the cache had.  With `--calls` they are
listed by the line of calor that asked for them.
"""

import argparse
import collections
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from _measure import heading, one_core, read, write

POINTS, STEPS = 2000, 3
EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "compiling",
}
COLUMNS = ("first step", "second step", "ended", "compiled", *EVENTS.values())


class Watch:
    """When steps end, and what is traced, lowered and compiled since the beginning."""

    def __init__(self):
        self.begun, self.clock, self.steps = time.process_time(), time.perf_counter(), []
        self.made = 0
        self.spans = {name: [] for name in EVENTS.values()}
        self.calls = collections.Counter()

    def event(self, event, duration, **_):
        if event in EVENTS:
            end = time.perf_counter()
            self.spans[EVENTS[event]].append((end - duration, end))
        if EVENTS.get(event) == "compiling":
            ours = [f for f in traceback.extract_stack() if "/calor/" in f.filename]
            place = f"{ours[-1].filename.split('/calor/')[-1]}:{ours[-1].lineno}" if ours else "?"
            self.calls[place] += 1
            self.calls[f"{place} (s)"] += duration

    def row(self):
        """The numbers of a fit that has ended."""
        ended, clock = self.seconds(), time.perf_counter() - self.clock
        parts = [length(spans) * ended / clock for spans in self.spans.values()]
        found = [*self.steps[:2], ended, len(self.spans["compiling"]), *parts]
        return dict(zip(COLUMNS, found, strict=True))

    def seconds(self):
        """Since the beginning, of this process alone."""
        return time.process_time() - self.begun


def length(spans):
    """The length of a union of intervals: what is traced inside of another counts once."""
    total = reached = 0.0
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def fits(name, count):
    """So many fits in this process, each to data of its own."""
    import jax
    import jax.random as jr
    import numpy as np

    import calor
    from calor.manifolds.names import manifold_named
    from calor.training.run import Going

    watch, reach = Watch(), Going.reach

    def watched(going, state, terms=None):
        reach(going, state, terms)
        if going.made(state) > watch.made:
            watch.made = going.made(state)
            watch.steps.append(watch.seconds())

    Going.reach = watched
    manifold = manifold_named(name)
    draw = jax.vmap(manifold.random_point)
    data = [np.asarray(draw(jr.split(jr.key(seed), POINTS))) for seed in range(count)]
    jax.monitoring.register_event_duration_secs_listener(lambda *a, **k: watch.event(*a, **k))
    rows, calls = [], []
    for seed, points in enumerate(data):
        watch = Watch()
        calor.fit(
            calor.heat_kernel(manifold),
            points,
            parts="diffusion",
            key=jr.key(seed),
            training=calor.Training(steps=STEPS, validate_every=STEPS),
            progress=False,
        )
        rows.append(watch.row())
        calls.append(watch.calls)
    return rows, calls


def in_process(name, count, folder, calls):
    """The rows of so many fits in another process, with the compiled functions in a folder."""
    command = [sys.executable, __file__, "--process", name, str(count), folder / "rows.json"]
    unset = [v for v in os.environ if v.startswith(("JAX_COMPILATION", "JAX_PERSISTENT", "CALOR_"))]
    environment = {v: value for v, value in os.environ.items() if v not in unset}
    environment["CALOR_CACHE"] = str(folder / "cache")
    subprocess.run([*map(str, command), *["--calls"] * calls], env=environment, check=True)
    return read(folder / "rows.json", None)


def show(name, title, row):
    figures = [f"{row[c]:8d}" if c == "compiled" else f"{row[c]:10.1f}" for c in COLUMNS]
    print(f"{name:10} {title:28}", *figures, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=["sphere:2", "so3", "torus:2", "spd:3"])
    parser.add_argument("--json")
    parser.add_argument("--calls", action="store_true", help="list what is compiled")
    parser.add_argument("--process", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    one_core()
    if options.process:
        name, count, out = options.process
        rows, calls = fits(name, int(count))
        write(out, rows)
        for counter in calls if options.calls else []:
            print(f"--- {name}")
            for place, number in counter.most_common():
                if not place.endswith("(s)"):
                    seconds = counter[f"{place} (s)"]
                    print(f"{number:5d} {seconds:6.2f} s  {place}")
        return
    print(heading(f"{POINTS} points, {STEPS} steps, seconds on one core"))
    print(" " * 39, " ".join(f"{c:>10}" for c in COLUMNS))
    report = {}
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            first, again = in_process(name, 2, Path(folder), options.calls)
            (later,) = in_process(name, 1, Path(folder), options.calls)
        report[name] = {"first": first, "again in the process": again, "later process": later}
        for title, row in report[name].items():
            show(name, title, row)
    if options.json:
        write(options.json, report)


if __name__ == "__main__":
    main()
