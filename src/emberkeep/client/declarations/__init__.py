"""Declared jobs: a file that says which job should run, and how the cluster is brought there."""
