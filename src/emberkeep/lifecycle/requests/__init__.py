"""The requests to one job, from a caller's call until the end of the request is durable. Pure."""
