"""The command line, driven from outside as a user would."""

import json
import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import oracles
import pytest

import calor
from calor import _oracles, cli

PNG = b"\x89PNG\r\n\x1a\n"


def command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "calor.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **options,
    )


def assert_one_line_error(done, *words):
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("calor: error:")
    for word in words:
        assert word in done.stderr


def test_version():
    done = command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"calor {calor.__version__}\n", "")


def test_help_fits_on_one_screen():
    done = command("--help")
    assert done.returncode == 0
    assert "demo" in done.stdout
    assert len(done.stdout.splitlines()) <= 24


def test_help_costs_little_more_than_importing_the_package():
    def cpu_seconds(*arguments):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    package = min(cpu_seconds("-c", "import calor") for _ in range(2))
    shown = min(cpu_seconds("-m", "calor.cli", "--help") for _ in range(2))
    assert shown < package + 0.5


def test_demo_writes_a_picture_and_its_measurements(tmp_path):
    picture = tmp_path / "heat.png"
    picture.write_text("an old file, to be replaced")
    done = command("demo", "--out", str(picture), "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no progress when nobody watches
    content = picture.read_bytes()
    assert content.startswith(PNG)
    assert 50_000 < len(content) < 400_000
    assert os.listdir(tmp_path) == ["heat.png"]
    report = json.loads(done.stdout)
    assert report["picture"] == str(picture)
    names = [row["manifold"] for row in report["accuracy"]]
    limits = ["H^2 far", "H^3 far", "SPD(2) ill"]  # the score is as good as float32 coordinates
    assert names == ["S^2", "S^3", "SO(3)", "T^2", "H^2", "H^3", "SPD(2)", *limits]
    for row in report["accuracy"]:
        assert row["log_prob"] < 2e-5
        assert row["manifold"] in limits or row["score"] < 2e-4


@pytest.mark.parametrize(
    ("reference", "truth", "farthest"),
    [
        (_oracles.circle, oracles.circle, np.pi),
        (_oracles.sphere2, lambda t, r: oracles.sphere(2, t, r), np.pi),
        (_oracles.sphere3, lambda t, r: oracles.sphere(3, t, r), np.pi),
        (_oracles.so3, oracles.so3, np.pi / 2),
        (_oracles.hyperbolic2, lambda t, r: oracles.hyperbolic(2, t, r), 15.0),
        (_oracles.hyperbolic3, lambda t, r: oracles.hyperbolic(3, t, r), 15.0),
    ],
    ids=["circle", "S2", "S3", "SO3", "H2", "H3"],
)
def test_what_the_demo_measures_against_is_true(reference, truth, farthest):
    times, fractions = [1e-3, 0.03, 0.45, 0.55, 1.5, 20.0], [0.0, 1e-3, 0.4, 0.6, 0.999, 1.0]
    t, r = (grid.ravel() for grid in np.meshgrid(times, farthest * np.array(fractions)))
    values, slopes = _oracles.with_slope(reference, t, r)
    pairs = [truth(*pair) for pair in zip(t.tolist(), r.tolist(), strict=True)]
    true_values, true_slopes = np.array(pairs, dtype=float).T
    assert np.max(np.abs(values - true_values) / (1 + np.abs(true_values))) < 1e-12
    assert np.max(np.abs(slopes - true_slopes) / (1 + np.abs(true_slopes))) < 1e-11


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "COMMAND"),
        (("fly",), "fly"),
        (("demo", "--unknown"), "--unknown"),
        (("demo", "--out"), "--out"),
        (("demo", "--out", "picture.pdf"), ".png"),
        (("demo", "--out", "nowhere/picture.png"), "nowhere"),
    ],
)
def test_bad_usage_is_one_line(arguments, word, tmp_path):
    assert_one_line_error(command(*arguments, cwd=tmp_path), word)
    assert os.listdir(tmp_path) == []


def test_a_folder_in_the_place_of_the_picture_is_an_error(tmp_path):
    (tmp_path / "folder.png").mkdir()
    assert_one_line_error(command("demo", "--out", "folder.png", cwd=tmp_path), "folder.png")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_protected_folder_or_file_is_an_error(tmp_path):
    protected = tmp_path / "protected"
    protected.mkdir()
    (protected / "old.png").write_bytes(b"")
    (protected / "old.png").chmod(0o400)
    assert_one_line_error(command("demo", "--out", str(protected / "old.png")), "old.png")
    protected.chmod(0o500)
    assert_one_line_error(command("demo", "--out", str(protected / "new.png")), "protected")


