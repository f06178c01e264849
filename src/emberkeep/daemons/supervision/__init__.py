"""Supervision of a task manager where a platform has started us for that: in a Slurm job or in a pod."""
