"""The durable store of state files in a directory that all nodes share."""
