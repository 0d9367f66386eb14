"""Points at the door: files, columns, checks, conditions, data sets.

Open `prepare` first: from what a user hands over to points that are trusted.
"""

SEES = ("core", "store", "manifolds")
