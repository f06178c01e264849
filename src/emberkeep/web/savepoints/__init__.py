"""Savepoints on the pages: those of one job, and those of all jobs."""
