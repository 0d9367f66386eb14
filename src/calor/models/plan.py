"""What a fit of several parts does: which parts, how many members, how many steps.

A plan is sized once, from the first timed steps, and is kept with the model: a fit by the same plan
does the same again, however fast the machine is.
"""

import dataclasses
from typing import Any

from ..core.checks import positive_integer

# Members of an ensemble, and fewer where they could not make so many steps.
MEMBERS, FEWEST_STEPS = 3, 300
# Steps beyond which nothing was seen to be gained.
_MOST_STEPS = 3000
# What of the time of a trained part its steps take; the rest is for judging it.
_STEPS_SHARE = 0.6


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to do."""

    parts: tuple[str, ...]
    """Their names, in the order in which they are tried."""
    members: int
    """Models of each trained part, and parts of the data that are put aside in turn."""
    steps: int
    """Of training, for each member."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        for name in ("members", "steps"):
            object.__setattr__(self, name, positive_integer(getattr(self, name), name, "Plan"))

    def record(self) -> dict[str, Any]:
        """The plan as JSON."""
        return {"parts": list(self.parts), "members": self.members, "steps": self.steps}

    @staticmethod
    def of(value: Any) -> "Plan":
        """A plan, or one from the record of a model."""
        if isinstance(value, Plan):
            return value
        try:
            return Plan(tuple(value["parts"]), value["members"], value["steps"])
        except (TypeError, KeyError) as error:
            raise TypeError(
                "plan must be the about['plan'] of a model or a calor.Plan(parts, members, steps), "
                f"got {value!r:.80}."
            ) from error


def steps_for(seconds: float, each: float, trained: int) -> int:
    """The steps of each trained part that fit into the time.

    Args:
        seconds: for all of them.
        each: of a step of one of them.
        trained: how many there are.
    """
    found = int(_STEPS_SHARE * seconds / (max(trained, 1) * each))
    return min(max(found, 1), _MOST_STEPS)
