"""The ground: arrays and their types, checks at public doors, elementary functions, registries.

Nothing here knows what a manifold is.  Open `numerics` first: functions with removable
singularities, finite with all their derivatives; then `registry`, by which a family says for itself
what it does in its own way.
"""

SEES = ()
