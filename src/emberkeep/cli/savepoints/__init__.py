"""Commands about savepoints."""
