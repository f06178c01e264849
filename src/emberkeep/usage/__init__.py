"""How busy the task managers' machines have been: a bounded history, kept by the leader in memory."""
