"""A fit of several parts that was interrupted: what is kept of it, to go on with."""

import dataclasses
from pathlib import Path
from typing import Any

from ..store import files
from .plan import Plan


@dataclasses.dataclass(frozen=True)
class Unfinished:
    """Where an unfinished fit is kept: its plan in a file, the states of its parts beside it."""

    path: str | Path | None
    identity: dict[str, Any]

    def beside(self, name: str) -> Path | None:
        """The file of a part."""
        return None if self.path is None else Path(f"{self.path}-{name}")

    def plan(self) -> tuple[Plan | None, str | None]:
        """The plan, and what tells its data from others, if there is one."""
        if self.path is None or not Path(self.path).exists():
            return None, None
        note = files.load_note(self.path, self.identity)
        return Plan.of(note["plan"]), note["data"]

    def keep(self, plan: Plan, data: str, before: str | None) -> None:
        """Keep the plan.

        Args:
            plan: for the data.
            data: what tells them from others.
            before: the same of what was begun, if anything was.
        """
        if before not in (None, data):
            names = ", ".join(str(path) for path in self.files() if path.exists())
            raise ValueError(
                f"{self.path} is of a fit to other data; remove {names}, or choose another file."
            )
        if self.path is not None:
            files.save_note(self.path, {"plan": plan.record(), "data": data}, self.identity)

    def files(self) -> list[Path]:
        """All files that there may be."""
        if self.path is None:
            return []
        return [Path(self.path), *(Path(f"{self.path}-{name}") for name in self.identity["parts"])]

    def remove(self) -> None:
        """Remove all files, at the end."""
        for path in self.files():
            path.unlink(missing_ok=True)
