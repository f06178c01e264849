"""Logs over REST."""
