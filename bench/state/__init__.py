"""Local state: what copies on the nodes save after a restart, and what they cost."""
