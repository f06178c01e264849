"""Slurm, as its commands show it."""
