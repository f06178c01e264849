"""The level ``crashes``: every durable step of every component, and pairs of steps of two components."""
