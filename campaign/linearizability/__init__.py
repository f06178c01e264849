"""Checks recorded histories of concurrent operations against sequential models: no clock, no files, no network."""
