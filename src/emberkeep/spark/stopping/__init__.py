"""Savepoints, drains and restores of streaming queries."""
