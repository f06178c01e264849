"""Soak: a cluster's whole life, compressed, and whether anything grows."""
