"""Compiled functions that are kept on disk: where, when not, how many, and what is broken."""

import os
from pathlib import Path

import jax
import pytest

from calor.core import compiled
from processes import python

NAMES = ("jax_compilation_cache_dir", "jax_enable_compilation_cache")
SECONDS = "jax_persistent_cache_min_compile_time_secs"


@pytest.fixture
def place(monkeypatch, tmp_path):
    """A call says which folder a process with such an environment keeps compiled functions in."""
    before = {name: getattr(jax.config, name) for name in (*NAMES, SECONDS)}
    names = {"CALOR_COMPILED", "CALOR_CACHE", "JAX_COMPILATION_CACHE_DIR"}

    def asked(jax_folder=None, enabled=True, **environment):
        for name in names:
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, str(value))
        jax.config.update(NAMES[0], jax_folder)
        jax.config.update(NAMES[1], enabled)
        compiled.keep.__wrapped__()
        return jax.config.jax_compilation_cache_dir

    yield asked
    for name, value in before.items():
        jax.config.update(name, value)


def test_the_folder_is_calors_or_the_one_that_is_named(place, tmp_path):
    ours = Path(place(CALOR_CACHE=tmp_path))
    assert ours.parent == tmp_path / "compiled"
    assert ours.stat().st_mode & 0o077 == 0, "what is in it is run"
    assert Path(place(CALOR_COMPILED=tmp_path / "other")) == tmp_path / "other" / ours.name


@pytest.mark.parametrize("word", ["off", "0", ""])
def test_it_is_switched_off(word, place, tmp_path):
    assert place(CALOR_CACHE=tmp_path, CALOR_COMPILED=word) is None
    assert list(tmp_path.iterdir()) == []


def test_a_choice_made_for_jax_stays(place, tmp_path):
    assert place("mine", CALOR_CACHE=tmp_path) == "mine"
    assert place(enabled=False, CALOR_CACHE=tmp_path) is None
    assert place(CALOR_CACHE=tmp_path, JAX_COMPILATION_CACHE_DIR="") is None
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_written_everything_is_compiled(place, tmp_path):
    (tmp_path / "file").write_text("")
    assert place(CALOR_CACHE=tmp_path / "file") is None


def test_what_was_written_first_makes_room_and_nothing_else_is_touched(tmp_path):
    ours, other = tmp_path / "machine-1", tmp_path / "mine"
    for folder in (ours, other):
        folder.mkdir()
        for age, name in enumerate(("c", "a", "b")):
            (folder / f"{name}-cache").write_bytes(bytes(100))
            os.utime(folder / f"{name}-cache", (1e9 + age, 1e9 + age))
    compiled.make_room(tmp_path, 250)
    assert sorted(path.name for path in ours.iterdir()) == ["a-cache", "b-cache"]
    assert len(list(other.iterdir())) == 3


RUN = """
import jax, calor
calor.Sphere
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))
value = jax.jit(lambda x: x + 1)(2)
print(value, sum(event.endswith("/cache_hits") for event in hits) > 0)
"""


def test_a_second_process_finds_what_the_first_compiled_unless_it_is_broken(tmp_path):
    unset = [name for name in os.environ if name.startswith(("JAX_COMP", "JAX_PERS", "CALOR_"))]
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["CALOR_CACHE"] = str(tmp_path)
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

    def run():
        done = python("-W", "error", "-c", RUN, env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    assert run() == ["3", "False"]
    assert run() == ["3", "True"]
    for path in tmp_path.rglob("*-cache"):
        path.write_bytes(path.read_bytes()[:40])
    assert run() == ["3", "False"]
