"""The shared storage directory: its owner, its marks, and whether it answers."""
