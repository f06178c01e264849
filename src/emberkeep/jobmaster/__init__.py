"""The actors inside a driver process: the owner of the job's slots and its link to the JobManager."""
