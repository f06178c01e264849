"""Files of jobs, checkpoints and savepoints, as Spark's driver accesses them."""
