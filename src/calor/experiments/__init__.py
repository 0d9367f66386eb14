"""Experiments of the paper: frozen settings, one `run`, a table beside the published figures.

Open `earth` first.
"""

FILES = {
    "earth": "earth",
    "densities": "densities",
    "so3": "rotations",
    "taxi": "taxi",
    "eeg": "eeg",
    "plane": "plane",
    "qm9": "molecules",
}
"""The file of each experiment, by its name on the command line; `EXPERIMENT` is in there."""

SEES = ("core", "store", "training", "manifolds", "heat", "solvers", "data", "models", "plots")
