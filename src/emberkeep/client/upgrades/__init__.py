"""Upgrades of jobs to new code: upload, begin, follow."""
