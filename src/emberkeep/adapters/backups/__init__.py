"""Writes, reads and restores backups of a cluster."""
