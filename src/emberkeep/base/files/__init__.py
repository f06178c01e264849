"""Durable files, and the ownership of the directories that contain them."""
