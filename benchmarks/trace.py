"""How a fit goes through the code: which modules it enters, and how often it changes module.

    python benchmarks/trace.py [--out trace.json]

A walk is the list of modules in which functions are called, one after the other, as
`sys.setprofile` sees them; calls from a module into itself do not count.  A module that is left and
entered later is entered again.  The budget is tiny and everything is compiled in the walk: what is
counted is how the work is divided among modules, not how often it is done.  The median length of a
file is printed too, since one file would be entered once.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import jax
import jax.random as jr
import numpy as np

import calor

SOURCE = Path(calor.__file__).parent


def walk(action):
    """The modules of calor that an action goes through."""
    found, names = [], {}

    def follow(frame, event, argument):
        if event != "call" or frame.f_code.co_name == "<module>":
            return
        file = frame.f_code.co_filename
        if file not in names:
            path = Path(file)
            inside = SOURCE in path.parents
            names[file] = path.relative_to(SOURCE).with_suffix("").as_posix() if inside else None
        name = names[file]
        if name is not None and (not found or found[-1] != name):
            found.append(name)

    sys.setprofile(follow)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


def summary(found):
    """Numbers of modules, of changes between them, and of modules entered again."""
    again = {name for name in found if found.count(name) > 1}
    return {
        "modules": len(set(found)),
        "changes": len(found) - 1,
        "entered again": len(again),
    }


def fit_in_python(points):
    """A fit with all of its choices made."""
    calor.fit(
        calor.heat_kernel(calor.Sphere(2)),
        points,
        parts="diffusion",
        key=jr.key(0),
        network=calor.Network(width=8, depth=1, frequencies=4),
        training=calor.Training(steps=2, batch=16, validate_every=2),
        progress=False,
    )


def fit_on_the_command_line(points, folder):
    """The same from a file to a file."""
    from calor import cli

    table, out = folder / "points.npy", folder / "model.calor"
    np.save(table, points)
    small = ["--steps", "2", "--batch", "16", "--width", "8"]
    code = cli.main(["fit", "--manifold", "sphere:2", str(table), "--out", str(out), *small])
    assert code == 0


def median_lines():
    """The median length of a file, those without functions left out."""
    lengths = [len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")]
    return statistics.median(length for length in lengths if length > 20)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, help="also write the walks to this file")
    options = parser.parse_args()
    draw = jax.vmap(calor.Sphere(2).random_point)
    points = np.asarray(draw(jr.split(jr.key(1), 100)))
    walks = {}
    with tempfile.TemporaryDirectory() as folder:
        walks["calor.fit"] = walk(lambda: fit_in_python(points))
        jax.clear_caches()
        walks["calor fit"] = walk(lambda: fit_on_the_command_line(points, Path(folder)))
    for name, found in walks.items():
        print(name, *(f"{value} {what}," for what, value in summary(found).items()))
    print(f"median file {median_lines():.0f} lines")
    if options.out:
        options.out.write_text(json.dumps(walks, indent=1))


if __name__ == "__main__":
    main()
