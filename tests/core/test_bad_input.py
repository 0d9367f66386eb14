"""Bad input at the command line: exit code 2 and one line that says what was wrong.

One process runs all requests, as a shell script would one after another, because importing JAX is
what takes long.  Requests that are refused without JAX come first, and it is checked that they are.
"""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import calor
from processes import python

DRIVER = """
import contextlib, io, json, sys
from calor import cli

results = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(arguments)
    results.append([code, out.getvalue(), err.getvalue(), "jax" in sys.modules])
json.dump(results, sys.stdout)
"""

# What is typed, and the message after "calor: error: ".
WITHOUT_JAX = {
    "": "the following arguments are required: COMMAND; see calor --help",
    "fly": "argument COMMAND: invalid choice: 'fly' (choose from",
    "demo --slow": "unrecognized arguments: --slow; see calor --help",
    "demo --out": "argument --out: expected one argument; see calor demo --help",
    "demo --out map.pdf": "--out must end in .png, got map.pdf",
    "demo --out nowhere/map.png": "nowhere does not exist; make it first",
    "demo --out folder.png": "folder.png exists and is not a file; choose another name for --out",
    "fit good.csv": "the following arguments are required: --manifold, --out; see calor fit --help",
    "fit none.csv --manifold sphere:2 --out x.calor": "there is no file none.csv",
    "fit folder.png --manifold sphere:2 --out x.calor": "folder.png is a folder, not a file",
    "fit good.csv --manifold sphere:2 --out no/x.calor": "no does not exist; make it first",
    "fit good.csv --manifold sphere:2 --out x.calor --steps 0": (
        "argument --steps: must be a whole number of at least 1, got '0'; see calor fit --help"
    ),
    "fit good.csv --manifold sphere:2 --out x.calor --batch many": (
        "argument --batch: must be a whole number of at least 1, got 'many'"
    ),
    "fit good.csv --manifold sphere:2 --out x.calor --seed=-1": (
        "argument --seed: must be a whole number of at least 0, got '-1'"
    ),
    "fit good.csv --manifold own.py:mine --out x.calor": "there is no file own.py",
    "fit good.csv --manifold sphere:2 --out x.calor --resume": "there is no unfinished run",
    "fit good.csv --manifold sphere:2 --out begun.calor": (
        "begun.calor.partial holds an unfinished run; add --resume to go on from it, or remove it"
    ),
    "fit good.csv --manifold sphere:2 --out x.calor --condition none.csv": "no file none.csv",
    "sample none.calor --out new.csv": "there is no file none.calor",
    "sample kernel.calor --out new.csv --plot new.jpg": "--plot must end in .png, got new.jpg",
    "sample kernel.calor --out new.csv -n 1e3": "argument -n: must be a whole number of at least 1",
    "score none.calor good.csv": "there is no file none.calor",
    "score kernel.calor none.csv": "there is no file none.csv",
    "solve sphere:2": "the following arguments are required: --out; see calor solve --help",
    "solve sphere:2 --out x.calor --recipe old": "argument --recipe: invalid choice: 'old'",
    "solve sphere:2 --out x.calor --set steps": "--set wants NAME=VALUE with a number, got steps",
    "solve sphere:2 --out x.calor --set steps=fast": "--set wants NAME=VALUE with a number",
    "check none.calor": "there is no file none.calor",
    "reproduce moon": "argument experiment: invalid choice: 'moon'",
    "reproduce so3 --seeds 0": "argument --seeds: must be a whole number of at least 1, got '0'",
    "reproduce so3 --out good.csv": "--out must be a folder, good.csv is a file",
    "completion tcsh": "argument shell: invalid choice: 'tcsh'",
}
WITH_JAX = {
    "fit good.csv --manifold ball:2 --out x.calor": "unknown manifold 'ball:2'; known are so3",
    "fit good.csv --manifold sphere --out x.calor": "sphere needs its size, a whole number from 1",
    "fit good.csv --manifold torus:2 --out x.calor --kernel pinn": "no solved kernel of Torus(2)",
    "fit good.csv --manifold sphere:2 --out x.calor --kernel best": "has no method 'best'; it has",
    "fit notes.txt --manifold sphere:2 --out x.calor": "must end in .csv, .npy or .npz, got notes",
    "fit word.csv --manifold sphere:2 --out x.calor": "word.csv, line 3: 'high' is not a number",
    "fit polar.csv --manifold sphere:2 --out x.calor": "line 2: a latitude of 95 is outside -90",
    "fit off.csv --manifold sphere:2 --out x.calor": "off.csv, line 7: not a point of Sphere(2)",
    "fit short.csv --manifold sphere:2 --out x.calor": "has 2 points; at least 10 are needed",
    "fit empty.csv --manifold sphere:2 --out x.calor": "empty.csv has no rows of numbers",
    "fit good.csv --manifold sphere:2 --out x.calor --euler xyz": "Euler angles are for so3, not",
    "fit good.csv --manifold so3 --out x.calor": "2 columns, but a point of SO3() is w, x, y, z",
    "fit good.csv --manifold sphere:2 --out x.calor --condition short.csv": (
        "short.csv has 2 rows, good.csv has 12 points"
    ),
    "fit text.npy --manifold sphere:2 --out x.calor": "not real numbers",
    "fit two.npz --manifold sphere:2 --out x.calor": "has the arrays a, b; name one with --array",
    "fit two.npz --manifold sphere:2 --out x.calor --array c": "there is no 'c'",
    "sample kernel.calor --out new.csv": "kernel.calor holds a kernel, not a model",
    "sample good.csv --out new.csv": "good.csv is damaged, truncated, or no file of calor",
    "score cut.calor good.csv": "cut.calor is damaged, truncated, or no file of calor",
    "solve sphere:0 --out x.calor": "sphere needs its size, a whole number from 1 to 1000",
    "solve sphere:2 --out x.calor --set speed=3": "--set:",
    "check foreign.calor": "foreign.calor was not written by calor: it has no header of ours",
    "reproduce earth --only comets": "known data sets are floods, quakes, fires, volcano",
    "reproduce earth --only floods --out results": "the environment variable CALOR_DATA is not set",
}
REQUESTS = {**WITHOUT_JAX, **WITH_JAX}


