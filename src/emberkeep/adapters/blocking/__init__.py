"""Blocking work beside the event loop: threads, shares of them, and patience with mounts that hang."""
