"""The chronicle in the shared storage."""
