"""The node blocklist: where no new work may go, until when, and why."""
