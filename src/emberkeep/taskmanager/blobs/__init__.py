"""The BLOB cache of a process."""
