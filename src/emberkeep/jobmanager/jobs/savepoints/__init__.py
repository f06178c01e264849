"""Periodic savepoints of jobs: made, and deleted by retention."""
