"""REST bodies about what a job's Spark application does, and has done."""
