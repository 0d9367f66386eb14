"""Experiments of the paper: frozen settings, one `run`, a table beside the published figures."""
