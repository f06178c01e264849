"""The blocklist, and evidence about nodes."""
