"""Versioned messages between processes, REST schemas and their limits."""
