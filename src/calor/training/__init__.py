"""Networks that know nothing of geometry, and what trains them.

Open `loop` first: steps of an optimizer (`steps`, `optimizers`) with validation, averaging, saving
and resuming.  Least squares have Levenberg-Marquardt steps of their own, `levenberg`.
"""

SEES = ("core", "store")
