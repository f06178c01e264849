"""Priorities of jobs: the order in which jobs get free slots and driver places."""
