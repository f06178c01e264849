"""User functions that take part in the job's lifecycle, in the driver and on executors."""
