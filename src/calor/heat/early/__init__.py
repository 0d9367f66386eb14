"""Laws for early times: good for small t, before a second geodesic counts."""
