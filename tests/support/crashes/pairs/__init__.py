"""Pairs of components: each machine crashes while the other one works."""
