"""The cluster's blocklist, and evidence of faulty nodes."""
