"""Client of a JobManager: finding it, submitting jobs, following them, and running a local cluster."""
