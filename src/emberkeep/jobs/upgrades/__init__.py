"""Upgrades of jobs to new code: stop, start, watch, and go back if the new code is not good. Pure."""
