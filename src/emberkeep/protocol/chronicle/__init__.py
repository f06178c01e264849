"""REST bodies about what has happened to jobs and to the cluster."""
