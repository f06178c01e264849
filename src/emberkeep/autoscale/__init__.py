"""Autoscaling: how many executors a job with streaming queries needs for its load."""
