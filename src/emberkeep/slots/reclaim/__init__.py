"""Reclaiming: jobs give slots back that others are entitled to."""
