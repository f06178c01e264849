"""Blocking work outside the event loop: threads, limits on their use, and time limits for mounts that hang."""
