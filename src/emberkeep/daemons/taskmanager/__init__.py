"""The task manager daemon: ``python -m emberkeep.daemons.taskmanager``."""
