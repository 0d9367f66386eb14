"""The ground: arrays and their types, checks at public doors, elementary functions.

Nothing here knows what a manifold is.  Open `numerics` first: functions with removable
singularities, finite with all their derivatives.
"""

SEES = ()
