"""Processes of the operating system: their identities, users and priorities."""
