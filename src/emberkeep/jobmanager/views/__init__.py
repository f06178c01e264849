"""What REST, metrics and the other edges see of a JobManager."""
