"""Starts the processes of jobs on a node, takes over those that run already, and reports how they end."""