def make_files(folder):
    """Good and bad files that the requests name."""
    rows = "".join(f"{10 * i - 60},{20 * i}\n" for i in range(12))
    tables = {
        "good.csv": f"lat,lon\n{rows}",
        "word.csv": "lat,lon\n10,20\nhigh,30\n",
        "polar.csv": "10,20\n95,30\n",
        "short.csv": "10,20\n30,40\n",
        "off.csv": "x,y,z\n" + 5 * "0,0,1\n" + 7 * "0,0,2\n",
        "empty.csv": "lat,lon\n",
        "notes.txt": "10,20\n",
        "begun.calor.partial": "",
    }
    for name, text in tables.items():
        (folder / name).write_text(text)
    (folder / "folder.png").mkdir()
    np.save(folder / "text.npy", np.array(["a", "b"]))
    np.savez(folder / "two.npz", a=np.eye(3), b=np.eye(3))
    shipped = Path(calor.__file__).parent / "solvers" / "shipped" / "sphere-2.calor"
    shutil.copy(shipped, folder / "kernel.calor")
    (folder / "cut.calor").write_bytes(shipped.read_bytes()[:500])
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(3)}, folder / "foreign.calor")


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("requests")
    make_files(folder)
    before = sorted(os.listdir(folder))
    environment = {name: value for name, value in os.environ.items() if name != "CALOR_DATA"}
    requests = json.dumps([typed.split() for typed in REQUESTS])
    done = python("-c", DRIVER, input=requests, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    # `reproduce` makes its folder before it looks for the data.
    assert sorted({*os.listdir(folder)} - {"results"}) == before
    return dict(zip(REQUESTS, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("typed", REQUESTS)
def test_bad_request_is_refused_in_one_line(typed, answers):
    code, out, err, has_jax = answers[typed]
    assert (code, out) == (2, "")
    assert err.startswith("calor: error: ")
    assert err.count("\n") == 1
    assert REQUESTS[typed] in err
    if typed in WITHOUT_JAX:
        assert not has_jax
