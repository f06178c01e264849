"""Executors as Spark's scheduler sees them."""
