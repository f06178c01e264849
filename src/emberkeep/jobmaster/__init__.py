"""The actors inside a driver: slot pool and link to the JobManager."""
