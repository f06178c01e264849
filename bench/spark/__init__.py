"""What Spark does for a job on Emberkeep, beside Spark alone."""
