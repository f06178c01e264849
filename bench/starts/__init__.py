"""How fast jobs start, and start again when something is killed; Flink is the peer."""
