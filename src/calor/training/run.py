"""A run of many steps, whatever a step is: progress, saving, resuming, and Ctrl-C.

A state is all that is needed to go on, so a run that was interrupted and resumed ends as if it had
never been.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, SupportsFloat, TypeVar

import jax.numpy as jnp
from tqdm import tqdm

from ..core.bar import bar
from ..store import files

S = TypeVar("S")

# A state is saved this often, in seconds.
_SAVE_EVERY = 30.0
# Raised when states are saved in another way: what was saved before is refused.
_FORMAT = 3


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run is called, and where its state is kept."""

    title: str = ""
    """For the progress bar."""
    identity: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What a saved state must agree with to be continued, as JSON."""
    progress: bool | None = None
    """Whether to show a progress bar; by default on a terminal only."""
    resume: str | Path | None = None
    """A file for the state of an unfinished run: saved every half minute, when it is interrupted,
    and at the end, as what follows may be interrupted too; who asked for it removes it."""

    @contextlib.contextmanager
    def going(self, state: S, made: Callable[[S], int], total: int) -> Iterator["Going[S]"]:
        """Go on from the saved state, if there is one; what was reached is saved at the end.

        Args:
            state: to begin with, a pytree of arrays.
            made: how many steps were made up to a state.
            total: the number of all steps.
        """
        seconds = jnp.zeros(())
        if self.resume is not None and Path(self.resume).exists():
            state, seconds = files.load_state(self.resume, (state, seconds), self._identity())
        with bar(total, self.title, initial=made(state), progress=self.progress) as shown:
            going = Going(self, state, made, shown, time.monotonic() - float(seconds))
            try:
                yield going
            except KeyboardInterrupt:
                going.save()
                raise
        going.save()

    def save(self, state: Any, seconds: float) -> None:
        """Save a state, if there is a file for it."""
        if self.resume is not None:
            files.save_state(self.resume, (state, jnp.asarray(seconds)), self._identity())

    def _identity(self) -> dict[str, Any]:
        return {"format of states": _FORMAT, **self.identity}


@dataclasses.dataclass
class Going(Generic[S]):
    """A run that is going on; the state that was reached last is the one that is kept."""

    run: Run
    state: S
    made: Callable[[S], int]
    """How many steps were made up to a state."""
    shown: "tqdm[Any]"
    begun: float
    """When it would have begun if it had never been interrupted."""
    saved: float = dataclasses.field(default_factory=time.monotonic)
    """When its state was saved last."""

    def seconds(self) -> float:
        """The time that the run took so far, before it was resumed included."""
        return time.monotonic() - self.begun

    def reach(self, state: S, terms: Mapping[str, SupportsFloat] | None = None) -> None:
        """Keep a state that was reached, and show it.

        Args:
            state: that was reached.
            terms: what to show of it.
        """
        self.state = state
        if not self.shown.disable:
            self.shown.update(self.made(state) - self.shown.n)
            if terms is not None:
                self.shown.set_postfix({name: f"{float(v):.4g}" for name, v in terms.items()})
        if time.monotonic() - self.saved > _SAVE_EVERY:
            self.save()
            self.saved = time.monotonic()

    def save(self) -> None:
        """Save the state."""
        self.run.save(self.state, self.seconds())
