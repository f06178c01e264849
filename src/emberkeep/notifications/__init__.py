"""Notifications: what happens to jobs, as messages for people and programs outside of the cluster."""
