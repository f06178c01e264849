"""The slots of one task manager."""
