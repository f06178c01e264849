"""What the edges see of a JobManager."""
