"""Emberkeep: high availability for PySpark jobs."""

__version__ = "0.1.0"
