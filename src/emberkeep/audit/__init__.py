"""What the audit log records, and which entries a reader gets. Pure."""
