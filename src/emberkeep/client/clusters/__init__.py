"""Clusters on this machine: find, start and stop them."""
