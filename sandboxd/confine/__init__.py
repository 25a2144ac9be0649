"""Confinement: one file per mechanism, the ordered ladder in `select`, the filter in `seccomp`."""
