"""Jobs, their submission, and their savepoints."""
