"""Clusters on this machine: found, started, ended."""
