"""Client of a JobManager: find it, submit jobs, follow them, and run a local cluster."""
