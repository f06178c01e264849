"""Kubernetes, as its API shows it."""
