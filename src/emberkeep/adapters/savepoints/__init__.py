"""Savepoints in object stores."""
