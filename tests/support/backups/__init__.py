"""Clusters without processes that are backed up and restored."""
