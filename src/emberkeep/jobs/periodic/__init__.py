"""Periodic savepoints of one job: when one is due, and which are deleted. Pure."""
