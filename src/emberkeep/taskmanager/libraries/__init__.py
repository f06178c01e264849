"""Files, archives and Python environments that tasks run with."""
