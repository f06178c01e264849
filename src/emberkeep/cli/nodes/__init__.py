"""Commands that act on nodes."""
