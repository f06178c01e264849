"""Clusters on this machine: find, start and end them."""
