"""Experiments of the paper: frozen settings, one `run`, a table beside the published figures.

Open `earth` first.
"""

SEES = ("core", "store", "training", "manifolds", "heat", "solvers", "data", "models", "plots")
