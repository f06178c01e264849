"""Savepoints, and how a job ends on request: suspend, drain, moving its driver to another node. Pure."""
