"""The command line, driven from outside as a user would."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import calor
import oracles
from calor import cli
from calor.experiments import oracles as _oracles
from processes import command, python, seeing

PNG = b"\x89PNG\r\n\x1a\n"


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


def test_help_does_not_wait_for_jax():
    script = (
        "import sys, calor.cli\n"
        "assert calor.cli.main(sys.argv[1:]) == 0\n"
        "assert not {'jax', 'matplotlib'} & set(sys.modules)\n"
        "assert 'numpy' not in sys.modules or 'fit' in sys.argv or 'completion' in sys.argv\n"
    )
    for arguments in (["--help"], ["fit", "--help"], ["completion", "bash"]):
        done = python("-c", script, *arguments)
        assert done.returncode == 0, done.stderr


def test_only_the_command_that_is_called_is_opened():
    script = (
        "import sys, calor.cli\n"
        "assert calor.cli.main(['check', '--help']) == 0\n"
        "files = {name[10:] for name in sys.modules if name.startswith('calor.cli.')}\n"
        "assert files & set(calor.cli.COMMANDS) == {'check'}, files\n"
    )
    done = python("-c", script)
    assert done.returncode == 0, done.stderr


COMMANDS = ("demo", "fit", "sample", "score", "solve", "check", "bench", "reproduce", "completion")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_it_would_understand(name, capsys):
    assert cli.main([name, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"calor {name}" in shown.split("Example: ")[1]


def test_all_commands_are_tested():
    shown = command("--help").stdout
    assert all(f"    {name} " in shown for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["calor", "sc"], ["score"]),
        (["calor", "fit", "--ke"], ["--kernel"]),
        (["calor", "fit", "--kernel", "p"], ["pinn"]),
        (["calor", "reproduce", "e"], ["earth", "eeg"]),
    ],
)
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_completion_in_bash(words, expected, capsys):
    assert cli.main(["completion", "bash"]) == 0
    typed = " ".join(words)
    script = f"{capsys.readouterr().out}\nCOMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}\n"
    shown = subprocess.run(
        ["bash", "-c", script + '_calor; printf "%s\\n" "${COMPREPLY[@]}"'],
        capture_output=True,
        text=True,
    )
    assert (shown.stdout.split(), shown.stderr) == (expected, "")


def test_completion_in_other_shells_names_every_command(capsys):
    for shell in ("zsh", "fish"):
        assert cli.main(["completion", shell]) == 0
        shown = capsys.readouterr().out
        assert all(name in shown for name in COMMANDS)


def test_demo_as_a_new_user_runs_it(tmp_path):
    picture = tmp_path / "first.png"
    picture.write_text("an old file, to be replaced")
    done = command("demo", "--quick", "--out", "first.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no progress when nobody watches
    assert picture.read_bytes().startswith(PNG)
    assert sorted(os.listdir(tmp_path)) == ["first.calor", "first.png"]
    assert "| calor, all parts together " in done.stdout
    assert "| kernel density, adaptive " in done.stdout
    # What it says to try next works as printed.
    proposed = [
        line.split("(")[0].split() for line in done.stdout.splitlines() if "  calor" in line
    ]
    assert [words[1] for words in proposed] == ["sample", "score", "fit"]
    sample, score, _ = (words[1:] for words in proposed)
    found = drive([[*sample, "--json"], [*score, "--json"]], tmp_path)
    assert json.loads(found[0])["points"] == 1000
    assert json.loads(found[1])["log_prob"] > -2.53  # better than the uniform law
    assert (tmp_path / "new.png").read_bytes().startswith(PNG)


def drive(requests, folder):
    """What requests print, one after another in one process."""
    script = "import json, sys\nfrom calor import cli\nfor r in json.loads(sys.argv[1]):\n"
    script += "    assert cli.main(r) == 0\n    print(chr(0))\n"
    done = python("-c", script, json.dumps(requests), cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\0")[:-1]


def test_bench_measures_every_exact_kernel(capsys):
    assert cli.main(["bench", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
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
def test_what_bench_measures_against_is_true(reference, truth, farthest):
    times, fractions = [1e-3, 0.03, 0.45, 0.55, 1.5, 20.0], [0.0, 1e-3, 0.4, 0.6, 0.999, 1.0]
    t, r = (grid.ravel() for grid in np.meshgrid(times, farthest * np.array(fractions)))
    values, slopes = _oracles.with_slope(reference, t, r)
    pairs = [truth(*pair) for pair in zip(t.tolist(), r.tolist(), strict=True)]
    true_values, true_slopes = np.array(pairs, dtype=float).T
    assert np.max(np.abs(values - true_values) / (1 + np.abs(true_values))) < 1e-12
    assert np.max(np.abs(slopes - true_slopes) / (1 + np.abs(true_slopes))) < 1e-11


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


@pytest.mark.parametrize("package", ["matplotlib", "airportsdata"])
def test_without_a_package_the_message_says_what_to_install(package, tmp_path):
    # Python imports sitecustomize, if there is one on its path, before anything else.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] == '{package}':\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Blocker())\n"
    )
    done = command("demo", "--out", "heat.png", cwd=tmp_path, env=seeing(tmp_path))
    assert_one_line_error(done, package, "pip install 'calor[demo]'")
    assert not (tmp_path / "heat.png").exists()


def test_interrupting_leaves_nothing_behind(tmp_path):
    # JAX says what it compiles, which tells that the work has begun.
    environment = {**os.environ, "JAX_LOG_COMPILES": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "calor.cli", "demo", "--out", "heat.png"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
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
    done = python("-m", "trial", env=seeing(tmp_path))
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
