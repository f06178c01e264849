"""The shared storage directory: its owner, its marks for deletion, and its availability."""
