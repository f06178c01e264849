"""Blocking work beside the event loop: threads, shares of them, patience with mounts that hang."""
