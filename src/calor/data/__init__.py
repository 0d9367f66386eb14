"""Points at the door: files, forms, checks, conditions, data sets.

Open `prepare` first: from what a user hands over to points that are trusted.
"""

# These register how points are written; a new file of forms is imported here too.
from . import columns as columns
from . import molecules as molecules

SEES = ("core", "store", "manifolds")
