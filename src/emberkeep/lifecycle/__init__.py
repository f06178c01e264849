"""Savepoints, and how a job ends or moves on request: suspend, drain, move its driver to another node. Pure."""