def test_debug_shows_the_stack_trace():
    done = command("--debug", "demo", "--out", "nowhere/picture.png")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("calor: error:")


def test_without_matplotlib_the_message_says_what_to_install(tmp_path):
    # Python imports sitecustomize, if there is one on its path, before anything else.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'matplotlib':\n"
        "            raise ModuleNotFoundError('No module named matplotlib', name=name)\n"
        "sys.meta_path.insert(0, Blocker())\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = command(
        "demo", "--out", "heat.png", cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}
    )
    assert_one_line_error(done, "pip install 'calor[demo]'")
    assert not (tmp_path / "heat.png").exists()


def test_interrupting_leaves_nothing_behind(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "calor.cli", "demo", "--out", "heat.png"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # The temporary file appears when the work begins.
    deadline = time.monotonic() + 120
    while not os.listdir(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    # Python may say before it that a callback of a library was interrupted.
    assert errors.endswith("calor: interrupted\n")
    assert os.listdir(tmp_path) == []


def test_interrupting_an_import_leaves_the_exit_code_alone(tmp_path):
    (tmp_path / "trial.py").write_text(
        "import sys\n"
        "from calor.cli._shared import Interrupted\n"
        "try:\n"
        "    exec('raise Interrupted')\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(130)\n"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "trial"], env={**os.environ, "PYTHONPATH": path}, timeout=120
    )
    assert done.returncode == 130


SMALL = ("--set", "points=64", "steps=3", "rounds=1")


def test_solve_and_check(tmp_path, capsys):
    out = tmp_path / "r2.calor"
    assert cli.main(["solve", "euclidean:2", "--out", str(out), *SMALL]) == 0
    printed = capsys.readouterr()
    assert "Certificate of the heat kernel of Euclidean(2)" in printed.out
    assert printed.err == ""  # no progress bar where nobody looks
    assert [path.name for path in tmp_path.iterdir()] == ["r2.calor"]
    assert cli.main(["check", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["manifold"] == "Euclidean(2)"
    assert len(report["bound"]) == len(report["times"])
    row = next(row for row in report["errors"] if row["t"] == 0.1)
    assert row["log_prob"] <= report["bound"][-1] + 1e-6  # rounding in float32


def test_an_interrupted_solve_resumes(tmp_path, capsys, interrupt_training):
    out = tmp_path / "r2.calor"
    arguments = ["solve", "euclidean:2", "--out", str(out), "--seed", "1", *SMALL]

    calls = interrupt_training(2)
    assert cli.main(arguments) == 130
    assert "--resume goes on from it" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["r2.calor.partial"]
    assert cli.main(arguments) == 2
    assert "unfinished run" in capsys.readouterr().err
    assert cli.main([*arguments, "--resume", "--json"]) == 0
    assert len(calls) == 4  # one step was done before, the second was lost
    assert [path.name for path in tmp_path.iterdir()] == ["r2.calor"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("solve", "ball:2", "--out", "x.calor"), "unknown manifold"),
        (("solve", "sphere", "--out", "x.calor"), "sphere:2"),
        (("solve", "sphere:2", "--out", "nowhere/x.calor"), "nowhere"),
        (("solve", "sphere:2", "--out", "x.calor", "--set", "steps"), "NAME=VALUE"),
        (("solve", "sphere:2", "--out", "x.calor", "--set", "speed=3"), "speed"),
        (("solve", "sphere:2", "--out", "x.calor", "--set", "steps=0"), "steps"),
        (("solve", "sphere:2", "--out", "x.calor", "--resume"), "no unfinished run"),
        (("check", "absent.calor"), "no file absent.calor"),
        (("check", "damaged.calor"), "damaged"),
    ],
)
def test_bad_requests_to_solve_and_check_are_one_line(
    arguments, word, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "damaged.calor").write_bytes(b"calor")
    assert cli.main(arguments) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert word in printed
    assert [path.name for path in tmp_path.iterdir()] == ["damaged.calor"]
