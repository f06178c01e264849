"""The port that serves the Spark UIs of attempts, and nothing else."""
