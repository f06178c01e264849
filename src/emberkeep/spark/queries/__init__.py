"""Streaming queries: their start, their checkpoints, their progress."""
