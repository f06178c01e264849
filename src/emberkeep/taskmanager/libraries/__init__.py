"""Files, archives and Python environments that tasks are bound to."""
