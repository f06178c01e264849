"""Wiring: the only package that joins actors with adapters, edges, signals and exit codes."""
