"""Networks that know nothing of geometry, and what trains them.

Open `loop` first: steps of an optimizer with validation, averaging, saving and resuming.
"""

SEES = ("core", "store")
