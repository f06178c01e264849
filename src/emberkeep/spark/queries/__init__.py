"""Streaming queries: their starts, checkpoints and progress."""
