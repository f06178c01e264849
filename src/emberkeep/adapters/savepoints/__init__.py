"""Where savepoints lie."""
