"""Graceful stops, savepoints, drains and restores of streaming queries."""
