"""Logs that outlive their node: which pieces are stored and dropped, and how the rest is read as one log. Pure."""
