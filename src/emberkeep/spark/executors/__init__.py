"""Executors from the view of Spark's scheduler."""
