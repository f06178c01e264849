"""Runs the user's script."""
