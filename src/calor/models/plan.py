"""What a fit of several parts does: which parts, how many members, how many steps.

A plan is sized once, from the first timed steps, and is kept with the model: a fit by the same plan
does the same again, however fast the machine is.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..core.checks import positive_integer

# Members of an ensemble, and fewer where they could not make so many steps.
MEMBERS, _FEWEST_STEPS = 3, 300
# Steps of a single model below which it is not worth while.
_LEAST_STEPS = 100
# Points put aside, and fewer where that would leave less than good steps.
POINTS, _GOOD_STEPS = (1000, 500, 240), 1000
# Steps beyond which nothing was seen to be gained.
_MOST_STEPS = 3000
# Validations of a training.
VALIDATIONS = 8


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to do."""

    parts: tuple[str, ...]
    """Their names, in the order in which they are tried."""
    members: int
    """Models of each trained part, and parts of the data that are put aside in turn."""
    steps: int
    """Of training, for each member."""
    points: int = POINTS[0]
    """Put aside to judge parts by, at most."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        for name in ("members", "steps", "points"):
            object.__setattr__(self, name, positive_integer(getattr(self, name), name, "Plan"))

    def record(self) -> dict[str, Any]:
        """The plan as JSON."""
        return {**dataclasses.asdict(self), "parts": list(self.parts)}

    @staticmethod
    def of(value: Any) -> "Plan":
        """A plan, or one from the record of a model."""
        if isinstance(value, Plan):
            return value
        try:
            if isinstance(value["parts"], str):
                raise TypeError("its parts are not a list")
            return Plan(**value)
        except (TypeError, KeyError) as error:
            raise TypeError(
                "plan must be the about['plan'] of a model or a calor.Plan(parts, members, steps), "
                f"got {value!r:.80}."
            ) from error


@dataclasses.dataclass(frozen=True)
class Pace:
    """How long things take, in seconds."""

    step: float
    """Of one model."""
    look: float
    """A validation of all members."""
    seen: int
    """The points that it looks at."""
    last: float
    """The weights of all stops, by the whole flow."""
    points: int
    """Of as many points."""

    def judging(self, points: int) -> float:
        """All judging of a trained part by so many points."""
        look = self.look * min(1.0, points / self.seen)
        return VALIDATIONS * look + self.last * points / self.points


def sized(
    parts: Sequence[str],
    trained: Sequence[str],
    pace: Pace,
    seconds: float,
    most: int,
    members: int = MEMBERS,
) -> Plan:
    """The plan that fits into the time.

    Where it is tight there are fewer points to judge by, then fewer members, then only one trained
    part, and at last none, if there are others.

    Args:
        parts: the names of those to try.
        trained: those of them that are trained.
        pace: how long things take.
        seconds: for all trained parts.
        most: points to judge by.
        members: of an ensemble, at most.
    """

    def steps(points: int, members: int, trained: int) -> int:
        left = seconds / trained - pace.judging(points)
        return min(int(left / (members * pace.step)), _MOST_STEPS)

    tried = [points for points in POINTS if points <= most]
    for number in range(members, 0, -1):
        for points in tried:
            enough = _FEWEST_STEPS if points == tried[-1] else _GOOD_STEPS
            if (found := steps(points, number, len(trained))) >= enough:
                return Plan(tuple(parts), number, found, points)
    found, cheap = steps(tried[-1], 1, 1), tuple(name for name in parts if name not in trained)
    if found < _LEAST_STEPS and cheap:
        return Plan(cheap, members, 1, most)
    return Plan((*cheap, trained[0]), 1, max(1, found), tried[-1])
