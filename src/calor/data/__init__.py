"""Points at the door: files, forms, checks, conditions, data sets.

Open `prepare` first: from what a user hands over to points that are trusted.
"""

# These two register how points are written.
from . import columns as columns
from . import molecules as molecules

SEES = ("core", "store", "manifolds")
