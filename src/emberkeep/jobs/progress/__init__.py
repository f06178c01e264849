"""What a job's Spark application does: jobs, stages and tasks, and the history of its streaming queries."""
