"""Who imports whom: data flow one way, so a room sees only the rooms that its own page names.

A room is a folder; its `__init__` says in `SEES` what it may import.  Imports inside functions
count too.
"""

import ast
import re
from pathlib import Path

import pytest

import calor

SOURCE = Path(calor.__file__).parent
ROOMS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
# Late imports that no rule of rooms can do without.
ALLOWED = {
    ("heat/certificate.py", "plots"),  # `Certificate.plot`
}


def sees(room):
    """The rooms that a room's own page names."""
    for node in ast.parse((SOURCE / room / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SEES":
            return ast.literal_eval(node.value)
    raise AssertionError(f"{room}/__init__.py does not say what it SEES")


def imported(path):
    """The first names below `calor` that a file imports, anywhere in it."""
    folder = path.relative_to(SOURCE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            above = list(folder)[: len(folder) - node.level + 1]
            names = [alias.name for alias in node.names]
            for name in [node.module] if node.module else names:
                yield [*above, *name.split(".")][0]
                own = (above or name.split("."))[0] == folder[0]
                parts = {*name.split("."), *names} - {"__version__", "_public"}
                assert own or not any(part.startswith("_") for part in parts), (
                    f"{path}: {name} is private to another room"
                )
        elif isinstance(node, ast.Import | ast.ImportFrom):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in modules or [alias.name for alias in node.names]:
                assert str(name).split(".")[0] != "calor", f"{path}: imports of calor are relative"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_sees_only_what_its_page_names(room):
    seen = {room, "__version__", *sees(room)}
    seen |= {"_public"} if room == "cli" else set()  # the front door, which all users come by
    used = set()
    for path in (SOURCE / room).rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        for other in imported(path):
            assert other in seen or (name, other) in ALLOWED, f"{name} imports {other}"
            used.add(other)
    assert used >= set(sees(room)), f"{room} does not use {set(sees(room)) - used}"


@pytest.mark.parametrize("room", ROOMS)
def test_the_file_to_open_first_is_there_and_the_docs_agree(room):
    first = re.search(r"Open `(\w+)` first", (SOURCE / room / "__init__.py").read_text())
    assert first is not None
    assert (SOURCE / room / f"{first[1]}.py").is_file()
    row = rf"\| `{room}` \|.*\| `{first[1]}` \|"
    assert re.search(row, (Path(__file__).parents[1] / "docs" / "rooms.md").read_text())


def test_rooms_are_in_one_order():
    left = {room: set(sees(room)) for room in ROOMS}
    while left:
        ready = [room for room, others in left.items() if not others & left.keys()]
        assert ready, f"rooms that see each other: {sorted(left)}"
        for room in ready:
            del left[room]


def test_nothing_else_lies_flat():
    flat = {path.name for path in SOURCE.glob("*.py")}
    assert flat == {"__init__.py", "_public.py", "sklearn.py"}
    assert len(ROOMS) <= 12
