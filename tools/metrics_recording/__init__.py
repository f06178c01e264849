"""Records what Prometheus reads of a real cluster in trouble, for the tests of the alert rules."""
