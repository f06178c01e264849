"""Backups of a cluster: what one contains, and how each job continues after it is restored. Pure."""
