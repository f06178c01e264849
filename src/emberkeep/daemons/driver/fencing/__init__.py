"""Ends or holds a driver that may have been replaced by a newer attempt."""
