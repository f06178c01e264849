"""Commands that act on savepoints."""
