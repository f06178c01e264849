"""The node blocklist: where no new work is to go, until when, and why."""
