"""Heat kernels of surfaces by curved finite elements: open `solve` first."""
