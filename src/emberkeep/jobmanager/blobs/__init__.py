"""The BLOB server."""
