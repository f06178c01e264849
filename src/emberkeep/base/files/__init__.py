"""Durable files, and who owns the directories that they lie in."""
