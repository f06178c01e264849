"""What the JobMaster sees of Spark in its driver, and what it does there."""
