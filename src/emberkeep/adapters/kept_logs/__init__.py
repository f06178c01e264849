"""Stores pieces of jobs' logs in the shared storage."""
