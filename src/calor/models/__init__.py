"""Generative models of points, from any heat kernel; how it was found is never asked.

Open `model` first: what a model is; then `fit`, from data to weights.
"""

SEES = ("core", "store", "training", "manifolds", "heat", "data")
