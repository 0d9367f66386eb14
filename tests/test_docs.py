"""Every Python block of the README and of the documentation runs as printed."""

import os
import re
from pathlib import Path

import pytest

from processes import python

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def python_blocks(text: str) -> str:
    """The code of a page at its own line numbers, so that a traceback leads to the page."""
    lines = [""] * len(text.splitlines())
    for block in BLOCK.finditer(text):
        start = text.count("\n", 0, block.start(1))
        code = block[1].splitlines()
        lines[start : start + len(code)] = code
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_runs_as_printed(page, tmp_path):
    script = tmp_path / f"{page.stem}.py"
    script.write_text(python_blocks(page.read_text(encoding="utf-8")), encoding="utf-8")
    # A process of its own: the page runs with JAX as a user has it, not as the tests set it up.
    environment = {**os.environ, "PYTHONWARNINGS": "error", "JAX_PLATFORMS": "cpu"}
    done = python(script, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing
