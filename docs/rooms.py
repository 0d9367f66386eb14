"""Draw the rooms of calor, from what their own pages say they see: `python docs/rooms.py`."""

import ast
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "calor"
# Where rooms stand: columns from left to right as data flow, rows for those side by side.
PLACES = {
    "core": (1, 1.5), "store": (1, 0.5), "training": (2, 2), "manifolds": (2, 0), "heat": (3, 2),
    "data": (3, 0), "solvers": (4, 2), "models": (4, 1), "plots": (4, 0), "experiments": (5, 1),
    "cli": (6, 1),
}  # fmt: skip
WORDS = {
    "core": "arrays, checks,\nregistries", "store": "files", "manifolds": "geometry",
    "training": "networks, the loop,\nruns", "heat": "kernels that\nare known",
    "data": "points at the door", "solvers": "kernels that are\nsolved for",
    "models": "fits, samples,\nlikelihoods",
    "plots": "pictures", "experiments": "the paper's tables", "cli": "the command line",
}  # fmt: skip
SIZE = (1.5, 0.62)


def sees(room: str) -> set[str]:
    """The rooms that a room's page names."""
    for node in ast.parse((SOURCE / room / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SEES":
            return set(ast.literal_eval(node.value))
    raise ValueError(f"{room} does not say what it sees")


def direct(room: str) -> set[str]:
    """Those of them that it does not see through another one anyway."""
    seen = sees(room)
    return {one for one in seen if not any(one in sees(other) for other in seen - {one})}


def main() -> None:
    """Write docs/images/rooms.png."""
    figure = Figure(figsize=(11.6, 4.2), layout="constrained")
    axes = figure.subplots()
    middle = {room: (2.0 * column, 1.25 * row) for room, (column, row) in PLACES.items()}
    for room, (x, y) in middle.items():
        width, height = SIZE
        corner = (x - width / 2, y - height / 2)
        axes.add_patch(
            FancyBboxPatch(
                corner, width, height, boxstyle="round,pad=0.04", fc="#fdf3ea", ec="#D55E00", lw=1.2
            )
        )
        axes.text(x, y + 0.14, room, ha="center", va="center", weight="bold", fontsize=11)
        axes.text(x, y - 0.14, WORDS[room], ha="center", va="center", fontsize=7.5, color="#333333")
        for other in direct(room):
            start, end = middle[other], (x, y)
            axes.add_patch(
                FancyArrowPatch(
                    (start[0] + width / 2 + 0.05, start[1]),
                    (end[0] - width / 2 - 0.05, end[1]),
                    arrowstyle="-|>",
                    mutation_scale=11,
                    color="#555555",
                    lw=0.9,
                    connectionstyle="arc3,rad=0",
                )
            )
    axes.set_xlim(1, 13)
    axes.set_ylim(-0.6, 3.1)
    axes.axis("off")
    figure.savefig(ROOT / "docs" / "images" / "rooms.png", dpi=110)


if __name__ == "__main__":
    main()
