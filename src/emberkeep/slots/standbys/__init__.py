"""Which standby processes a task manager keeps: warm drivers and executors that no job has taken yet."""
