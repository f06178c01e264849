"""The requests to one job, from a caller's question until the end of the request is durable. Pure."""
