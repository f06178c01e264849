"""Views of a JobManager for REST, metrics and the other edges."""
