"""Commands that act on jobs."""
