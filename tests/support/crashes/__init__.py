"""Crash points: what a restart finds after each single step that changed a disk, component by component."""
