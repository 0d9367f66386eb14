"""Generative models of points, from any heat kernel; how it was found is never asked.

Open `model` first: what a model is; then `fitting`, where `calor.fit` is, `weighed`, several kinds
of models together, and `fit`, the training of one kind from data to weights.
"""

SEES = ("core", "store", "training", "manifolds", "heat", "data")
