"""The cluster, its task managers, its storage and its blocklist."""
