"""How busy the task managers' machines have been: a bounded history, which the leader keeps and stores."""
