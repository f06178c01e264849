"""The JobManager daemon: ``python -m emberkeep.daemons.jobmanager``."""
